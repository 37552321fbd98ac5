#include "streams/archive/archive_part.h"

#include "streams/archive/archive_finish.h"
#include "base/io.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
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
    free(p->lacks);
    archive_file_state_free(&p->state);
    free(p);
    *pp = NULL;
}

void archive_part_close(struct archive_part *p)
{
    assert(!p->unsynced && !p->syncing && !p->nameless && archive_part_unwritten(p) == 0);
    if (p->fd >= 0)
        io->close(p->fd);
    p->fd = -1;
}

static int fail(char *error, const char *path)
{
    int saved = errno;
    snprintf(error, ARCHIVE_ERROR_TEXT, "%s: %s", path, strerror(saved));
    errno = saved;
    return -1;
}

static struct iovec part_of(struct bytes b)
{
    return (struct iovec){(char *)(uintptr_t)b.ptr, b.len};
}

/* What continues the last piece is not another. */
static void add_piece(struct archive_pieces *pieces, struct bytes lines)
{
    struct iovec *last = pieces->n > 0 ? &pieces->at[pieces->n] : NULL;
    pieces->bytes += lines.len;
    if (last != NULL && (char *)last->iov_base + last->iov_len == lines.ptr) {
        last->iov_len += lines.len;
        return;
    }
    if (pieces->n + 1 >= pieces->room) {
        pieces->room = 2 * pieces->room + 16;
        pieces->at = mem_realloc(pieces->at, pieces->room * sizeof *pieces->at);
    }
    pieces->at[++pieces->n] = part_of(lines);
}

void archive_part_take(struct archive_part *p, struct bytes lines, uint64_t n, uint64_t end)
{
    add_piece(&p->taken, lines);
    p->state.length += lines.len;
    p->state.lines += n;
    p->state.end = end;
}

void archive_part_keep(struct archive_part *p)
{
    for (size_t i = 1; i <= p->taken.n; i++)
        buf_append(&p->pending, p->taken.at[i].iov_base, p->taken.at[i].iov_len);
    p->taken.n = p->taken.bytes = 0;
}

size_t archive_part_unwritten(const struct archive_part *p)
{
    return p->pending.len + p->taken.bytes;
}

static int make_directory(const char *path)
{
    char directory[PATH_MAX];
    io_parent_of(path, directory);
    return io_make_dirs(directory);
}

static int open_nameless(const char *path)
{
    char directory[PATH_MAX];
    io_parent_of(path, directory);
    int fd = io_open_nameless(directory, 0666);
    if (fd < 0 && errno == ENOENT && io_make_dirs(directory) == 0)
        fd = io_open_nameless(directory, 0666);
    return fd;
}

void archive_part_make_nameless(struct archive_part *p)
{
    assert(!p->named && p->fd < 0);
    p->fd = open_nameless(p->state.name);
    p->nameless = p->fd >= 0;
}

bool archive_part_has_file(const struct archive_part *p)
{
    return p->named || p->nameless;
}

static int open_new(const char *path)
{
    return io->open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
}

static int make_new(const char *path)
{
    int fd = open_new(path);
    return fd < 0 && errno == ENOENT && make_directory(path) == 0 ? open_new(path) : fd;
}

/* One that was made before is ours, and was cut back to its lines; a new one must not be there. */
static int open_file(struct archive_part *p, char *error)
{
    struct buf path = {0};
    bool is_new = !p->made;
    archive_part_path(p->state.name, &path);
    p->fd = is_new ? make_new(path.ptr) : io->open(path.ptr, O_RDWR | O_CLOEXEC, 0);
    int rc = p->fd >= 0 ? 0 : fail(error, path.ptr);
    p->unsynced_name = p->unsynced_name || (is_new && rc == 0);
    p->made = p->fd >= 0;
    buf_free(&path);
    return rc;
}

static int copy_written(const struct archive_part *p, int to)
{
    struct buf step = {0};
    ssize_t n = 1;
    buf_reserve(&step, ARCHIVE_PART_BUFFER);
    for (uint64_t at = 0; n > 0 && at < p->written; at += (uint64_t)n) {
        uint64_t left = p->written - at;
        n = io->pread(p->fd, step.ptr, left < ARCHIVE_PART_BUFFER ? left : ARCHIVE_PART_BUFFER, (off_t)at);
        if (n > 0 && io_write_all(to, step.ptr, (size_t)n, (off_t)at) != 0)
            n = -1;
    }
    int saved = errno;
    buf_free(&step);
    errno = n == 0 ? EIO : saved;
    return n > 0 ? 0 : -1;
}

/* Where a file without a name may not get one. */
static int copy_into_named(struct archive_part *p, const char *path)
{
    int fd = make_new(path), rc = fd >= 0 ? copy_written(p, fd) : -1, saved = errno;
    if (fd >= 0)
        io->close(rc == 0 ? p->fd : fd);
    if (fd >= 0 && rc != 0)
        io->unlink(path);
    p->fd = rc == 0 ? fd : p->fd;
    errno = saved;
    return rc;
}

/* The next commit is to sync it, and the directory, before its state says that lines are there. */
static int give_name(struct archive_part *p, char *error)
{
    struct buf path = {0};
    archive_part_path(p->state.name, &path);
    bool done = io->name(p->fd, path.ptr) == 0;
    if (!done && errno != EEXIST && !archive_is_want(errno))
        done = copy_into_named(p, path.ptr) == 0;
    int rc = done ? 0 : fail(error, path.ptr);
    if (rc == 0) {
        p->nameless = false;
        p->made = true;
        p->unsynced = p->unsynced_name = true;
    }
    buf_free(&path);
    return rc;
}

static int write_pieces(struct archive_part *p)
{
    struct archive_pieces *t = &p->taken;
    bool kept = p->pending.len > 0;
    if (t->n == 0)
        return io_write_all(p->fd, p->pending.ptr, p->pending.len, (off_t)p->written);
    if (kept)
        t->at[0] = part_of(buf_bytes(&p->pending));
    return io_write_parts(p->fd, kept ? t->at : t->at + 1, t->n + kept, (off_t)p->written);
}

static int write_unwritten(struct archive_part *p, char *error)
{
    if (p->fd < 0 && open_file(p, error) != 0)
        return -1;
    if (write_pieces(p) != 0)
        return fail(error, p->state.name);
    p->unsynced = true;
    p->written += archive_part_unwritten(p);
    buf_free(&p->pending);
    p->taken.n = p->taken.bytes = 0;
    return 0;
}

int archive_part_write(struct archive_part *p, char error[ARCHIVE_ERROR_TEXT])
{
    bool is_due = p->named && p->nameless;
    if ((!is_due || give_name(p, error) == 0) &&
        (!archive_part_has_file(p) || archive_part_unwritten(p) == 0 || write_unwritten(p, error) == 0))
        return 0;
    int saved = errno;
    archive_part_keep(p);
    errno = saved;
    return -1;
}

static int cut_open_file(struct archive_part *p, const char *path, char *error)
{
    struct stat st;
    /* Perhaps it was made by a life that was killed before the name was durable. */
    if (fstat(p->fd, &st) != 0 || io_sync_parent(path) != 0)
        return fail(error, path);
    if ((uint64_t)st.st_size < p->state.length) {
        snprintf(error, ARCHIVE_ERROR_TEXT, "%s: it has %lld bytes, and %llu were written to it", path,
            (long long)st.st_size, (unsigned long long)p->state.length);
        return -1;
    }
    return io->ftruncate(p->fd, (off_t)p->state.length) == 0 ? 0 : fail(error, path);
}

/* It is opened again by the next write, so that a state of many files needs no more descriptors than were there for them. */
static int cut_back(struct archive_part *p, const char *path, char *error)
{
    p->fd = io->open(path, O_RDWR | O_CLOEXEC, 0);
    /* It was named, and the crash came before it was made. */
    if (p->fd < 0 && errno == ENOENT && p->state.length == 0)
        return 0;
    int rc = p->fd >= 0 ? cut_open_file(p, path, error) : fail(error, path);
    p->made = rc == 0;
    if (rc == 0)
        archive_part_close(p);
    return rc;
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
    p->tried = true;
    archive_part_path(state->name, &path);
    if (p->stage == PART_OPEN)
        rc = cut_back(p, path.ptr, error);
    buf_free(&path);
    if (rc != 0)
        archive_part_free(&p);
    return p;
}
