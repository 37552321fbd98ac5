#include "base/reject_file.h"

#include "base/io.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>

#define LOCK_POLL 1000000 /* nanoseconds */

/* Opens the file and locks it; close unlocks it. The function polls for the lock instead of blocking, because a
 * caller with an event loop must not wait without a bound. As long as the file is empty, each call syncs the
 * directory, so that the file's name is durable. */
static int open_file(const char *path, off_t *length)
{
    struct stat st;
    int fd = io->open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, IO_PRIVATE_MODE);
    if (fd < 0)
        return -1;
    usec_t end = clock_monotonic() + REJECT_FILE_LOCK_WAIT_MAX;
    bool locked = io->flock(fd, LOCK_EX | LOCK_NB) == 0;
    while (!locked && (errno == EWOULDBLOCK || errno == EINTR) && clock_monotonic() < end) {
        nanosleep(&(struct timespec){.tv_nsec = LOCK_POLL}, NULL);
        locked = io->flock(fd, LOCK_EX | LOCK_NB) == 0;
    }
    if (!locked) /* some network file systems have no locks */
        locked = errno == ENOLCK || errno == EOPNOTSUPP || errno == ENOSYS;
    if (!locked || fstat(fd, &st) != 0 || (st.st_size == 0 && io_sync_parent(path) != 0)) {
        int saved = errno;
        io->close(fd);
        errno = saved;
        return -1;
    }
    *length = st.st_size;
    return fd;
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
    char last;
    int fd = open_file(path, &length);
    if (fd < 0)
        return -1;
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
    io->close(fd);
    buf_free(&text);
    errno = saved;
    return rc;
}
