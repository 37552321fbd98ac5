/* set_line: prints a set of the archive with its members (counts/set_text.h). */
#ifndef MILLRACE_SET_LINE_H
#define MILLRACE_SET_LINE_H

#include "archive/generation.h"

/* Appends the line of a set with its chunks, and with LF. `line` is a line of generation_set_text of the shard, with or
 * without LF. Returns 0, or -1 with the error of generation_set, or if the file was truncated. */
int set_line_append(
    const struct generation *g, uint32_t shard, struct bytes line, struct buf *out, struct error *error);

#endif
