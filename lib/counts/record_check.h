/* record_check: checks that a line is a record exactly as the archive writes it (docs/formats/records.md).
 *
 * 1. A line passes only if the parsed record, written again, has the same bytes.
 *    A set may have its members or its chunks (set_text.h). The size of a set, and the set of a month, do not pass.
 *    Only a count of a total with a value, or of its subtotals, may be 0 or negative.
 * 2. The hash in a lookup must be the hash of the lookup's text.
 * 3. If several lines have the same key, record_check does not check that their sum fits 64 bits; the merge does. */
#ifndef MILLRACE_RECORD_CHECK_H
#define MILLRACE_RECORD_CHECK_H

#include "counts/records.h"
#include "counts/value_sums.h"

/* Checks a line without its LF. `values` names the totals with a value; NULL: none. If the line passes, returns NULL and sets *key, which borrows from the line; otherwise
 * returns the reason, a constant text. `space` is memory for the text of a lookup. */
const char *record_check(
    struct bytes line, const struct value_sums *values, struct record_key *key, struct buf *space);

#endif
