/* A shard of the archive as a source of counts. It reads large pieces and computes the checksum. */
#include "compactor/record_source.h"

#include "base/io.h"
#include "base/xxh3.h"
#include "counts/records.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define READ_BYTES (256u << 10)

struct shard {
    struct count_source base; /* first */
    int fd;
    char *path;
    struct manifest_file expected;
    uint64_t records, bytes; /* bytes: read from the file */
    XXH3_state_t *hash;
    struct buf data; /* read; not yet returned from `at` on */
    size_t at;
    bool ended;
    struct bytes rest; /* of the record's value, not yet returned */
    bool has_text;     /* the record is a lookup whose text is not yet returned */
    struct buf text;
};

static enum count_next damaged(struct shard *s, const char *what)
{
    snprintf(s->base.error, sizeof(s->base.error), "%.300s: %s", s->path, what);
    return COUNT_FAILED;
}

static enum count_next check_whole(struct shard *s)
{
    if (s->at != s->data.len)
        return damaged(s, "the last line has no end");
    if (s->bytes != s->expected.bytes || s->records != s->expected.records) {
        snprintf(s->base.error, sizeof(s->base.error),
            "%.300s: %" PRIu64 " records in %" PRIu64 " bytes; its manifest says %" PRIu64 " in %" PRIu64,
            s->path, s->records, s->bytes, s->expected.records, s->expected.bytes);
        return COUNT_FAILED;
    }
    if (XXH3_64bits_digest(s->hash) != s->expected.xxh3)
        return damaged(s, "its checksum does not match the manifest");
    return COUNT_END;
}

static enum count_next shard_next_record(struct count_source *base)
{
    struct shard *s = (struct shard *)base;
    const char *end = NULL;
    for (size_t looked = s->at;;) {
        end = s->data.len > looked ? memchr(s->data.ptr + looked, '\n', s->data.len - looked) : NULL;
        if (end)
            break;
        if (s->ended)
            return check_whole(s);
        /* Moves the incomplete line to the front of the buffer and reads another piece behind it. */
        looked = s->data.len - s->at;
        if (s->at)
            memmove(s->data.ptr, s->data.ptr + s->at, looked);
        s->at = 0;
        s->data.len = looked;
        buf_reserve(&s->data, READ_BYTES);
        ssize_t n;
        do
            n = io->pread(s->fd, s->data.ptr + looked, READ_BYTES, (off_t)s->bytes);
        while (n < 0 && errno == EINTR);
        if (n < 0) {
            s->base.is_unreadable = true;
            return damaged(s, strerror(errno));
        }
        XXH3_64bits_update(s->hash, s->data.ptr + looked, (size_t)n);
        s->data.len += (size_t)n;
        s->bytes += (uint64_t)n;
        s->ended = n == 0;
    }
    const char *line = s->data.ptr + s->at;
    const char *separator = memchr(line, RECORD_SEPARATOR, (size_t)(end - line));
    if (!separator)
        return damaged(s, "a line without a separator");
    base->line = bytes_of(line, (size_t)(end - line));
    base->key = bytes_of(line, (size_t)(separator + 1 - line));
    s->rest = bytes_of(separator + 1, (size_t)(end - separator) - 1);
    s->has_text = true;
    s->at = (size_t)(end + 1 - s->data.ptr);
    s->records++;
    return COUNT_FOUND;
}

static enum count_next shard_next_value(struct count_source *base)
{
    struct shard *s = (struct shard *)base;
    bool bad;
    if (count_key_is_lookup(base->key)) {
        if (!s->has_text)
            return COUNT_END;
        s->has_text = false;
        buf_clear(&s->text);
        if (lookup_unescape(s->rest, &s->text) != 0)
            return damaged(s, "a malformed lookup");
        base->text = buf_bytes(&s->text);
        return COUNT_FOUND;
    }
    if (record_next_count(&s->rest, &base->name, &base->count, &bad))
        return COUNT_FOUND;
    return bad ? damaged(s, "a malformed record") : COUNT_END;
}

static void shard_close(struct count_source *base)
{
    struct shard *s = (struct shard *)base;
    io->close(s->fd);
    XXH3_freeState(s->hash);
    buf_free(&s->data);
    buf_free(&s->text);
    free(s->path);
    free(s);
}

enum compact_result record_source_open_shard(const char *path, const struct manifest_file *expected,
    struct count_source **out, char error[COMPACT_ERROR_TEXT])
{
    static const struct count_source_kind kind = {shard_next_record, shard_next_value, shard_close};
    int fd = io->open(path, O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0)
        return compact_fail_errno(error, path);
    posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    struct shard *s = mem_zalloc(sizeof(*s));
    *s = (struct shard){.base.kind = &kind,
        .fd = fd,
        .path = mem_strdup(path),
        .expected = *expected,
        .hash = XXH3_createState()};
    s->base.container = s->path;
    XXH3_64bits_reset(s->hash);
    *out = &s->base;
    return COMPACT_OK;
}

enum compact_result record_source_failed(const struct count_merge *m, char error[COMPACT_ERROR_TEXT])
{
    return compact_fail(
        error, count_merge_is_unreadable(m) ? COMPACT_FAILED : COMPACT_DAMAGED, "%s", count_merge_error(m));
}
