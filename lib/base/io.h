/* io: file operations behind one replaceable pointer.
 *
 * Modules that make bytes durable call io->pwrite(...) and so on, never the system call. A test can set `io` to its
 * own table, for example to fail the third fsync, to cut a write short or to drop unsynced bytes. Set `io` only while
 * no thread uses `io`. Each operation has the result and the errno of its system call. */
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
    int (*fsync)(int fd); /* also for directories */
    int (*ftruncate)(int fd, off_t length);
    int (*fallocate)(int fd, int mode, off_t at, off_t length);
    int (*rename)(const char *from, const char *to);
    int (*rename_new)(const char *from, const char *to); /* EEXIST if `to` exists */
    int (*unlink)(const char *path);
    int (*symlink)(const char *target, const char *path);
    int (*link)(const char *from, const char *to);
    int (*mkdir)(const char *path, mode_t mode);
    int (*close)(int fd);
    int (*flock)(int fd, int operation);
};

extern const struct io_ops io_system;
extern const struct io_ops *io;

/* The following functions return 0, or -1 with errno. io_write_all writes all n bytes. If the system call writes 0
 * bytes without an error, errno is ENOSPC. */
int io_write_all(int fd, const void *p, size_t n, off_t at);
/* Writes several parts one after the other, as io_write_all does. No part may be empty. */
int io_write_parts(int fd, const struct iovec *parts, size_t n, off_t at);
/* Calls fallocate, and repeats the call after a signal. */
int io_allocate(int fd, int mode, off_t from, off_t n);
/* Allocates a file's bytes from `from` to `to`. After a failure, the file ends at `from`, because some file systems keep the
 * blocks of an allocation that finds too few. */
int io_extend(int fd, off_t from, off_t to);
/* Appends the content of a file or a pipe to `out`. errno is EFBIG if the file has more than `max` bytes. */
int io_read_file(const char *path, size_t max, struct buf *out);
/* As io_read_file, but refuses other files than regular ones (EINVAL). So a pipe without a writer does not block. */
int io_read_regular(const char *path, size_t max, struct buf *out);
/* Appends the content of a file with a secret. The file may have at most `max` bytes, and other users may not access
 * it. `what` is the name of the file in the error ("token file"). */
int io_read_secret(const char *path, const char *what, size_t max, struct buf *out, struct error *error);
/* Replaces or creates a file. A crash leaves either the old content or the new content, because io_replace_file
 * writes and syncs PATH.new before it renames PATH.new to PATH and syncs the directory. */
int io_replace_file(const char *path, struct bytes content, mode_t mode);
int io_sync_dir(const char *path);
/* Stores the directory of `path` in `out`: "." if `path` has no slash. */
void io_parent_of(const char *path, char out[PATH_MAX]);
int io_sync_parent(const char *path);
/* True if both paths name the same file, which need not exist. */
bool io_is_same_file(const char *one, const char *other);
struct stat;
/* True if two results of stat are of the same file with the same content: the file was neither replaced nor written. */
bool io_is_same_version(const struct stat *a, const struct stat *b);
/* Syncs the directory that contains `path`, so that the file's name is durable. A killed process may have created the
 * file without a sync of the directory. An unreadable directory or a read-only file system is not an error. */
int io_sync_name(const char *path);
/* Creates a directory and its missing parents. After a success the directory survives a power cut, even if another
 * process created the directory. io_make_dirs syncs the name of each new directory before the directory gets an
 * entry, and the name of the deepest directory that already existed. */
int io_make_dirs(const char *path);

/* Writes the name of a user, or the number of a user without a name. */
#define IO_USER_NAME 64
void io_user_name(uid_t uid, char out[IO_USER_NAME]);
/* After EACCES or EPERM: appends "; PATH belongs to user NAME, this process to user NAME" for the path or its nearest existing
 * parent, unless both are the same user.
 * Ends with a NUL that the length does not include, unless nothing is appended. */
void io_append_owner(const char *path, struct buf *out);

/* Opens each closed standard descriptor on /dev/null, so that reads and writes of the descriptor fail with EBADF. main calls
 * io_reserve_stdio first. Without io_reserve_stdio, the next opened file could get descriptor 2, and log lines would go into that file. */
void io_reserve_stdio(void);

#endif
