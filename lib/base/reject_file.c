#include "base/reject_file.h"

#include "base/io.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>

#define LOCK_POLL 1000000 /* nanoseconds */

static int close_and_fail(int fd)
{
    int saved = errno;
    io->close(fd);
    errno = saved;
    return -1;
}

/* Polls for the lock instead of blocking, because a caller with an event loop must not wait without a limit. */
static bool lock(int fd, usec_t end)
{
    bool locked = io->flock(fd, LOCK_EX | LOCK_NB) == 0;
    while (!locked && (errno == EWOULDBLOCK || errno == EINTR) && clock_monotonic() < end) {
        nanosleep(&(struct timespec){.tv_nsec = LOCK_POLL}, NULL);
        locked = io->flock(fd, LOCK_EX | LOCK_NB) == 0;
    }
    /* Some network file systems have no locks. */
    return locked || errno == ENOLCK || errno == EOPNOTSUPP || errno == ENOSYS;
}

/* Opens and locks the file; closing the file unlocks it. If another process has renamed the file meanwhile, opens the
 * new file at `path`. While the file is empty, each call syncs the directory, so that the file's name is durable. */
static int open_file(const char *path, struct stat *st)
{
    usec_t end = clock_monotonic() + REJECT_FILE_LOCK_WAIT_MAX;
    for (;;) {
        struct stat named;
        int fd = io->open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, IO_PRIVATE_MODE);
        if (fd < 0)
            return -1;
        if (!lock(fd, end) || fstat(fd, st) != 0)
            return close_and_fail(fd);
        if (!S_ISREG(st->st_mode)) {
            errno = EINVAL;
            return close_and_fail(fd);
        }
        if (stat(path, &named) != 0 || named.st_ino != st->st_ino || named.st_dev != st->st_dev) {
            io->close(fd);
            continue;
        }
        return st->st_size == 0 && io_sync_parent(path) != 0 ? close_and_fail(fd) : fd;
    }
}

static usec_t age_since(int64_t seconds)
{
    return clock_wall() - seconds * USEC_PER_SEC;
}

/* The time since the file was created, or since its last line if the file system does not record creation times. */
static usec_t age_of(int fd, const struct stat *st)
{
    struct statx x;
    bool is_known = statx(fd, "", AT_EMPTY_PATH, STATX_BTIME, &x) == 0 && (x.stx_mask & STATX_BTIME);
    return age_since(is_known ? x.stx_btime.tv_sec : st->st_mtim.tv_sec);
}

/* Makes room for a line: deletes PATH.1 if it is too old, and renames the file if it is too large or too old. Returns
 * 1 if the file was renamed, 0 if not, or -1 with errno. */
static int roll(const struct reject_file *f, int fd, const struct stat *st, size_t more, bool *expired)
{
    char former[PATH_MAX];
    struct stat old;
    bool is_large = f->max_bytes > 0 && (uint64_t)st->st_size + more > f->max_bytes / 2;
    snprintf(former, sizeof former, "%s.1", f->path);
    bool exists = stat(former, &old) == 0;
    if (exists && f->max_age > 0 && age_since(old.st_mtim.tv_sec) > f->max_age / 2) {
        if (io->unlink(former) != 0)
            return -1;
        *expired = true;
        exists = false;
    }
    if (st->st_size == 0 || !(is_large || (f->max_age > 0 && age_of(fd, st) > f->max_age / 2)))
        return 0;
    *expired = *expired || exists;
    return io->rename(f->path, former) == 0 && io_sync_parent(f->path) == 0 ? 1 : -1;
}

int reject_file_make(const struct reject_file *f)
{
    struct stat st;
    int fd = open_file(f->path, &st);
    if (fd < 0)
        return -1;
    io->close(fd);
    return 0;
}

static int add(int fd, off_t length, struct bytes line)
{
    char last;
    struct buf text = {0};
    if (length > 0 && io->pread(fd, &last, 1, length - 1) == 1 && last != '\n')
        buf_append_char(&text, '\n'); /* ends a torn line */
    buf_append_bytes(&text, line);
    buf_append_char(&text, '\n');
    int rc = io_write_all(fd, text.ptr, text.len, length);
    if (rc == 0)
        rc = io->fdatasync(fd);
    int saved = errno;
    if (rc != 0)
        (void)io->ftruncate(fd, length);
    buf_free(&text);
    errno = saved;
    return rc;
}

int reject_file_add(const struct reject_file *f, struct bytes line, bool *expired)
{
    struct stat st;
    int fd = open_file(f->path, &st);
    *expired = false;
    int rolled = fd < 0 ? -1 : roll(f, fd, &st, line.len + 1, expired);
    if (rolled > 0) {
        io->close(fd);
        fd = open_file(f->path, &st);
    }
    if (fd < 0)
        return -1;
    if (rolled < 0 || add(fd, st.st_size, line) != 0)
        return close_and_fail(fd);
    io->close(fd);
    return 0;
}
