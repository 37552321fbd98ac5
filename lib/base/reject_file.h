/* reject_file: a file of refused lines.
 *
 * 1. A line is on disk when reject_file_add returns, so that the reader's position may pass it. After a crash a line may be in the
 *    file twice, but never missing.
 * 2. The file is opened for each line. It may be moved away at any time; a new one is created.
 * 3. A line torn by a crash is ended by an LF before the next line. A failed write leaves nothing.
 * 4. Several processes may add to one file: each locks it (flock) while it adds a line, and fails with EWOULDBLOCK after
 *    REJECT_FILE_LOCK_WAIT_MAX. On a file system without locks only one process may add. */
#ifndef MILLRACE_REJECT_FILE_H
#define MILLRACE_REJECT_FILE_H

#include "base/bytes.h"
#include "base/clock.h"

#define REJECT_FILE_LOCK_WAIT_MAX (1 * USEC_PER_SEC)

/* Creates the file if it does not exist. 0, or -1 with errno. */
int reject_file_make(const char *path);
/* Adds a line, given without its LF, and creates the file if needed. 0, or -1 with errno. */
int reject_file_add(const char *path, struct bytes line);

#endif
