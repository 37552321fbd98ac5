/* io: file operations behind one replaceable pointer.
 *
 * Modules that make bytes durable call io->pwrite(...) and so on, never the system call. Tests replace `io` by their own table to
 * fail the third fsync, cut a write short or drop unsynced bytes. Replace it only while no thread is inside a module that uses it.
 * All operations return as the system calls do, with errno. */
#ifndef MILLRACE_IO_H
#define MILLRACE_IO_H

#include <linux/limits.h> /* PATH_MAX */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

/* The mode of files in a data directory, before the umask: only the daemon's user and group may read them. Files for other programs,
 * such as archives, have the usual 0666. */
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
/* As io_write_all, for several non-empty parts in a row. */
int io_write_parts(int fd, const struct iovec *parts, size_t n, off_t at);
/* fallocate, retried after a signal. */
int io_allocate(int fd, int mode, off_t from, off_t n);
/* Opens, fsyncs and closes a directory. */
int io_sync_dir(const char *path);
/* The directory of `path`; "." for a bare name. */
void io_parent_of(const char *path, char out[PATH_MAX]);
int io_sync_parent(const char *path);
/* True if both paths name the same file, or will name it once the file exists. */
bool io_is_same_file(const char *one, const char *other);
/* Syncs the directory of an existing file, because its creator may have been killed before it synced the directory. An
 * unreadable directory or a read-only file system is not an error. */
int io_sync_name(const char *path);
/* mkdir -p. 0, or -1 with errno. Afterwards the directory survives a power cut, even if another process created it. The
 * function syncs each new directory's name before it creates anything inside, and always syncs the deepest name that
 * already existed. */
int io_make_dirs(const char *path);

/* Replaces closed standard descriptors by descriptors that fail with EBADF. main calls it first; otherwise the next
 * file to be opened could get descriptor 2 and receive log lines. */
void io_reserve_stdio(void);

#endif
