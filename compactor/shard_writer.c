#include "compactor/shard_writer.h"

#include "base/io.h"
#include "base/xxh3.h"
#include <fcntl.h>
#include <stdlib.h>

#define WRITE_BYTES (256u << 10)

struct shard_writer {
    int fd;
    char *path;
    struct manifest_file file; /* written so far, without the buffer */
    struct buf data;
    XXH3_state_t *hash;
};

enum compact_result shard_writer_open(const char *directory, uint32_t shard, uint32_t shards,
    struct shard_writer **out, char error[COMPACT_ERROR_TEXT])
{
    struct shard_writer *w = mem_zalloc(sizeof(*w));
    struct buf path = {0};
    manifest_file_name(MANIFEST_RECORDS, shard, shards, w->file.name);
    buf_printf(&path, "%s/%s", directory, w->file.name);
    w->path = path.ptr;
    w->hash = XXH3_createState();
    XXH3_64bits_reset(w->hash);
    buf_reserve(&w->data, WRITE_BYTES);
    w->fd = io->open(w->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (w->fd >= 0) {
        *out = w;
        return COMPACT_OK;
    }
    compact_fail_errno(error, w->path);
    shard_writer_close(&w);
    return COMPACT_FAILED;
}

static enum compact_result write_out(struct shard_writer *w, char error[COMPACT_ERROR_TEXT])
{
    if (io_write_all(w->fd, w->data.ptr, w->data.len, (off_t)w->file.bytes) != 0)
        return compact_fail_errno(error, w->path);
    XXH3_64bits_update(w->hash, w->data.ptr, w->data.len);
    w->file.bytes += w->data.len;
    buf_clear(&w->data);
    return COMPACT_OK;
}

enum compact_result shard_writer_add(
    struct shard_writer *w, struct bytes text, char error[COMPACT_ERROR_TEXT])
{
    buf_append_bytes(&w->data, text);
    buf_append_char(&w->data, '\n');
    w->file.records++;
    return w->data.len < WRITE_BYTES ? COMPACT_OK : write_out(w, error);
}

enum compact_result shard_writer_finish(
    struct shard_writer *w, struct manifest_file *file, char error[COMPACT_ERROR_TEXT])
{
    enum compact_result r = w->data.len ? write_out(w, error) : COMPACT_OK;
    if (r != COMPACT_OK)
        return r;
    if (io->fsync(w->fd) != 0)
        return compact_fail_errno(error, w->path);
    w->file.xxh3 = XXH3_64bits_digest(w->hash);
    *file = w->file;
    return COMPACT_OK;
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
    free(w->path);
    free(w);
    *wp = NULL;
}
