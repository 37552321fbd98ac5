/* reject_file: a file of refused lines.
 *
 * 1. A line is on disk when reject_file_add returns, so a reader may then move its position past the line. After a
 *    crash a line may be in the file twice, but is never missing.
 * 2. Each call opens the file, so an operator may move the file away at any time.
 * 3. An LF separates a line torn by a crash from the next line. A failed write leaves nothing in the file.
 * 4. Several processes may add to one file. Each locks it (flock) while it adds a line, and fails with EWOULDBLOCK after
 *    REJECT_FILE_LOCK_WAIT_MAX. On a file system without locks only one process may add. */
#ifndef MILLRACE_REJECT_FILE_H
#define MILLRACE_REJECT_FILE_H

#include "base/bytes.h"
#include "base/clock.h"

#define REJECT_FILE_LOCK_WAIT_MAX (1 * USEC_PER_SEC)

/* Creates the file if it does not exist. 0, or -1 with errno. */
int reject_file_make(const char *path);
/* Adds a line, without its LF, and creates the file if needed. 0, or -1 with errno. */
int reject_file_add(const char *path, struct bytes line);

#endif
