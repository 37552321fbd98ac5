#include "daemon/daemon_directory.h"
#include "base/bytes.h"
#include "base/io.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sysexits.h>
#include <time.h>
#include <unistd.h>

#define LOCK_WAIT_MS 15000 /* longer than the default drain_timeout */
#define LOCK_POLL_MS 20
#define LOCK_TRIES_MIN 3 /* daemon_directory_holder may hold the lock for a moment */

static int fail(struct error *error, int status, const char *what, const char *name)
{
    struct buf owner = {0};
    int why = errno;
    if (why == EACCES || why == EPERM)
        io_append_owner(name, &owner);
    error_set(error, status, "%s %s: %s%.*s", what, name, strerror(why), (int)owner.len,
        owner.len ? owner.ptr : "");
    buf_free(&owner);
    errno = why;
    return status;
}

int daemon_enter_directory(const char *dir, struct error *error)
{
    return dir && chdir(dir) != 0 ? fail(error, EX_CONFIG, "cannot enter the directory", dir) : 0;
}

static int own_lock = -1; /* descriptor of DIR/lock, open until the process ends */

int daemon_lock_directory(const char *dir, struct error *error)
{
    struct buf path = {0};
    char pid[32] = "";
    if (io_make_dirs(dir) != 0)
        return fail(error, -1, "cannot create the directory", dir);
    if (access(dir, W_OK | X_OK) != 0)
        return fail(error, -1, "cannot write in the directory", dir);
    buf_printf(&path, "%s/lock", dir);
    int fd = open(path.ptr, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, IO_PRIVATE_MODE);
    buf_free(&path);
    if (fd < 0)
        return fail(error, -1, "cannot write in the directory", dir);
    /* Under a service manager, the previous process of this daemon may hold the lock until that process ends. */
    int tries = getenv("NOTIFY_SOCKET") ? LOCK_WAIT_MS / LOCK_POLL_MS : LOCK_TRIES_MIN;
    while (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        if (--tries > 0) {
            nanosleep(&(struct timespec){.tv_nsec = LOCK_POLL_MS * 1000000L}, NULL);
            continue;
        }
        (void)!pread(fd, pid, sizeof pid - 1, 0);
        error_set(error, -1, "the directory %s is in use by process %.*s", dir, (int)strcspn(pid, "\n"), pid);
        close(fd);
        errno = EWOULDBLOCK;
        return -1;
    }
    /* The pid is written without io.h, because the pid need not be durable: no program reads the pid after a crash. */
    int n = snprintf(pid, sizeof pid, "%d\n", (int)getpid());
    ssize_t did = ftruncate(fd, 0) == 0 ? pwrite(fd, pid, (size_t)n, 0) : -1;
    if (did != n) {
        int why = did >= 0 ? ENOSPC : errno;
        errno = why;
        fail(error, -1, "cannot write in the directory", dir);
        close(fd);
        errno = why;
        return -1;
    }
    own_lock = fd;
    return 0;
}

int64_t daemon_directory_holder(const char *dir)
{
    char text[32] = "";
    uint64_t pid = 0;
    char *path = mem_printf("%s/lock", dir);
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    bool is_held = fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    ssize_t n = is_held ? pread(fd, text, sizeof text - 1, 0) : 0;
    bool is_pid = n > 0 && bytes_to_u64(bytes_of(text, strcspn(text, "\n")), &pid);
    if (fd >= 0)
        close(fd);
    free(path);
    return fd < 0 || (is_held && !is_pid) ? -1 : (int64_t)pid;
}

/* Returns the size of the disk with the locked directory, or its free bytes if `is_size` is NULL. */
static double disk_bytes(void *is_size)
{
    struct statvfs fs;
    if (fstatvfs(own_lock, &fs) != 0)
        return 0;
    return (double)fs.f_frsize * (double)(is_size ? fs.f_blocks : fs.f_bavail);
}

void daemon_directory_stats(struct stats *stats)
{
    if (own_lock < 0)
        return;
    stats_gauge(
        stats, "disk_free_bytes", NULL, "Free space on the disk of the data directory", disk_bytes, NULL);
    stats_gauge(
        stats, "disk_size_bytes", NULL, "Size of the disk of the data directory", disk_bytes, &own_lock);
}

bool daemon_holds_directory(const char *dir)
{
    struct stat ours, there;
    struct buf path = {0};
    buf_printf(&path, "%s/lock", dir);
    bool owns = fstat(own_lock, &ours) == 0 && stat(path.ptr, &there) == 0 && ours.st_dev == there.st_dev &&
                ours.st_ino == there.st_ino;
    buf_free(&path);
    return owns;
}
