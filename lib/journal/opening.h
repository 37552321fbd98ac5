/* opening: the id of one opening of a store, with which a copy of the store recognizes cursors that are not of its past.
 *
 * A store assigns ascending numbers: a stream assigns offsets, a queue assigns message ids. If an operator restores a
 * backup, the restored store assigns some numbers a second time, for other contents. So each opening of a store has an
 * id that no other opening has, and a cursor names the opening that assigned the number before the cursor. The store and its copy
 * agree up to a cursor exactly if the same opening assigned this number in both.
 *
 * 1. An id is 24 hexadecimal digits: the time in milliseconds since 1970 (12), and random bits (12). In one history, a
 *    later opening has a later time, even if the clock was set back.
 * 2. If a store does not know the opening of a cursor of the original, the store is a copy, and its first opening with a
 *    later time is the first after the restore. This holds if the clocks were right, and if the copy was not opened while
 *    the original was in use. So a daemon only proposes this place to an operator, together with its time. */
#ifndef MILLRACE_JOURNAL_OPENING_H
#define MILLRACE_JOURNAL_OPENING_H

#include "base/bytes.h"
#include "base/clock.h"

#define OPENING_BYTES ((size_t)12)
#define OPENING_TEXT (2 * OPENING_BYTES + 1) /* lower-case hexadecimal digits and NUL */

/* A new id with the time `wall` (microseconds), or one that is later than `before` ("": none). */
void opening_new(const char *before, usec_t wall, char out[OPENING_TEXT]);
bool opening_is_valid(struct bytes text);
/* In microseconds; `opening` is valid. */
usec_t opening_time(const char *opening);
/* True if the text is another valid opening, whose time is not later. Openings of one history have different times. */
bool opening_is_after(const char *opening, struct bytes text);

/* 12 bytes of a file, and back. An id of zeros is "". */
void opening_encode(const char *opening, char out[OPENING_BYTES]);
void opening_decode(const char in[OPENING_BYTES], char out[OPENING_TEXT]);

#endif
