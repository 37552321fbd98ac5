/* journal_error: the text of a failure in the journal, and syncs that fail for want of space. */
#ifndef MILLRACE_JOURNAL_ERROR_H
#define MILLRACE_JOURNAL_ERROR_H

#include "base/errno_class.h"

#include <stdbool.h>
#include <stddef.h>

#define JOURNAL_ERROR_TEXT 512

/* Turns a sync's ENOSPC and EDQUOT into EIO: what a failed sync left on the disk is unknown, so it must latch. */
int sync_or_eio(int failed);

/* "PATH: WHAT: strerror", or without the last part if `system` is 0. */
void failure_set(char text[JOURNAL_ERROR_TEXT], const char *path, const char *what, int system);

#endif
