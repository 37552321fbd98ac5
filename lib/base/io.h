/* io: the file operations whose failure a test must be able to order, behind one replaceable pointer.
 *
 * Modules that make bytes durable call io->pwrite(...) and so on, never the system call. Tests point `io`
 * at a table of their own (fail the third fsync, stop a write short, forget what was not synced). The
 * pointer is read on every call; replace it only while no thread is inside a module that uses it.
 * All return as the system calls do, with errno. */
#ifndef MILLRACE_IO_H
#define MILLRACE_IO_H

#include <linux/limits.h> /* of PATH_MAX; pubsub has a limits.h of its own */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

/* The mode that files of a data directory are made with, less what the umask takes: what applications handed over, and
 * what is known of it, is for the daemon's user and group, not for everybody on the host. What is made to be read by
 * others (archives, files of streams) has the usual 0666. */
#define IO_PRIVATE_MODE 0640

struct io_ops {
    int (*open)(const char *path, int flags, mode_t mode);
    ssize_t (*pread)(int fd, void *p, size_t n, off_t at);
    ssize_t (*pwrite)(int fd, const void *p, size_t n, off_t at);
    ssize_t (*pwritev)(int fd, const struct iovec *parts, int n, off_t at);
    int (*fdatasync)(int fd);
    int (*fsync)(int fd); /* of directories too */
    int (*ftruncate)(int fd, off_t length);
    int (*fallocate)(int fd, int mode, off_t at, off_t length);
    int (*rename)(const char *from, const char *to);
    int (*rename_new)(const char *from, const char *to); /* EEXIST when there is one of that name */
    int (*unlink)(const char *path);
    int (*mkdir)(const char *path, mode_t mode);
    int (*close)(int fd);
    int (*flock)(int fd, int operation);
};

extern const struct io_ops io_system;
extern const struct io_ops *io;

/* The whole span, or -1 with errno (ENOSPC when a write stopped short for want of room). */
int io_write_all(int fd, const void *p, size_t n, off_t at);
/* Likewise these parts, none of them empty, one behind the other. */
int io_write_parts(int fd, const struct iovec *parts, size_t n, off_t at);
/* As fallocate, again where a signal interrupted it. */
int io_allocate(int fd, int mode, off_t from, off_t n);
/* Opens, fsyncs and closes a directory. */
int io_sync_dir(const char *path);
/* The directory in which `path` is a name; "." for a bare one. */
void io_parent_of(const char *path, char out[PATH_MAX]);
int io_sync_parent(const char *path);
/* True when both names lead to one file, or would if it were made. */
bool io_is_same_file(const char *one, const char *other);
/* The same for a name that was found: whoever made it may have been killed before it was durable. A directory that cannot be
 * synced, for want of the right to read it or because nobody writes to its file system, is let be. */
int io_sync_name(const char *path);
/* mkdir -p; 0 or -1 with errno. Afterwards no power cut takes the directory away, whoever made it and was killed: a made
 * one's name is synced before anything is made in it, and so is the name of the deepest that was there, by every call. Above
 * that all is durable already, since nothing is made in a directory before. */
int io_make_dirs(const char *path);

/* For main, before it opens anything: where standard input, output or error is closed, something is held open that fails as a
 * closed one does (EBADF). Otherwise the next file or socket would be standard error, and be written to by all that logs. */
void io_reserve_stdio(void);

#endif
