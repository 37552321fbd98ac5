/* journal_error: what an errno means for a journal, and the text of a failure. */
#ifndef MILLRACE_JOURNAL_ERROR_H
#define MILLRACE_JOURNAL_ERROR_H

#include <stdbool.h>
#include <stddef.h>

#define JOURNAL_ERROR_TEXT 512

bool errno_is_no_space(int system); /* ENOSPC, EDQUOT: heals once there is room */
bool errno_is_no_descriptor(int system);
/* Out of descriptors or memory: says nothing about the storage; try again. */
bool errno_is_shortage(int system);
/* Turns a sync's ENOSPC and EDQUOT into EIO: what a failed sync left on the disk is unknown, so it must latch. */
int sync_or_eio(int failed);

/* "PATH: WHAT: strerror", or without the last part if `system` is 0. */
void failure_set(char text[JOURNAL_ERROR_TEXT], const char *path, const char *what, int system);

#endif
