/* A shard of the archive as a source of counts. It reads large pieces and computes the checksum. */
#include "compactor/record_source.h"

#include "base/io.h"
#include "base/xxh3.h"
#include "compactor/text_record.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define READ_BYTES (256u << 10)

struct shard {
    struct text_record record; /* first */
    int fd;
    char *path;
    struct manifest_file expected;
    size_t read_bytes;
    uint64_t records, bytes; /* bytes: read from the file */
    XXH3_state_t *hash;
    struct buf data; /* read; not yet returned from `at` on */
    size_t at;
    bool ended;
};

static enum count_next damaged(struct shard *s, const char *what)
{
    return text_record_damaged(&s->record, what);
}

static enum count_next check_whole(struct shard *s)
{
    if (s->at != s->data.len)
        return damaged(s, "the last line has no end");
    if (s->bytes != s->expected.bytes || s->records != s->expected.records) {
        snprintf(s->record.base.error, sizeof(s->record.base.error),
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
        buf_reserve(&s->data, s->read_bytes);
        ssize_t n;
        do
            n = io->pread(s->fd, s->data.ptr + looked, s->read_bytes, (off_t)s->bytes);
        while (n < 0 && errno == EINTR);
        if (n < 0) {
            s->record.base.is_unreadable = true;
            return damaged(s, strerror(errno));
        }
        XXH3_64bits_update(s->hash, s->data.ptr + looked, (size_t)n);
        s->data.len += (size_t)n;
        s->bytes += (uint64_t)n;
        s->ended = n == 0;
    }
    struct bytes line = bytes_of(s->data.ptr + s->at, (size_t)(end - s->data.ptr) - s->at);
    s->at += line.len + 1;
    s->records++;
    return text_record_set(&s->record, line);
}

static void shard_close(struct count_source *base)
{
    struct shard *s = (struct shard *)base;
    io->close(s->fd);
    XXH3_freeState(s->hash);
    buf_free(&s->data);
    buf_free(&s->record.text);
    free(s->path);
    free(s);
}

struct count_source *record_source_of_file(
    int fd, const char *name, const struct manifest_file *expected, size_t read_bytes)
{
    static const struct count_source_kind kind = {shard_next_record, text_record_next_value, shard_close};
    posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    struct shard *s = mem_zalloc(sizeof(*s));
    *s = (struct shard){.record.base.kind = &kind,
        .fd = fd,
        .path = mem_strdup(name),
        .expected = *expected,
        .read_bytes = read_bytes,
        .hash = XXH3_createState()};
    s->record.base.container = s->path;
    XXH3_64bits_reset(s->hash);
    return &s->record.base;
}

enum compact_result record_source_open_shard(const char *path, const struct manifest_file *expected,
    struct count_source **out, char error[COMPACT_ERROR_TEXT])
{
    int fd = io->open(path, O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0)
        return compact_fail_errno(error, path);
    *out = record_source_of_file(fd, path, expected, READ_BYTES);
    return COMPACT_OK;
}

enum compact_result record_source_failed(const struct count_merge *m, char error[COMPACT_ERROR_TEXT])
{
    return compact_fail(
        error, count_merge_is_unreadable(m) ? COMPACT_FAILED : COMPACT_DAMAGED, "%s", count_merge_error(m));
}
