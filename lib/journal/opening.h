/* opening: the id of a session of a store (a run of its daemon). A copy of a store uses openings to recognize cursors
 * that do not belong to its past.
 *
 * A store assigns ascending numbers: a stream assigns offsets, a queue assigns message ids. If an operator restores a
 * backup, the restored store assigns some numbers a second time, for other contents. Each session of a store therefore
 * has an id that no other session has, the opening. A cursor contains the opening in which the number before the cursor
 * was assigned. A store and its copy agree up to a cursor exactly if the number before the cursor has the same opening
 * in the store and in the copy.
 *
 * 1. An id is 24 hexadecimal digits: the time in milliseconds since 1970 (12), and random bits (12). Within one store,
 *    a later opening has a later time, even if the clock was set back.
 * 2. If a store does not know the opening of a cursor, the store is a copy of the cursor's store. The copy's first
 *    opening with a later time than the cursor's opening is the first after the restore, if the clocks were right and
 *    the copied store was not in use after the copy was opened. A daemon therefore only proposes the start of this
 *    opening to an operator, together with its time. */
#ifndef MILLRACE_JOURNAL_OPENING_H
#define MILLRACE_JOURNAL_OPENING_H

#include "base/bytes.h"
#include "base/clock.h"

#define OPENING_BYTES ((size_t)12)
#define OPENING_TEXT (2 * OPENING_BYTES + 1) /* lower-case hexadecimal digits and NUL */

/* Makes a new opening with the time `wall`, or with a time after `before` if `before` is later; `before` may be "". */
void opening_new(const char *before, usec_t wall, char out[OPENING_TEXT]);
bool opening_is_valid(struct bytes text);
/* Returns the time of a valid opening. */
usec_t opening_time(const char *opening);
/* True if `text` is another valid opening, with no later time than `opening`. Openings of a store differ in time. */
bool opening_is_after(const char *opening, struct bytes text);

/* Converts an opening to 12 bytes of a file, and back. The opening "" becomes 12 zero bytes. */
void opening_encode(const char *opening, char out[OPENING_BYTES]);
void opening_decode(const char in[OPENING_BYTES], char out[OPENING_TEXT]);

#endif
