/* daemon_directory: the directory with the files of a daemon or a command, which one process at a time may use.
 *
 * The process locks DIR/lock (flock) until it ends, and writes its process id into the file. The kernel releases the
 * lock of a killed process. The id is valid only while the lock is held. */
#ifndef MILLRACE_DAEMON_DIRECTORY_H
#define MILLRACE_DAEMON_DIRECTORY_H

#include "base/error.h"
#include "base/stats.h"

#include <stdbool.h>
#include <stdint.h>

/* Creates the directory and its parents, checks that the directory is writable, and locks DIR/lock until the process
 * ends. If NOTIFY_SOCKET is set, waits up to 15 s for the lock, otherwise as long as daemon_directory_holder may hold
 * the lock. Returns 0, or -1 with errno and the error. If errno is
 * EWOULDBLOCK, the error names the process that holds the lock. */
int daemon_lock_directory(const char *dir, struct error *error);
/* Returns the process id in DIR/lock if a process holds the lock, and 0 if the lock is free. Returns -1 if the file is
 * missing or this user may not read the file. */
int64_t daemon_directory_holder(const char *dir);
/* Returns false if the locked directory is no longer at `dir`, or if DIR/lock was removed. */
bool daemon_holds_directory(const char *dir);
/* Changes the working directory; NULL: keeps it. Returns 0, or an exit status with the error. */
int daemon_enter_directory(const char *dir, struct error *error);
/* Shows the free space and the size of the locked directory's disk in /stats; without a locked directory, nothing. */
void daemon_directory_stats(struct stats *stats);

#endif
