#include "archive_part.h"

#include "archive_finish.h"
#include "io.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

struct archive_part *archive_part_new(const char *name, const char *period, uint64_t first)
{
    struct archive_part *p = mem_zalloc(sizeof *p);
    p->state.name = mem_strdup(name);
    p->state.period = mem_strdup(period);
    p->state.first = p->state.end = first;
    p->fd = -1;
    return p;
}

void archive_part_free(struct archive_part **pp)
{
    struct archive_part *p = *pp;
    if (p == NULL)
        return;
    if (p->fd >= 0)
        io->close(p->fd);
    buf_free(&p->pending);
    free(p->taken.at);
    archive_file_state_free(&p->state);
    free(p);
    *pp = NULL;
}

static int fail(char *error, const char *path)
{
    int saved = errno;
    snprintf(error, ARCHIVE_ERROR_TEXT, "%s: %s", path, strerror(saved));
    errno = saved;
    return -1;
}

/* What continues the last piece is not another. */
static void add_piece(struct archive_pieces *pieces, struct bytes lines)
{
    struct bytes *last = pieces->n > 0 ? &pieces->at[pieces->n - 1] : NULL;
    pieces->bytes += lines.len;
    if (last != NULL && last->ptr + last->len == lines.ptr) {
        last->len += lines.len;
        return;
    }
    if (pieces->n == pieces->room) {
        pieces->room = 2 * pieces->room + 16;
        pieces->at = mem_realloc(pieces->at, pieces->room * sizeof *pieces->at);
    }
    pieces->at[pieces->n++] = lines;
}

void archive_part_take(struct archive_part *p, struct bytes lines, uint64_t n, uint64_t end)
{
    add_piece(&p->taken, lines);
    p->state.length += lines.len;
    p->state.lines += n;
    p->state.end = end;
}

static void append_taken(struct archive_part *p, struct buf *out)
{
    for (size_t i = 0; i < p->taken.n; i++)
        buf_append_bytes(out, p->taken.at[i]);
}

void archive_part_keep(struct archive_part *p)
{
    append_taken(p, &p->pending);
    p->taken.n = p->taken.bytes = 0;
}

size_t archive_part_unwritten(const struct archive_part *p)
{
    return p->pending.len + p->taken.bytes;
}

static int make_directory(const char *path)
{
    const char *slash = strrchr(path, '/');
    if (slash == NULL || slash == path)
        return io_sync_dir(slash == NULL ? "." : "/");
    char *directory = bytes_dup(bytes_of(path, (size_t)(slash - path)));
    int rc = io_make_dirs(directory);
    free(directory);
    return rc;
}

static int make_file(struct archive_part *p, char *error)
{
    struct buf path = {0};
    archive_part_path(p->state.name, &path);
    int rc = make_directory(path.ptr);
    int fd = rc == 0 ? io->open(path.ptr, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666) : -1;
    if (fd < 0 || io_sync_parent(path.ptr) != 0) {
        rc = fail(error, path.ptr);
        if (fd >= 0)
            io->close(fd);
    } else {
        p->fd = fd;
    }
    buf_free(&path);
    return rc;
}

static int write_at_end(struct archive_part *p, struct bytes lines, char *error)
{
    if (p->fd < 0 && make_file(p, error) != 0)
        return -1;
    if (io_write_all(p->fd, lines.ptr, lines.len, (off_t)p->written) != 0)
        return fail(error, p->state.name);
    p->written += lines.len;
    p->unsynced = true;
    return 0;
}

static int write_pending(struct archive_part *p, char *error)
{
    if (p->pending.len > 0 && write_at_end(p, buf_bytes(&p->pending), error) != 0)
        return -1;
    buf_clear(&p->pending);
    return 0;
}

static int write_taken(struct archive_part *p, struct buf *room, char *error)
{
    if (p->taken.n == 0)
        return 0;
    buf_clear(room);
    if (p->taken.n > 1)
        append_taken(p, room);
    if (write_at_end(p, p->taken.n > 1 ? buf_bytes(room) : p->taken.at[0], error) != 0)
        return -1;
    p->taken.n = p->taken.bytes = 0;
    return 0;
}

int archive_part_write(struct archive_part *p, struct buf *room, char error[ARCHIVE_ERROR_TEXT])
{
    if (!p->named)
        return 0;
    if (write_pending(p, error) == 0 && write_taken(p, room, error) == 0)
        return 0;
    int saved = errno;
    archive_part_keep(p);
    errno = saved;
    return -1;
}

static int cut_back(struct archive_part *p, const char *path, char *error)
{
    struct stat st;
    p->fd = io->open(path, O_RDWR | O_CLOEXEC, 0);
    /* It was named, and the crash came before it was made. */
    if (p->fd < 0 && errno == ENOENT && p->state.length == 0)
        return 0;
    /* Perhaps it was made by a life that was killed before the name was durable. */
    if (p->fd < 0 || fstat(p->fd, &st) != 0 || io_sync_parent(path) != 0)
        return fail(error, path);
    if ((uint64_t)st.st_size < p->state.length) {
        snprintf(error, ARCHIVE_ERROR_TEXT, "%s: it has %lld bytes, and %llu were written to it", path,
            (long long)st.st_size, (unsigned long long)p->state.length);
        return -1;
    }
    return io->ftruncate(p->fd, (off_t)p->state.length) == 0 ? 0 : fail(error, path);
}

struct archive_part *archive_part_recover(
    const struct archive_file_state *state, char error[ARCHIVE_ERROR_TEXT])
{
    struct archive_part *p = mem_zalloc(sizeof *p);
    struct buf path = {0};
    int rc = 0;
    p->state = archive_file_state_copy(state);
    p->fd = -1;
    p->named = true;
    p->written = state->length;
    p->stage = state->finishing ? PART_SETTLED : PART_OPEN;
    archive_part_path(state->name, &path);
    if (p->stage == PART_OPEN)
        rc = cut_back(p, path.ptr, error);
    buf_free(&path);
    if (rc != 0)
        archive_part_free(&p);
    return p;
}
