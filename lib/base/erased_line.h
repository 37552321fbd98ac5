/* erased_line: what remains of a line of a stream whose content was erased: an empty JSON object and spaces up to the
 * length of the line. So no offset changes, and every line still is JSON. Consumers skip such lines. */
#ifndef MILLRACE_ERASED_LINE_H
#define MILLRACE_ERASED_LINE_H

#include "base/bytes.h"

#define ERASED_LINE_MIN                                                                                      \
    ((size_t)3) /* bytes without LF; an event's own `{}` is not taken for an erased line */

/* `line` without its LF. */
static inline bool erased_line_is(struct bytes line)
{
    if (line.len < ERASED_LINE_MIN || line.ptr[0] != '{' || line.ptr[1] != '}')
        return false;
    for (size_t i = 2; i < line.len; i++)
        if (line.ptr[i] != ' ')
            return false;
    return true;
}

/* Erases a line of len >= ERASED_LINE_MIN bytes, without its LF. */
static inline void erased_line_write(char *line, size_t len)
{
    memset(line, ' ', len);
    line[0] = '{';
    line[1] = '}';
}

#endif
