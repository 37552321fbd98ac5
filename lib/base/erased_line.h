/* erased_line: the replacement of an erased line in a stream: an empty JSON object, padded with spaces to the length
 * of the line. Therefore an erasure changes no offset, and every line is still JSON. Consumers skip erased lines. */
#ifndef MILLRACE_ERASED_LINE_H
#define MILLRACE_ERASED_LINE_H

#include "base/bytes.h"

#define ERASED_LINE_MIN ((size_t)3) /* bytes without LF; a line `{}` is shorter and counts as an event */

/* True if `line`, which is passed without its LF, is an erased line. */
static inline bool erased_line_is(struct bytes line)
{
    if (line.len < ERASED_LINE_MIN || line.ptr[0] != '{' || line.ptr[1] != '}')
        return false;
    for (size_t i = 2; i < line.len; i++)
        if (line.ptr[i] != ' ')
            return false;
    return true;
}

/* Erases a line of `len` bytes (at least ERASED_LINE_MIN), not counting the LF. */
static inline void erased_line_write(char *line, size_t len)
{
    memset(line, ' ', len);
    line[0] = '{';
    line[1] = '}';
}

#endif
