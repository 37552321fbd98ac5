/* reject_file: a file of refused lines.
 *
 * 1. When reject_file_add returns, the line is on disk, and the caller may move on in its input. After a crash the
 *    file may contain a line twice, but no line is missing.
 * 2. Each call opens the file, so an operator may move the file away at any time.
 * 3. If a crash left a partial line at the end, the next call ends it with an LF. If a write fails, the file is cut
 *    back to its previous length.
 * 4. Once the file has half of max_bytes, or is half of max_age old, it is renamed to PATH.1, which replaces an earlier
 *    PATH.1. A PATH.1 whose last line is half of max_age old is deleted. So both have at most max_bytes (but one line may be
 *    longer), and no line older than max_age remains once a line is added. On a file system that does not record when a
 *    file was created, the age of a file is that of its last line.
 * 5. Several processes may add lines to one file. Each process locks the file (flock) while it adds a line. A process
 *    that does not get the lock within REJECT_FILE_LOCK_WAIT_MAX fails with EWOULDBLOCK. On a file system without
 *    locks, only one process may add lines. */
#ifndef MILLRACE_REJECT_FILE_H
#define MILLRACE_REJECT_FILE_H

#include "base/bytes.h"
#include "base/clock.h"

#define REJECT_FILE_LOCK_WAIT_MAX (1 * USEC_PER_SEC)

struct reject_file {
    const char *path;   /* borrowed; less than PATH_MAX bytes */
    uint64_t max_bytes; /* 0: unlimited */
    usec_t max_age;     /* 0: unlimited */
};

/* Creates the file if it does not exist. 0, or -1 with errno. */
int reject_file_make(const struct reject_file *f);
/* Adds a line, without its LF, and creates the file if needed. 0, or -1 with errno. *expired: earlier lines were deleted. */
int reject_file_add(const struct reject_file *f, struct bytes line, bool *expired);

#endif
