#include "base/reject_file.h"

#include "base/io.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>

#define LOCK_POLL 1000000 /* nanoseconds */

static void close_keeping_errno(int fd)
{
    int system = errno;
    io->close(fd);
    errno = system;
}

/* Some network file systems have no locks. */
static bool has_no_locks(int error)
{
    return error == ENOLCK || error == EOPNOTSUPP || error == ENOSYS;
}

/* Locks the file until it is closed. Polls, because a caller with an event loop must not wait without a bound. */
static int lock_file(int fd)
{
    usec_t end = clock_monotonic() + REJECT_FILE_LOCK_WAIT_MAX;
    while (io->flock(fd, LOCK_EX | LOCK_NB) != 0) {
        if (has_no_locks(errno))
            return 0;
        if ((errno != EWOULDBLOCK && errno != EINTR) || clock_monotonic() >= end)
            return -1;
        nanosleep(&(struct timespec){.tv_nsec = LOCK_POLL}, NULL);
    }
    return 0;
}

/* While the file is empty, each call syncs its directory, so that its name is durable. */
static int open_file(const char *path, off_t *length)
{
    struct stat st;
    int fd = io->open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, IO_PRIVATE_MODE);
    if (fd < 0)
        return -1;
    if (lock_file(fd) != 0 || fstat(fd, &st) != 0 || (st.st_size == 0 && io_sync_parent(path) != 0)) {
        close_keeping_errno(fd);
        return -1;
    }
    *length = st.st_size;
    return fd;
}

static bool is_torn(int fd, off_t length)
{
    char last;
    return length > 0 && io->pread(fd, &last, 1, length - 1) == 1 && last != '\n';
}

static int append(int fd, struct bytes line, off_t length)
{
    struct buf text = {0};
    if (is_torn(fd, length))
        buf_append_char(&text, '\n');
    buf_append_bytes(&text, line);
    buf_append_char(&text, '\n');
    int rc = io_write_all(fd, text.ptr, text.len, length);
    if (rc == 0)
        rc = io->fdatasync(fd);
    int system = errno;
    if (rc != 0)
        (void)io->ftruncate(fd, length);
    errno = system;
    buf_free(&text);
    return rc;
}

int reject_file_make(const char *path)
{
    off_t length;
    int fd = open_file(path, &length);
    if (fd < 0)
        return -1;
    io->close(fd);
    return 0;
}

int reject_file_add(const char *path, struct bytes line)
{
    off_t length;
    int fd = open_file(path, &length);
    if (fd < 0)
        return -1;
    int rc = append(fd, line, length);
    close_keeping_errno(fd);
    return rc;
}
