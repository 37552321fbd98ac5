#include "journal/journal_dir.h"

#include "base/io.h"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <time.h>

#define LOCK_POLL (10 * USEC_PER_MSEC)

usec_t journal_lock_timeout = USEC_PER_SEC;

/* Some network file systems lock no directories. */
static bool is_lockless(int system)
{
    return system == EBADF || system == EINVAL || system == EOPNOTSUPP || system == ENOSYS;
}

/* A process killed a moment ago may still hold the lock. */
static int lock(int fd)
{
    usec_t due = clock_monotonic() + journal_lock_timeout;
    while (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        if (errno != EINTR && (errno != EWOULDBLOCK || clock_monotonic() >= due))
            return -1;
        nanosleep(&(struct timespec){.tv_nsec = LOCK_POLL * 1000}, NULL);
    }
    return 0;
}

int journal_dir_lock(const char *dir)
{
    int fd = io->open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    if (fd < 0 || lock(fd) == 0)
        return fd;
    if (is_lockless(errno)) {
        log_warn(
            "this file system cannot lock directories; only the daemon's own lock keeps other processes out",
            LOG_S("path", dir));
        return fd;
    }
    int saved = errno;
    io->close(fd);
    errno = saved;
    return -1;
}
