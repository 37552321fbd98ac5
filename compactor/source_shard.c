/* Reads a shard of the archive in large pieces and verifies its checksum. */
#include "compactor/source_internal.h"

#include "base/io.h"
#include "counts/records.h"
#include "base/xxh3.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

#define READ_BYTES (256u << 10)

struct shard {
    int fd;
    char *path;
    struct manifest_file expected;
    uint64_t records, bytes; /* bytes: read from the file */
    XXH3_state_t *hash;
    struct buf data; /* read; not returned yet from `at` on */
    size_t at;
    bool ended;
};

static enum compact_result damaged(const struct shard *s, const char *what, char error[COMPACT_ERROR_TEXT])
{
    return compact_fail(error, COMPACT_DAMAGED, "%.300s: %s", s->path, what);
}

/* Moves an unfinished line to the front and reads one more piece. */
static enum compact_result fill(struct shard *s, char error[COMPACT_ERROR_TEXT])
{
    size_t rest = s->data.len - s->at;
    if (s->at)
        memmove(s->data.ptr, s->data.ptr + s->at, rest);
    s->at = 0;
    s->data.len = rest;
    buf_reserve(&s->data, READ_BYTES);
    ssize_t n;
    do
        n = io->pread(s->fd, s->data.ptr + rest, READ_BYTES, (off_t)s->bytes);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return compact_fail_errno(error, s->path);
    XXH3_64bits_update(s->hash, s->data.ptr + rest, (size_t)n);
    s->data.len += (size_t)n;
    s->bytes += (uint64_t)n;
    s->ended = n == 0;
    return COMPACT_OK;
}

static enum compact_result check_whole(const struct shard *s, char error[COMPACT_ERROR_TEXT])
{
    if (s->at != s->data.len)
        return damaged(s, "the last line has no LF", error);
    if (s->bytes != s->expected.bytes || s->records != s->expected.records)
        return compact_fail(error, COMPACT_DAMAGED,
            "%.300s: %" PRIu64 " records in %" PRIu64 " bytes; its manifest says %" PRIu64 " in %" PRIu64,
            s->path, s->records, s->bytes, s->expected.records, s->expected.bytes);
    if (XXH3_64bits_digest(s->hash) != s->expected.xxh3)
        return damaged(s, "the checksum does not match the manifest", error);
    return COMPACT_OK;
}

/* Reads up to the end of the line at `at`; NULL at the end of the file. */
static enum compact_result find_line(struct shard *s, const char **end, char error[COMPACT_ERROR_TEXT])
{
    size_t looked = s->at;
    for (;;) {
        *end = s->data.len > looked ? memchr(s->data.ptr + looked, '\n', s->data.len - looked) : NULL;
        if (*end || s->ended)
            return COMPACT_OK;
        looked = s->data.len - s->at;
        enum compact_result r = fill(s, error);
        if (r != COMPACT_OK)
            return r;
    }
}

static enum compact_result shard_next(void *state, struct record_line *out, char error[COMPACT_ERROR_TEXT])
{
    struct shard *s = state;
    const char *end;
    enum compact_result r = find_line(s, &end, error);
    out->text = BYTES_NONE;
    if (r != COMPACT_OK)
        return r;
    if (!end)
        return check_whole(s, error);
    const char *line = s->data.ptr + s->at;
    const char *separator = memchr(line, RECORD_SEPARATOR, (size_t)(end - line));
    if (!separator)
        return damaged(s, "a line without a separator", error);
    out->text = bytes_of(line, (size_t)(end - line));
    out->key_len = (size_t)(separator + 1 - line);
    s->at = (size_t)(end + 1 - s->data.ptr);
    s->records++;
    return COMPACT_OK;
}

static void shard_close(void *state)
{
    struct shard *s = state;
    io->close(s->fd);
    XXH3_freeState(s->hash);
    buf_free(&s->data);
    free(s->path);
    free(s);
}

enum compact_result record_source_open_shard(const char *path, const struct manifest_file *expected,
    struct record_source **out, char error[COMPACT_ERROR_TEXT])
{
    static const struct source_kind kind = {shard_next, shard_close};
    int fd = io->open(path, O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0)
        return compact_fail_errno(error, path);
    posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    struct shard *s = mem_zalloc(sizeof(*s));
    *s =
        (struct shard){.fd = fd, .path = mem_strdup(path), .expected = *expected, .hash = XXH3_createState()};
    XXH3_64bits_reset(s->hash);
    *out = source_new(&kind, s, path);
    return COMPACT_OK;
}
