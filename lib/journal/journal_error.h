/* journal_error: error texts, and the errno of a failed sync. */
#ifndef MILLRACE_JOURNAL_ERROR_H
#define MILLRACE_JOURNAL_ERROR_H

#include "base/errno_class.h"

#include <stdbool.h>
#include <stddef.h>

#define JOURNAL_ERROR_TEXT 512

/* Turns ENOSPC and EDQUOT of a failed sync into EIO: the disk's content is unknown then, so the journal must latch. */
int sync_or_eio(int failed);

/* "PATH: WHAT: strerror"; with `system` 0, without the last part. */
void failure_set(char text[JOURNAL_ERROR_TEXT], const char *path, const char *what, int system);

#endif
