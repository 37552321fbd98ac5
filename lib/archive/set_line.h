/* set_line: prints a set of the archive with its members (counts/set_text.h). */
#ifndef MILLRACE_SET_LINE_H
#define MILLRACE_SET_LINE_H

#include "archive/generation.h"

enum set_line_result { SET_LINE_WHOLE, SET_LINE_CUT, SET_LINE_FAILED };

/* Appends the line of a set with its chunks, and with LF. `line` is a line of generation_set_text of the shard, with or
 * without LF. `start` is the place of the first chunk to append (set_text_append_place), or empty. Once `out` has more
 * than `most` bytes, the function sets *next, which the caller empties, to the place of the next chunk, and returns
 * SET_LINE_CUT. SET_LINE_FAILED: the error of generation_set, or a file was truncated or modified. */
enum set_line_result set_line_append(const struct generation *g, uint32_t shard, struct bytes line,
    struct bytes start, size_t most, struct buf *out, struct buf *next, struct error *error);

#endif
