/* line_splitter: splits a stream of bytes that arrives in arbitrary pieces into whole lines.
 *
 * 1. The callback `lines` gets one or more whole lines at a time, each with its LF. The splitter copies only an
 *    unfinished line, because the rest of that line comes with a later piece.
 * 2. The splitter keeps at most max_line + 1 bytes of an unfinished line. If a line is longer than max_line, the
 *    callback `overlong` gets the beginning of the line and the line's length without LF.
 * 3. If a callback calls line_splitter_reset, the splitter drops the remainder of the piece.
 *
 * To make a splitter ready, zero the struct and set max_line and the callbacks. */
#ifndef MILLRACE_LINE_SPLITTER_H
#define MILLRACE_LINE_SPLITTER_H

#include "base/bytes.h"

struct line_splitter {
    size_t max_line;
    struct buf partial;
    uint64_t length; /* bytes of the unfinished line so far */
    uint64_t resets;
    void (*lines)(void *arg, struct bytes run);
    void (*overlong)(void *arg, struct bytes head, uint64_t length);
    void *arg;
};

void line_splitter_feed(struct line_splitter *s, struct bytes piece);
void line_splitter_reset(struct line_splitter *s); /* drops the unfinished line */
void line_splitter_free(struct line_splitter *s);

#endif
