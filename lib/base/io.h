/* io: file operations behind one replaceable pointer.
 *
 * Modules that make bytes durable call io->pwrite(...) and so on, never the system call. Tests point `io` at their own table to
 * fail the third fsync, cut a write short or drop unsynced bytes. The pointer is read on every call; replace it only while no
 * thread is inside a module that uses it. All operations return as the system calls do, with errno. */
#ifndef MILLRACE_IO_H
#define MILLRACE_IO_H

#include <linux/limits.h> /* PATH_MAX */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

/* The mode of files in a data directory, before the umask: only the daemon's user and group may read them. Files made for other
 * readers, such as archives, have the usual 0666. */
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

/* Writes the whole span. 0, or -1 with errno; a short write is ENOSPC. */
int io_write_all(int fd, const void *p, size_t n, off_t at);
/* The same for several parts in a row, none of them empty. */
int io_write_parts(int fd, const struct iovec *parts, size_t n, off_t at);
/* fallocate, retried after a signal. */
int io_allocate(int fd, int mode, off_t from, off_t n);
/* Opens, fsyncs and closes a directory. */
int io_sync_dir(const char *path);
/* The directory of `path`; "." for a bare name. */
void io_parent_of(const char *path, char out[PATH_MAX]);
int io_sync_parent(const char *path);
/* True when both names lead to one file, or would once it is created. */
bool io_is_same_file(const char *one, const char *other);
/* Syncs the directory of a file that exists: its creator may have been killed before doing so. A directory that must not be read,
 * or is on a read-only file system, is not an error. */
int io_sync_name(const char *path);
/* mkdir -p. 0, or -1 with errno. Afterwards the directory survives a power cut, also if another process created it: each created
 * name is synced before anything is created below it, and every call syncs the deepest name that existed. */
int io_make_dirs(const char *path);

/* For main, before it opens anything: replaces closed standard descriptors by ones that fail with EBADF. Otherwise the next file
 * opened could become standard error, and log lines would be written to it. */
void io_reserve_stdio(void);

#endif
