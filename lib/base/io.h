/* io: file operations behind one replaceable pointer.
 *
 * Modules that make bytes durable call io->pwrite(...) and so on, never the system call. A test can set `io` to its
 * own table, for example to fail the third fsync, to cut a write short or to drop unsynced bytes. Set `io` only while
 * no thread runs code that uses it. All operations return as the system calls do, with errno. */
#ifndef MILLRACE_IO_H
#define MILLRACE_IO_H

#include "base/bytes.h"
#include "base/error.h"
#include <linux/limits.h> /* PATH_MAX */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

/* The mode of files in a data directory, before the umask: only the daemon's user and group may read them. Files that
 * other programs read, such as archives, are created with 0666. */
#define IO_PRIVATE_MODE 0640

struct io_ops {
    int (*open)(const char *path, int flags, mode_t mode);
    ssize_t (*pread)(int fd, void *p, size_t n, off_t at);
    ssize_t (*pwrite)(int fd, const void *p, size_t n, off_t at);
    ssize_t (*pwritev)(int fd, const struct iovec *parts, int n, off_t at);
    int (*fdatasync)(int fd);
    int (*fsync)(int fd); /* also of directories */
    int (*ftruncate)(int fd, off_t length);
    int (*fallocate)(int fd, int mode, off_t at, off_t length);
    int (*rename)(const char *from, const char *to);
    int (*rename_new)(const char *from, const char *to); /* EEXIST if `to` exists */
    int (*unlink)(const char *path);
    int (*mkdir)(const char *path, mode_t mode);
    int (*close)(int fd);
    int (*flock)(int fd, int operation);
};

extern const struct io_ops io_system;
extern const struct io_ops *io;

/* Writes all n bytes. Returns 0, or -1 with errno. If the system writes no byte, errno is ENOSPC. */
int io_write_all(int fd, const void *p, size_t n, off_t at);
/* As io_write_all, for several parts, one after the other. No part may be empty. */
int io_write_parts(int fd, const struct iovec *parts, size_t n, off_t at);
/* fallocate, retried after a signal. */
int io_allocate(int fd, int mode, off_t from, off_t n);
/* Appends the content of a file or of a pipe to `out`. Returns 0, or -1 with errno: EFBIG if the file has more than `max` bytes. */
int io_read_file(const char *path, size_t max, struct buf *out);
/* Appends a file that holds a secret: at most `max` bytes, which other users may not access. Returns 0, or -1 with the error,
 * which calls the file `what` ("token file"). */
int io_read_secret(const char *path, const char *what, size_t max, struct buf *out, struct error *error);
/* Replaces or creates a file, so that a crash leaves the old content or the new one: writes PATH.new, syncs it, renames it and syncs the
 * directory. Returns 0, or -1 with errno. */
int io_replace_file(const char *path, struct bytes content, mode_t mode);
/* Opens, fsyncs and closes a directory. */
int io_sync_dir(const char *path);
/* The directory of `path`; "." for a bare name. */
void io_parent_of(const char *path, char out[PATH_MAX]);
int io_sync_parent(const char *path);
/* True if both paths name the same file. The file need not exist. */
bool io_is_same_file(const char *one, const char *other);
/* Syncs the directory that contains `path`, so that the file's name is durable. The process that created the file may
 * have been killed before it did this. It is not an error if the directory is unreadable or its file system is
 * read-only. */
int io_sync_name(const char *path);
/* mkdir -p. 0, or -1 with errno. After a success the directory survives a power cut, even if another process created
 * it. The function syncs the name of each new directory before it creates anything inside. It also syncs the name of
 * the deepest directory that already existed. */
int io_make_dirs(const char *path);

/* After EACCES or EPERM: appends "; PATH belongs to user NAME, this process to user NAME" for the path or its nearest existing parent.
 * Ends with a NUL that the length does not include, unless nothing is appended. */
void io_append_owner(const char *path, struct buf *out);

/* Opens a closed standard descriptor on /dev/null, so that its use fails with EBADF. main calls this first.
 * Otherwise the next opened file could get descriptor 2, and log lines would go into that file. */
void io_reserve_stdio(void);

#endif
