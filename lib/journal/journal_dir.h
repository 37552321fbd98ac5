/* journal_dir: the lock on a journal's directory. The kernel releases it however its holder ends. */
#ifndef MILLRACE_JOURNAL_DIR_H
#define MILLRACE_JOURNAL_DIR_H

#include "base/clock.h"

/* A descriptor of the directory that holds the lock until it is closed. -1 with errno; EWOULDBLOCK: another process still
 * has the directory open after journal_lock_timeout. A file system without locks on directories gets a warning. */
int journal_dir_lock(const char *dir);
extern usec_t journal_lock_timeout; /* replaceable for tests */

#endif
