/* line_ends: finds the ends of all lines of a block in one pass. Calling memchr once for each line is slower, because
 * the processor cannot predict where each line ends. */
#ifndef MILLRACE_LINE_ENDS_H
#define MILLRACE_LINE_ENDS_H

#include "base/bytes.h"

#define LINE_ENDS_BLOCK_MAX ((size_t)8 << 10) /* fits in the first-level cache */

/* Stores the offsets of all LFs of `block` in ascending order, and returns the number of LFs. `block` has at most
 * LINE_ENDS_BLOCK_MAX bytes. */
size_t line_ends_find(struct bytes block, uint16_t ends[LINE_ENDS_BLOCK_MAX]);

#endif
