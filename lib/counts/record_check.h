/* record_check: checks that a line is a record exactly as the archive writes it (docs/formats/records.md).
 *
 * 1. A line passes only if its parts, written again, are the same bytes.
 * 2. The hash of a lookup is the hash of its text.
 * 3. The sum of a record with the same key in another line is not checked; the merge does that. */
#ifndef MILLRACE_RECORD_CHECK_H
#define MILLRACE_RECORD_CHECK_H

#include "counts/records.h"

/* `line` has no LF. Returns NULL and sets *key, which borrows from the line; or returns the reason, a constant text.
 * `space` holds the text of a lookup. */
const char *record_check(struct bytes line, struct record_key *key, struct buf *space);

#endif
