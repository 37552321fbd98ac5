#include "compactor/shard_writer.h"

#include "archive/sorted_index.h"
#include "base/io.h"
#include "base/xxh3.h"
#include "counts/records.h"
#include <fcntl.h>
#include <stdlib.h>

#define WRITEBACK_BYTES ((uint64_t)8 << 20)
#define LAST_KEY_MAX ((size_t)64 << 10) /* bytes of a line that are compared; longer than any key */

struct output {
    int fd;
    char *path;
    uint64_t written, started; /* bytes written, and those whose write to the disk was started */
    struct buf data;
};

struct shard_writer {
    struct output text, index;
    size_t buffer_bytes;
    struct manifest_file file;
    XXH3_state_t *hash;
    struct sorted_index_writer *indexer;
    struct buf last; /* the start of the last line */
    bool in_line;    /* the last piece ended within a line */
};

static enum compact_result open_output(
    struct output *o, const char *directory, const char *name, struct error *error)
{
    struct buf path = {0};
    buf_printf(&path, "%s/%s", directory, name);
    o->path = path.ptr;
    o->fd = io->open(o->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    return o->fd >= 0 ? COMPACT_OK : compact_fail_errno(error, o->path);
}

/* Lets the disk write while the merge goes on, so that the fsync at the end waits for little. Makes nothing durable. */
static void start_writeback(struct output *o)
{
    if (o->written - o->started < WRITEBACK_BYTES)
        return;
    (void)sync_file_range(o->fd, (off_t)o->started, (off_t)(o->written - o->started), SYNC_FILE_RANGE_WRITE);
    o->started = o->written;
}

static enum compact_result write_out(struct output *o, struct bytes data, struct error *error)
{
    if (data.len > 0 && io_write_all(o->fd, data.ptr, data.len, (off_t)o->written) != 0)
        return compact_fail_errno(error, o->path);
    o->written += data.len;
    start_writeback(o);
    return COMPACT_OK;
}

static enum compact_result finish_output(struct output *o, struct error *error)
{
    enum compact_result r = write_out(o, buf_bytes(&o->data), error);
    buf_clear(&o->data);
    return r == COMPACT_OK && io->fsync(o->fd) != 0 ? compact_fail_errno(error, o->path) : r;
}

enum compact_result shard_writer_open(const char *directory, enum manifest_kind kind, uint32_t shard,
    uint32_t shards, size_t buffer_bytes, struct shard_writer **out, struct error *error)
{
    struct shard_writer *w = mem_zalloc(sizeof *w);
    char index[MANIFEST_NAME_TEXT];
    w->text.fd = w->index.fd = -1;
    w->buffer_bytes = buffer_bytes;
    w->hash = XXH3_createState();
    XXH3_64bits_reset(w->hash);
    w->indexer = sorted_index_writer_new();
    manifest_file_name(kind, shard, shards, w->file.name);
    manifest_index_name(w->file.name, index);
    enum compact_result r = open_output(&w->text, directory, w->file.name, error);
    if (r == COMPACT_OK)
        r = open_output(&w->index, directory, index, error);
    if (r != COMPACT_OK)
        shard_writer_close(&w);
    *out = w;
    return r;
}

/* Hashes, indexes and writes the buffered bytes. */
static enum compact_result pass(struct shard_writer *w, struct error *error)
{
    struct bytes data = buf_bytes(&w->text.data);
    XXH3_64bits_update(w->hash, data.ptr, data.len);
    w->file.records += bytes_count_lines(data);
    w->file.bytes += data.len;
    sorted_index_writer_feed(w->indexer, data, &w->index.data);
    enum compact_result r = write_out(&w->text, data, error);
    buf_clear(&w->text.data);
    if (r != COMPACT_OK || w->index.data.len < w->buffer_bytes)
        return r;
    r = write_out(&w->index, buf_bytes(&w->index.data), error);
    buf_clear(&w->index.data);
    return r;
}

/* The start of the line at `line`, as far as it decides the order of keys. */
static struct bytes key_of(const char *line, const char *limit)
{
    size_t n = (size_t)(limit - line) < LAST_KEY_MAX ? (size_t)(limit - line) : LAST_KEY_MAX;
    const char *separator = memchr(line, RECORD_SEPARATOR, n);
    return bytes_of(line, separator ? (size_t)(separator + 1 - line) : n);
}

/* Compares the first line of a piece with the last line before it, and keeps the last. */
static bool is_in_order(struct shard_writer *w, struct bytes piece)
{
    const char *limit = piece.ptr + piece.len, *end = memrchr(piece.ptr, '\n', piece.len - 1);
    bool starts_line = !w->in_line;
    w->in_line = limit[-1] != '\n';
    if (!starts_line && !end)
        return true; /* inside one line */
    struct bytes key = starts_line ? key_of(piece.ptr, limit) : BYTES_NONE;
    if (starts_line && bytes_compare(key, buf_bytes(&w->last)) <= 0)
        return false;
    buf_clear(&w->last);
    buf_append_bytes(&w->last, end ? key_of(end + 1, limit) : key);
    return true;
}

enum compact_result shard_writer_append(struct shard_writer *w, struct bytes piece, struct error *error)
{
    struct buf *data = &w->text.data;
    enum compact_result r = COMPACT_OK;
    if (piece.len == 0)
        return r;
    if (!is_in_order(w, piece))
        return error_set(error, COMPACT_DAMAGED, "%.300s: out of order after \"%.*s\"", w->text.path,
            (int)w->last.len, w->last.ptr);
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
    w->file.xxh3 = XXH3_64bits_digest(w->hash);
    sorted_index_writer_finish(w->indexer, w->file.xxh3, &w->index.data);
    if (r == COMPACT_OK)
        r = finish_output(&w->text, error);
    if (r == COMPACT_OK)
        r = finish_output(&w->index, error);
    *file = w->file;
    return r;
}

static void close_output(struct output *o)
{
    if (o->fd >= 0)
        io->close(o->fd);
    buf_free(&o->data);
    free(o->path);
}

void shard_writer_close(struct shard_writer **wp)
{
    struct shard_writer *w = *wp;
    if (!w)
        return;
    close_output(&w->text);
    close_output(&w->index);
    sorted_index_writer_free(&w->indexer);
    XXH3_freeState(w->hash);
    buf_free(&w->last);
    free(w);
    *wp = NULL;
}
