/* iolog: linked into a test's own build of a daemon, it puts a table before lib/base/io.h that does each operation and, when
 * MILLRACE_IO_LOG names a file, writes it down there. power_cut.py rebuilds from the log what a power cut at any place
 * would have left. The journals believe in another boot of the machine than the one that is. MILLRACE_IO_KILL=N kills the
 * program right behind its Nth record, MILLRACE_IO_KILL=.gz behind the first time that a path that ends so is made or renamed
 * to: then nothing was done that the log does not have, and the log of the next life goes on behind it.
 * MILLRACE_IO_FAIL=FILE: while FILE is there, a sync of a path that has FILE's text in it fails, and syncs nothing.
 *
 * A record is: operation (1 byte), a number (8), the lengths of path and data (4 each), path, data; little-endian. A
 * sync has two, when it begins and when it has succeeded: only what stands before the first is safe after the second. */
#include "base/bytes.h"
#include "base/io.h"
#include "journal/journal_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define FDS 65536

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct io_ops table;
static char *paths[FDS];
static int log_fd = -1;
static uint64_t serial, notes, kill_at;
static char *kill_name, *fail_file;

static bool is_the_end(char operation, struct bytes path, struct bytes data)
{
    struct bytes fresh = operation == 'O' ? path : operation == 'R' ? data : BYTES_NONE;
    size_t n = kill_name ? strlen(kill_name) : 0;
    return ++notes == kill_at ||
           (n > 0 && fresh.len >= n && memcmp(fresh.ptr + fresh.len - n, kill_name, n) == 0);
}

/* Under the lock: one write, so that a log that ends in a whole record is the rule. */
static void note(char operation, uint64_t number, const char *path, const void *data, size_t n)
{
    int saved = errno;
    char head[17] = {operation};
    uint32_t path_length = (uint32_t)strlen(path), data_length = (uint32_t)n;
    memcpy(head + 1, &number, 8);
    memcpy(head + 9, &path_length, 4);
    memcpy(head + 13, &data_length, 4);
    struct bytes parts[] = {bytes_of(head, sizeof head), bytes_str(path), bytes_of(data, n)};
    struct buf whole = {0};
    for (int i = 0; i < 3; i++)
        buf_append_bytes(&whole, parts[i]);
    if (write(log_fd, whole.ptr, whole.len) != (ssize_t)whole.len)
        abort();
    buf_free(&whole);
    if (is_the_end(operation, parts[1], parts[2]))
        kill(getpid(), SIGKILL);
    errno = saved;
}

static int logged_open(const char *path, int flags, mode_t mode)
{
    pthread_mutex_lock(&lock);
    bool is_new = (flags & O_CREAT) && access(path, F_OK) != 0;
    int fd = open(path, flags, mode);
    if (fd >= FDS)
        abort();
    if (fd >= 0) {
        free(paths[fd]);
        paths[fd] = mem_strdup(path);
        if (is_new)
            note('O', 0, path, NULL, 0);
        else if (flags & O_TRUNC)
            note('T', 0, path, NULL, 0);
    }
    pthread_mutex_unlock(&lock);
    return fd;
}

static ssize_t logged_pwrite(int fd, const void *p, size_t n, off_t at)
{
    pthread_mutex_lock(&lock);
    ssize_t did = pwrite(fd, p, n, at);
    if (did > 0)
        note('W', (uint64_t)at, paths[fd], p, (size_t)did);
    pthread_mutex_unlock(&lock);
    return did;
}

static ssize_t logged_pwritev(int fd, const struct iovec *parts, int n, off_t at)
{
    struct buf all = {0};
    for (int i = 0; i < n; i++)
        buf_append(&all, parts[i].iov_base, parts[i].iov_len);
    ssize_t did = logged_pwrite(fd, all.ptr, all.len, at);
    buf_free(&all);
    return did;
}

/* Under the lock. */
static bool is_to_fail(const char *path)
{
    char text[256];
    int fd = fail_file ? open(fail_file, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0)
        return false;
    ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    text[n > 0 ? n : 0] = '\0';
    return strstr(path, text) != NULL;
}

static int logged_sync(int fd, int (*sync)(int))
{
    pthread_mutex_lock(&lock);
    uint64_t number = ++serial;
    note('S', number, paths[fd], NULL, 0);
    bool refused = is_to_fail(paths[fd]);
    pthread_mutex_unlock(&lock);
    if (refused) {
        errno = EIO;
        return -1;
    }
    int failed = sync(fd);
    if (!failed) {
        pthread_mutex_lock(&lock);
        note('E', number, paths[fd], NULL, 0);
        pthread_mutex_unlock(&lock);
    }
    return failed;
}

static int logged_fdatasync(int fd)
{
    return logged_sync(fd, fdatasync);
}

static int logged_fsync(int fd)
{
    return logged_sync(fd, fsync);
}

static int logged_ftruncate(int fd, off_t length)
{
    pthread_mutex_lock(&lock);
    int failed = ftruncate(fd, length);
    if (!failed)
        note('T', (uint64_t)length, paths[fd], NULL, 0);
    pthread_mutex_unlock(&lock);
    return failed;
}

static int logged_fallocate(int fd, int mode, off_t at, off_t length)
{
    struct stat st;
    pthread_mutex_lock(&lock);
    int failed = fallocate(fd, mode, at, length);
    if (!failed && fstat(fd, &st) == 0)
        note('T', (uint64_t)st.st_size, paths[fd], NULL, 0);
    pthread_mutex_unlock(&lock);
    return failed;
}

static void rename_paths(const char *from, const char *to)
{
    for (int fd = 0; fd < FDS; fd++)
        if (paths[fd] && strcmp(paths[fd], from) == 0) {
            free(paths[fd]);
            paths[fd] = mem_strdup(to);
        }
}

static int log_rename(const char *from, const char *to, int (*do_rename)(const char *, const char *))
{
    pthread_mutex_lock(&lock);
    int failed = do_rename(from, to);
    if (!failed) {
        note('R', 0, from, to, strlen(to));
        rename_paths(from, to);
    }
    pthread_mutex_unlock(&lock);
    return failed;
}

static int logged_rename(const char *from, const char *to)
{
    return log_rename(from, to, rename);
}

static int logged_rename_new(const char *from, const char *to)
{
    return log_rename(from, to, io_system.rename_new);
}

static int logged_unlink(const char *path)
{
    pthread_mutex_lock(&lock);
    int failed = unlink(path);
    if (!failed)
        note('U', 0, path, NULL, 0);
    pthread_mutex_unlock(&lock);
    return failed;
}

static int logged_mkdir(const char *path, mode_t mode)
{
    pthread_mutex_lock(&lock);
    int failed = mkdir(path, mode);
    if (!failed)
        note('M', 0, path, NULL, 0);
    pthread_mutex_unlock(&lock);
    return failed;
}

/* Not in every program that is linked with this. */
#pragma weak journal_boot_id

/* What is rebuilt is read under another boot than it was written: the cut took the page cache along. */
static void boot_before(uint8_t out[16])
{
    memset(out, 0x5a, 16);
}

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("MILLRACE_IO_LOG");
    if (!path)
        return;
    log_fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (log_fd < 0)
        abort();
    const char *end = getenv("MILLRACE_IO_KILL");
    if (end && *end == '.')
        kill_name = mem_strdup(end);
    else if (end)
        kill_at = strtoull(end, NULL, 10);
    if (getenv("MILLRACE_IO_FAIL"))
        fail_file = mem_strdup(getenv("MILLRACE_IO_FAIL"));
    unsetenv("MILLRACE_IO_LOG");
    table = io_system;
    table.open = logged_open;
    table.pwrite = logged_pwrite;
    table.pwritev = logged_pwritev;
    table.fdatasync = logged_fdatasync;
    table.fsync = logged_fsync;
    table.ftruncate = logged_ftruncate;
    table.fallocate = logged_fallocate;
    table.rename = logged_rename;
    table.rename_new = logged_rename_new;
    table.unlink = logged_unlink;
    table.mkdir = logged_mkdir;
    io = &table;
    if (&journal_boot_id)
        journal_boot_id = boot_before;
}
