#include "base/io.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pwd.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define READ_STEP ((size_t)64 << 10)

static int system_open(const char *path, int flags, mode_t mode)
{
    return open(path, flags, mode);
}

/* On a file system without RENAME_NOREPLACE, the function first checks that `to` does not exist and then renames. The
 * caller ensures that no other process creates `to` between the check and the rename. */
static int system_rename_new(const char *from, const char *to)
{
    struct stat st;
    if (renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE) == 0)
        return 0;
    if (errno != EINVAL && errno != ENOSYS)
        return -1;
    if (lstat(to, &st) != 0)
        return errno == ENOENT ? rename(from, to) : -1;
    errno = EEXIST;
    return -1;
}

const struct io_ops io_system = {
    .open = system_open,
    .pread = pread,
    .pwrite = pwrite,
    .pwritev = pwritev,
    .fdatasync = fdatasync,
    .fsync = fsync,
    .ftruncate = ftruncate,
    .fallocate = fallocate,
    .rename = rename,
    .rename_new = system_rename_new,
    .unlink = unlink,
    .symlink = symlink,
    .link = link,
    .mkdir = mkdir,
    .close = close,
    .flock = flock,
};

const struct io_ops *io = &io_system;

/* Returns 0 if the write wrote some bytes, 1 if a signal interrupted the write, and -1 with errno if the write
 * failed. */
static int judge_write(ssize_t did)
{
    if (did < 0 && errno == EINTR)
        return 1;
    if (did == 0)
        errno = ENOSPC;
    return did > 0 ? 0 : -1;
}

int io_allocate(int fd, int mode, off_t from, off_t n)
{
    int did;
    do
        did = io->fallocate(fd, mode, from, n);
    while (did != 0 && errno == EINTR);
    return did;
}

int io_extend(int fd, off_t from, off_t to)
{
    if (io_allocate(fd, 0, from, to - from) == 0)
        return 0;
    int saved = errno;
    (void)!io->ftruncate(fd, from);
    errno = saved;
    return -1;
}

int io_write_all(int fd, const void *p, size_t n, off_t at)
{
    const char *from = p;
    while (n > 0) {
        ssize_t did = io->pwrite(fd, from, n, at);
        int judged = judge_write(did);
        if (judged < 0)
            return -1;
        if (judged > 0)
            continue;
        from += did;
        at += did;
        n -= (size_t)did;
    }
    return 0;
}

int io_write_parts(int fd, const struct iovec *parts, size_t n, off_t at)
{
    while (n > 0) {
        ssize_t did = io->pwritev(fd, parts, n < IOV_MAX ? (int)n : IOV_MAX, at);
        int judged = judge_write(did);
        if (judged < 0)
            return -1;
        if (judged > 0)
            continue;
        size_t left = (size_t)did;
        for (; n > 0 && left >= parts->iov_len; parts++, n--) {
            left -= parts->iov_len;
            at += (off_t)parts->iov_len;
        }
        if (left > 0) {
            if (io_write_all(
                    fd, (const char *)parts->iov_base + left, parts->iov_len - left, at + (off_t)left) != 0)
                return -1;
            at += (off_t)parts->iov_len;
            parts++;
            n--;
        }
    }
    return 0;
}

static int close_keeping_errno(int fd, bool failed)
{
    int saved = errno;
    if (fd >= 0)
        io->close(fd);
    errno = saved;
    return failed ? -1 : 0;
}

/* Appends the content of a file that is open, and closes it. */
static int read_and_close(int fd, bool needs_regular, size_t max, struct buf *out)
{
    struct stat st;
    size_t before = out->len;
    ssize_t n = 1;
    bool failed = fd < 0 || fstat(fd, &st) != 0;
    if (!failed && needs_regular && !S_ISREG(st.st_mode)) {
        errno = EINVAL;
        failed = true;
    }
    if (!failed && st.st_size > 0 && (uint64_t)st.st_size <= max)
        buf_reserve(out, (size_t)st.st_size + 1);
    while (!failed && n != 0) {
        if (out->len == out->cap)
            buf_reserve(out, READ_STEP);
        char *to = out->ptr + out->len;
        size_t room = out->cap - out->len;
        n = S_ISREG(st.st_mode) ? io->pread(fd, to, room, (off_t)(out->len - before)) : read(fd, to, room);
        out->len += n > 0 ? (size_t)n : 0;
        failed = (n < 0 && errno != EINTR) || out->len - before > max;
        if (n >= 0 && failed)
            errno = EFBIG;
    }
    return close_keeping_errno(fd, failed);
}

int io_read_file(const char *path, size_t max, struct buf *out)
{
    return read_and_close(io->open(path, O_RDONLY | O_CLOEXEC, 0), false, max, out);
}

int io_read_regular(const char *path, size_t max, struct buf *out)
{
    return read_and_close(io->open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC, 0), true, max, out);
}

int io_read_secret(const char *path, const char *what, size_t max, struct buf *out, struct error *error)
{
    struct stat st;
    if (stat(path, &st) == 0 && (st.st_mode & S_IRWXO) != 0)
        return error_set(error, -1, "the %s %s is open to all users: chmod o= %s", what, path, path);
    if (io_read_file(path, max, out) == 0)
        return 0;
    if (errno == EFBIG)
        return error_set(error, -1, "the %s %s is larger than %zu bytes", what, path, max);
    return error_set(error, -1, "cannot read the %s %s: %s", what, path, strerror(errno));
}

int io_replace_file(const char *path, struct bytes content, mode_t mode)
{
    char *fresh = mem_printf("%s.new", path);
    int fd = io->open(fresh, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, mode);
    bool failed = fd < 0 || io_write_all(fd, content.ptr, content.len, 0) != 0 || io->fsync(fd) != 0;
    failed =
        close_keeping_errno(fd, failed) != 0 || io->rename(fresh, path) != 0 || io_sync_parent(path) != 0;
    int saved = errno;
    free(fresh);
    errno = saved;
    return failed ? -1 : 0;
}

int io_sync_dir(const char *path)
{
    int fd = io->open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    int failed = io->fsync(fd);
    int saved = errno;
    io->close(fd);
    errno = saved;
    return failed;
}

void io_parent_of(const char *path, char out[PATH_MAX])
{
    snprintf(out, PATH_MAX, "%s", path);
    char *slash = strrchr(out, '/');
    if (!slash)
        strcpy(out, ".");
    else
        slash[slash == out ? 1 : 0] = 0;
}

int io_sync_parent(const char *path)
{
    char parent[PATH_MAX];
    io_parent_of(path, parent);
    return io_sync_dir(parent);
}

int io_sync_name(const char *path)
{
    bool ok =
        io_sync_parent(path) == 0 || errno == EACCES || errno == EPERM || errno == EROFS || errno == EINVAL;
    return ok ? 0 : -1;
}

static bool is_one_file(const char *one, const char *other, bool *known)
{
    struct stat a, b;
    *known = stat(one, &a) == 0 && stat(other, &b) == 0;
    return *known && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

bool io_is_same_version(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size &&
           a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

bool io_is_same_file(const char *one, const char *other)
{
    char parent[PATH_MAX], others[PATH_MAX];
    bool known, same = is_one_file(one, other, &known);
    if (known)
        return same;
    io_parent_of(one, parent);
    io_parent_of(other, others);
    same = is_one_file(parent, others, &known);
    if (known ? !same : strcmp(parent, others) != 0)
        return false;
    const char *slash = strrchr(one, '/'), *others_slash = strrchr(other, '/');
    return strcmp(slash ? slash + 1 : one, others_slash ? others_slash + 1 : other) == 0;
}

static int settle_found(const char *path, const struct stat *st)
{
    if (S_ISDIR(st->st_mode))
        return io_sync_name(path);
    errno = ENOTDIR;
    return -1;
}

static int make_missing(char *path)
{
    struct stat st;
    if (stat(path, &st) == 0)
        return settle_found(path, &st);
    if (errno != ENOENT)
        return -1;
    char *slash = strrchr(path, '/'); /* the first of the slashes before the last component */
    while (slash && slash > path && slash[-1] == '/')
        slash--;
    if (slash && slash > path) {
        *slash = '\0';
        int failed = make_missing(path);
        *slash = '/';
        if (failed)
            return -1;
    }
    if (io->mkdir(path, 0777) == 0)
        return io_sync_parent(path);
    /* Another process may have created the directory first. */
    return errno == EEXIST && stat(path, &st) == 0 ? settle_found(path, &st) : -1;
}

int io_make_dirs(const char *path)
{
    char whole[PATH_MAX];
    size_t length = strlen(path);
    if (length == 0 || length >= sizeof whole) {
        errno = length ? ENAMETOOLONG : ENOENT;
        return -1;
    }
    while (length > 1 && path[length - 1] == '/')
        length--;
    memcpy(whole, path, length);
    whole[length] = '\0';
    return make_missing(whole);
}

void io_reserve_stdio(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0)
            (void)!open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
}

void io_user_name(uid_t uid, char out[IO_USER_NAME])
{
    const struct passwd *p = getpwuid(uid);
    if (p)
        snprintf(out, IO_USER_NAME, "%s", p->pw_name);
    else
        snprintf(out, IO_USER_NAME, "%u", (unsigned)uid);
}

void io_append_owner(const char *path, struct buf *out)
{
    char *at = mem_strdup(path), *slash, owner[IO_USER_NAME], own[IO_USER_NAME];
    struct stat st;
    int found;
    while ((found = stat(at, &st)) != 0 && (slash = strrchr(at, '/')) && slash > at)
        *slash = '\0';
    if (found == 0 && st.st_uid != geteuid()) {
        io_user_name(st.st_uid, owner);
        io_user_name(geteuid(), own);
        buf_printf(out,
            "; %s belongs to user %s, this process to user %s: run it as the owner, or change the owner", at,
            owner, own);
    }
    free(at);
}
