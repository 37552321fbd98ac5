/* line_splitter: whole lines from a stream of bytes that arrives in arbitrary pieces.
 *
 * 1. Lines are passed on with their LF, in runs of as many as are contiguous. An unfinished line waits for the next piece. Only
 *    that line is copied.
 * 2. At most max_line + 1 bytes of an unfinished line are kept. A line longer than max_line (without its LF) is passed to
 *    `overlong`, with its beginning and its length without LF.
 * 3. A callback may call line_splitter_reset: the rest of the piece is then dropped.
 *
 * A zeroed splitter with max_line and callbacks set is ready. */
#ifndef MILLRACE_LINE_SPLITTER_H
#define MILLRACE_LINE_SPLITTER_H

#include "base/bytes.h"

struct line_splitter {
    size_t max_line;
    struct buf partial;
    uint64_t length; /* of the unfinished line so far */
    uint64_t resets;
    void (*lines)(void *arg, struct bytes run);
    void (*overlong)(void *arg, struct bytes head, uint64_t length);
    void *arg;
};

void line_splitter_feed(struct line_splitter *s, struct bytes piece);
void line_splitter_reset(struct line_splitter *s); /* drops the unfinished line */
void line_splitter_free(struct line_splitter *s);

#endif
