/* reject_file: a file of refused lines.
 *
 * 1. Once reject_file_add returns, the line is on disk, and the caller may store a position after the line. After a
 *    crash the file may contain a line twice, but no line is missing.
 * 2. Each call of reject_file_add opens the file, so an operator may move the file away at any time.
 * 3. If a crash left a partial line at the end, the next call ends the partial line with an LF. If a write fails, the
 *    file is truncated to its previous length.
 * 4. A file that reaches half of max_bytes, or half of max_age, is renamed to PATH.1 and replaces an earlier PATH.1.
 *    A PATH.1 whose last line is older than half of max_age is deleted. Therefore both files together have at most
 *    max_bytes, unless one line is longer. After a line is added, no line older than max_age remains. On a file
 *    system without creation times, the age of a file is the age of its last line.
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

/* Creates a missing file. Returns 0, or -1 with errno; EINVAL: the path is not a regular file; ELOOP: it is a link. */
int reject_file_make(const struct reject_file *f);
/* Adds a line, which is passed without its LF, and creates the file if needed. Returns 0, or -1 with errno. Sets
 * *expired to true if earlier lines were deleted. */
int reject_file_add(const struct reject_file *f, struct bytes line, bool *expired);

#endif
