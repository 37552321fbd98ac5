/* line_splitter: lines out of a stream's bytes as they come, in pieces that end anywhere.
 *
 * 1. A line is given once its LF has come, without it; what is behind the last LF waits for the next piece.
 * 2. No more than max_line bytes of an unfinished line are kept: a longer one is given as overlong, with its
 *    beginning and its whole length.
 * A zeroed one with max_line set is ready. */
#ifndef MILLRACE_LINE_SPLITTER_H
#define MILLRACE_LINE_SPLITTER_H

#include "bytes.h"

struct line_splitter {
    size_t max_line;
    struct buf partial;
    uint64_t length; /* of the unfinished line so far, all of it */
    void (*line)(void *arg, struct bytes line);
    void (*overlong)(void *arg, struct bytes head, uint64_t length);
    void *arg;
};

void line_splitter_feed(struct line_splitter *s, struct bytes piece);
void line_splitter_reset(struct line_splitter *s); /* forgets the unfinished line */
void line_splitter_free(struct line_splitter *s);

#endif
