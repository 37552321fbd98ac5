/* Whose a journal's directory is: one opener's at a time. The lock is the directory's own, so nothing is left lying there,
 * and the kernel gives it back however its holder ends. */
#include "journal/journal_internal.h"

#include "base/io.h"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <time.h>

#define LOCK_POLL (10 * USEC_PER_MSEC)

usec_t journal_lock_timeout = USEC_PER_SEC;

/* Some file systems, most over a network, lock no directories. */
static bool is_lockless(int system)
{
    return system == EBADF || system == EINVAL || system == EOPNOTSUPP || system == ENOSYS;
}

/* Who was killed a moment ago may still be closing its files. */
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
        log_warn("this file system locks no directories: nothing but the daemon's own lock keeps others out",
            LOG_S("dir", dir));
        return fd;
    }
    int saved = errno;
    io->close(fd);
    errno = saved;
    return -1;
}

int journal_dir_sync(const struct journal *j)
{
    return io->fsync(j->dir_fd);
}
