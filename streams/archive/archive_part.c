#include "streams/archive/archive_part.h"

#include "base/io.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

struct archive_part *archive_part_new(const char *name, const char *staged, uint64_t first)
{
    struct archive_part *p = mem_zalloc(sizeof *p);
    p->state.name = mem_strdup(name);
    p->state.staged = mem_strdup(staged);
    p->state.first = p->state.end = first;
    p->fd = -1;
    return p;
}

void archive_part_free(struct archive_part **pp)
{
    struct archive_part *p = *pp;
    if (!p)
        return;
    if (p->fd >= 0)
        io->close(p->fd);
    buf_free(&p->pending);
    free(p->taken.at);
    free(p->shortage);
    archive_file_state_free(&p->state);
    free(p);
    *pp = NULL;
}

void archive_part_close(struct archive_part *p)
{
    assert(!p->unsynced && !p->syncing && archive_part_unwritten(p) == 0);
    if (p->fd >= 0)
        io->close(p->fd);
    p->fd = -1;
}

static struct iovec part_of(struct bytes b)
{
    return (struct iovec){(char *)(uintptr_t)b.ptr, b.len};
}

void archive_part_take(struct archive_part *p, struct bytes lines, uint64_t n, uint64_t end)
{
    struct archive_pieces *pieces = &p->taken;
    struct iovec *last = pieces->n > 0 ? &pieces->at[pieces->n] : NULL;
    pieces->bytes += lines.len;
    if (last && (char *)last->iov_base + last->iov_len == lines.ptr) {
        last->iov_len += lines.len; /* the lines follow the last piece in memory */
    } else {
        ARRAY_ROOM(pieces->at, pieces->room, pieces->n + 2);
        pieces->at[++pieces->n] = part_of(lines);
    }
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

/* Opens the staged file. Before the first write, also creates the target directory. */
static int open_file(struct archive_part *p, struct error *error)
{
    char directory[PATH_MAX];
    struct stat staged, target;
    p->fd = io->open(p->state.staged, O_RDWR | (p->created ? 0 : O_CREAT | O_TRUNC) | O_CLOEXEC, 0666);
    if (p->fd < 0)
        return error_errno(error, -1, p->state.staged);
    if (p->created)
        return 0;
    io_parent_of(p->state.name, directory);
    bool found = io_make_dirs(directory) == 0 && fstat(p->fd, &staged) == 0 && stat(directory, &target) == 0;
    /* Publishing renames the file, and a rename between two file systems is impossible. */
    if (found && staged.st_dev == target.st_dev) {
        p->created = p->unsynced_name = true;
        return 0;
    }
    int saved = found ? EXDEV : errno;
    io->close(p->fd);
    p->fd = -1;
    errno = saved;
    return error_errno(error, -1, directory);
}

int archive_part_write(struct archive_part *p, struct error *error)
{
    struct archive_pieces *t = &p->taken;
    bool kept = p->pending.len > 0;
    if (archive_part_unwritten(p) == 0)
        return 0;
    if (kept && t->n > 0)
        t->at[0] = part_of(buf_bytes(&p->pending));
    int rc = p->fd >= 0 ? 0 : open_file(p, error);
    if (rc == 0) {
        rc = t->n == 0 ? io_write_all(p->fd, p->pending.ptr, p->pending.len, (off_t)p->written)
                       : io_write_parts(p->fd, kept ? t->at : t->at + 1, t->n + kept, (off_t)p->written);
        rc = rc == 0 ? 0 : error_errno(error, -1, p->state.staged);
    }
    if (rc != 0) {
        int saved = errno;
        archive_part_keep(p);
        errno = saved;
        return -1;
    }
    p->unsynced = true;
    p->written += archive_part_unwritten(p);
    buf_free(&p->pending);
    t->n = t->bytes = 0;
    return 0;
}

/* Truncates the staged file to its length in the state. Closes the file, so that the recovery of many files needs few
 * descriptors. */
static int cut_back(struct archive_part *p, struct error *error)
{
    const char *path = p->state.staged;
    struct stat st;
    p->fd = io->open(path, O_RDWR | O_CLOEXEC, 0);
    /* The directory is synced, because the earlier process may have been killed before its sync of the directory. */
    if (p->fd < 0 || fstat(p->fd, &st) != 0 || io_sync_parent(path) != 0)
        return error_errno(error, -1, path);
    if ((uint64_t)st.st_size < p->state.length)
        return error_set(error, -1, "%s: the file has %lld bytes, but %llu bytes were written", path,
            (long long)st.st_size, (unsigned long long)p->state.length);
    if (io->ftruncate(p->fd, (off_t)p->state.length) != 0)
        return error_errno(error, -1, path);
    archive_part_close(p);
    return 0;
}

struct archive_part *archive_part_recover(const struct archive_file_state *state, struct error *error)
{
    struct archive_part *p = mem_zalloc(sizeof *p);
    p->state = archive_file_state_copy(state);
    p->fd = -1;
    p->written = state->length;
    p->created = p->tried = true;
    p->stage = state->finishing ? PART_SETTLED : PART_OPEN;
    if (!state->finishing && cut_back(p, error) != 0)
        archive_part_free(&p);
    return p;
}
