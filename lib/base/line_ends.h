/* line_ends: the ends of all lines of a block, found in one pass. A search per line is slower: the processor cannot predict
 * its length and stops fetching until it ends. */
#ifndef MILLRACE_LINE_ENDS_H
#define MILLRACE_LINE_ENDS_H

#include "base/bytes.h"

#define LINE_ENDS_BLOCK_MAX ((size_t)8 << 10) /* fits the first-level cache with the work on its lines */

/* Stores the offsets of all LFs of `block`, at most LINE_ENDS_BLOCK_MAX bytes, in order. Returns their number. */
size_t line_ends_find(struct bytes block, uint16_t ends[LINE_ENDS_BLOCK_MAX]);

#endif
