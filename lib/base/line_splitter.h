/* line_splitter: whole lines out of a stream's bytes as they come, in pieces that end anywhere.
 *
 * 1. Lines are given once their LF has come, with it, as many in one run as lie together; what is behind the last LF waits
 *    for the next piece. The usual run lies in one piece and is not copied.
 * 2. No more than max_line + 1 bytes of an unfinished line are kept: one longer than max_line (without its LF) is given as
 *    overlong, with its beginning and its whole length without LF.
 * 3. line_splitter_reset may be called from a callback: nothing more of the piece is given then.
 * A zeroed one with max_line and callbacks set is ready. */
#ifndef MILLRACE_LINE_SPLITTER_H
#define MILLRACE_LINE_SPLITTER_H

#include "base/bytes.h"

struct line_splitter {
    size_t max_line;
    struct buf partial;
    uint64_t length; /* of the unfinished line so far, all of it */
    uint64_t resets;
    void (*lines)(void *arg, struct bytes run);
    void (*overlong)(void *arg, struct bytes head, uint64_t length);
    void *arg;
};

void line_splitter_feed(struct line_splitter *s, struct bytes piece);
void line_splitter_reset(struct line_splitter *s); /* forgets the unfinished line */
void line_splitter_free(struct line_splitter *s);

#endif
