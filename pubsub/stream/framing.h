/* framing: a stream's lines in the forms that are not the stream's own bytes as they come.
 *
 * Server-Sent Events, for browsers:                        bitly's multipart/x-mixed-replace:
 *     data: LINE\n                                             content-type, content-length: N
 *     id: OFFSET:STREAM_ID\n\n                                 LINE\r\n--xXPubSubXx\r\n
 *
 * and, for bitly's clients too, whole lines.
 *
 * 1. The bytes are fed in the stream's order, cut anywhere, and formed in steps, so that who feeds them can wait for room
 *    between: short lines grow thirtyfold.
 * 2. An event's id is the cursor behind its line; whoever resumes from it gets what follows, once.
 * 3. In an event a CR within the line, which to a browser ends a field, begins a new data field. So an LF in what the
 *    browser hands out always stands for a CR. All other bytes go as they are; a browser shows U+FFFD for what is no
 *    UTF-8.
 * 4. bitly's clients take each chunk of a response for a message, or for whole lines, and drop what else is in it. So what
 *    comes of a step is to be one chunk: a part, or lines whose last is whole.
 * 5. Of an event nothing is formed before its line is whole or FRAMING_STEP bytes of it are there: a line whose end will
 *    not come leaves no half of an event, unless it is longer. Parts and whole lines are gathered up to the longest line
 *    that may be published.
 */
#ifndef MILLRACE_PUBSUB_FRAMING_H
#define MILLRACE_PUBSUB_FRAMING_H

#include "journal/journal.h"

#define FRAMING_MULTIPART_TYPE "multipart/x-mixed-replace; boundary=xXPubSubXx"

#define FRAMING_STEP ((size_t)16 * 1024) /* about so much comes of a step that makes events */

enum framing_form { FRAMING_EVENTS, FRAMING_PARTS, FRAMING_LINES };

struct framing {
    enum framing_form form;
    const char *id;  /* the stream's; borrowed */
    uint64_t offset; /* events: of the next byte to form */
    bool in_line;    /* events: of a line the beginning was formed, and not the end */
    struct buf cut;  /* the beginning of a line whose end has not come, and of which nothing was formed */
};
void framing_free(struct framing *f);

/* What the response begins with. Of events: how soon to come back, and the cursor it begins at, so that a client that is
 * cut off before the first line comes back for that line. */
void framing_begin(struct framing *f, struct buf *out);
/* A step: forms what is first of the piece, at least a byte, and cuts it off there. What comes of it, perhaps nothing, is
 * appended to `out`. */
void framing_take(struct framing *f, struct bytes *piece, struct buf *out);
/* A `gap` event: what is from edges->before to edges->after is gone; the lines go on at `after`. Not within a line; the
 * beginning of one is dropped. */
void framing_add_gap(struct framing *f, const struct journal_edges *edges, struct buf *out);
void framing_add_heartbeat(struct buf *out); /* a comment; not within a line */

/* A Last-Event-ID: "OFFSET:STREAM_ID", or "OFFSET" alone (*id is then empty). */
bool framing_parse_id(struct bytes text, uint64_t *offset, struct bytes *id);

#endif
