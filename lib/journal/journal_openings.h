/* journal_openings: records in a store's directory which numbers the store assigned in which opening (opening_list.h).
 *
 * The file OPENINGS_FILE is in the store's directory, so that a backup includes it. It is a ring of OPENINGS_MAX
 * slots (docs/formats/journal.md), full size from the start, for openings on a full disk.
 *
 * 1. When openings_open returns, the new opening is durable. Only after that may the caller assign a number.
 * 2. If a number is older than the oldest opening in the ring, its opening is unknown, and the id is "".
 * 3. A slot with a wrong checksum is ignored. If the write of the slot was torn, its opening has not assigned any
 *    number. If the slot was damaged later, cursors that contain the id of its opening are refused.
 * 4. An opening that has not assigned any number is replaced by the next one. So only openings with numbers fill the
 *    ring. */
#ifndef MILLRACE_JOURNAL_OPENINGS_H
#define MILLRACE_JOURNAL_OPENINGS_H

#include "journal/opening_list.h"

#define OPENINGS_FILE "openings"

/* Adds an opening whose first number is `next`. The call blocks until the file is synced. Returns NULL with errno if
 * the file cannot be read or written. */
struct openings *openings_open(const char *dir, uint64_t next);
/* Whether the directory has the whole file. If so, openings_open needs no disk space. */
bool openings_exist(const char *dir);
/* Removes from the bytes of the file the openings that begin above `next`, for a copy with fewer numbers. */
void openings_forget_after(struct buf *ring, uint64_t next);

#endif
