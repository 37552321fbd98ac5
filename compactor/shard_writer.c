#include "compactor/shard_writer.h"

#include "base/io.h"
#include "base/xxh3.h"
#include "counts/records.h"
#include <fcntl.h>
#include <stdlib.h>

#define KEY_SHOWN 300 /* maximal number of a key's bytes in an error */
#define WRITEBACK_BYTES ((uint64_t)8 << 20)

struct shard_writer {
    int fd;
    char *path;
    uint64_t started; /* number of bytes whose write to the disk was started */
    struct buf data;
    size_t buffer_bytes;
    struct manifest_file file;
    bool is_text; /* lines in order */
    XXH3_state_t *hash;
    struct buf last;      /* the key of the last line whose key is complete */
    struct buf key;       /* the beginning of the key of an incomplete last line */
    bool in_line, in_key; /* the last piece ended within a line; within the line's key */
};

enum compact_result shard_writer_open(const char *directory, enum manifest_kind kind, uint32_t shard,
    uint32_t shards, size_t buffer_bytes, struct shard_writer **out, struct error *error)
{
    struct shard_writer *w = mem_zalloc(sizeof *w);
    enum compact_result r = COMPACT_OK;
    w->buffer_bytes = buffer_bytes;
    w->is_text = kind != MANIFEST_SETS;
    w->hash = XXH3_createState();
    XXH3_64bits_reset(w->hash);
    manifest_file_name(kind, shard, shards, w->file.name);
    w->path = mem_printf("%s/%s", directory, w->file.name);
    w->fd = io->open(w->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (w->fd < 0) {
        r = error_errno(error, COMPACT_FAILED, w->path);
        shard_writer_close(&w);
    }
    *out = w;
    return r;
}

/* Starts writing to the disk while the merge continues, so that the fsync at the end has little to write. Does not
 * make data durable. */
static void start_writeback(struct shard_writer *w)
{
    if (w->file.bytes - w->started < WRITEBACK_BYTES)
        return;
    (void)sync_file_range(
        w->fd, (off_t)w->started, (off_t)(w->file.bytes - w->started), SYNC_FILE_RANGE_WRITE);
    w->started = w->file.bytes;
}

/* Hashes and writes the buffered bytes. */
static enum compact_result pass(struct shard_writer *w, struct error *error)
{
    struct bytes data = buf_bytes(&w->data);
    XXH3_64bits_update(w->hash, data.ptr, data.len);
    w->file.records += w->is_text ? bytes_count_lines(data) : 0;
    if (data.len > 0 && io_write_all(w->fd, data.ptr, data.len, (off_t)w->file.bytes) != 0)
        return error_errno(error, COMPACT_FAILED, w->path);
    w->file.bytes += data.len;
    buf_clear(&w->data);
    start_writeback(w);
    return COMPACT_OK;
}

/* Appends bytes to the key of a line, including the separator. Returns false if the piece ends within the key. */
static bool take_key(struct shard_writer *w, struct bytes rest)
{
    const char *line_end = memchr(rest.ptr, '\n', rest.len);
    size_t n = line_end ? (size_t)(line_end - rest.ptr) : rest.len;
    const char *separator = memchr(rest.ptr, RECORD_SEPARATOR, n);
    buf_append(&w->key, rest.ptr, separator ? (size_t)(separator + 1 - rest.ptr) : n);
    w->in_key = !separator && !line_end;
    return !w->in_key;
}

static void keep_key(struct shard_writer *w)
{
    struct buf last = w->last;
    w->last = w->key;
    w->key = last;
    buf_clear(&w->key);
}

/* Checks that the first key that ends in the piece is after the last key of earlier pieces, and stores the piece's
 * last key. Inside a piece, the keys are in order. */
static bool is_in_order(struct shard_writer *w, struct bytes piece)
{
    const char *limit = piece.ptr + piece.len, *end = memrchr(piece.ptr, '\n', piece.len - 1);
    if ((!w->in_line || w->in_key) && take_key(w, piece)) {
        if (bytes_compare(buf_bytes(&w->key), buf_bytes(&w->last)) <= 0)
            return false;
        keep_key(w);
    }
    w->in_line = limit[-1] != '\n';
    if (end && take_key(w, bytes_of(end + 1, (size_t)(limit - end - 1))))
        keep_key(w);
    return true;
}

enum compact_result shard_writer_append(struct shard_writer *w, struct bytes piece, struct error *error)
{
    struct buf *data = &w->data;
    enum compact_result r = COMPACT_OK;
    if (piece.len == 0)
        return r;
    if (w->is_text && !is_in_order(w, piece))
        return error_set(error, COMPACT_DAMAGED, "%.300s: out of order after \"%.*s\"", w->path,
            w->last.len < KEY_SHOWN ? (int)w->last.len : KEY_SHOWN, w->last.ptr);
    while (piece.len > 0 && r == COMPACT_OK) {
        size_t room = w->buffer_bytes - data->len, n = piece.len < room ? piece.len : room;
        buf_append(data, piece.ptr, n);
        piece = bytes_of(piece.ptr + n, piece.len - n);
        if (n == room)
            r = pass(w, error);
    }
    return r;
}

enum compact_result shard_writer_finish(
    struct shard_writer *w, struct manifest_file *file, struct error *error)
{
    enum compact_result r = pass(w, error);
    if (r == COMPACT_OK && io->fsync(w->fd) != 0)
        r = error_errno(error, COMPACT_FAILED, w->path);
    w->file.xxh3 = XXH3_64bits_digest(w->hash);
    *file = w->file;
    return r;
}

void shard_writer_close(struct shard_writer **wp)
{
    struct shard_writer *w = *wp;
    if (!w)
        return;
    if (w->fd >= 0)
        io->close(w->fd);
    XXH3_freeState(w->hash);
    buf_free(&w->data);
    buf_free(&w->last);
    buf_free(&w->key);
    free(w->path);
    free(w);
    *wp = NULL;
}
