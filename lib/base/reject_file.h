/* reject_file: a file of lines that whoever they were meant for refuses for themselves.
 *
 * 1. A line that was added is on disk when reject_file_add returns, and so may the position then pass it. After a crash it may be
 *    added once more, never be missing.
 * 2. The file is opened for each line: it may be moved away at any time, and a new one is made.
 * 3. What a crash left of a line ends in an LF before the next begins; a write that failed leaves nothing.
 * 4. Several processes may add to one file: each locks it (flock) for as long as a line takes. Whoever does not get the lock
 *    in REJECT_FILE_LOCK_WAIT_MAX adds nothing (EWOULDBLOCK). On a file
 *    system that has no locks there is none: there one process alone may add. */
#ifndef MILLRACE_REJECT_FILE_H
#define MILLRACE_REJECT_FILE_H

#include "base/bytes.h"
#include "base/clock.h"

#define REJECT_FILE_LOCK_WAIT_MAX (1 * USEC_PER_SEC)

/* The file is made if there is none. 0, or -1 with errno. */
int reject_file_make(const char *path);
/* A line without its LF; the file is made if there is none. 0, or -1 with errno. */
int reject_file_add(const char *path, struct bytes line);

#endif
