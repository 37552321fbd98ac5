/* line_ends: where the lines of a block of text end, all of them found before one is looked at. Looking for the next LF behind each
 * line costs more: how far it is cannot be guessed, and while the processor waits to know nothing more of the text is fetched. */
#ifndef MILLRACE_LINE_ENDS_H
#define MILLRACE_LINE_ENDS_H

#include "base/bytes.h"

#define LINE_ENDS_BLOCK_MAX                                                                                  \
    ((size_t)8 << 10) /* with what is done next to its lines it stays in the processor's nearest memory */

/* The places of all LFs of `block`, which is no longer than LINE_ENDS_BLOCK_MAX, in order. How many. */
size_t line_ends_find(struct bytes block, uint16_t ends[LINE_ENDS_BLOCK_MAX]);

#endif
