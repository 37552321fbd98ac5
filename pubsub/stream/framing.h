/* framing: a stream's lines in other forms than its bytes.
 *
 * Server-Sent Events, for browsers:                        bitly's multipart/x-mixed-replace:
 *     data: LINE\n                                             content-type, content-length: N
 *     id: OFFSET:STREAM_ID\n\n                                 LINE\r\n--xXPubSubXx\r\n
 *
 * and chunks of whole lines, for bitly's clients too.
 *
 * 1. Bytes are fed in order, cut anywhere, and formed in steps, so that the caller can wait for room in between: short lines grow
 *    thirtyfold.
 * 2. An event's id is the cursor after its line; a client that resumes there gets every line once.
 * 3. A CR within a line, which would end a field, begins a new data field: an LF in the browser's text was a CR. Other bytes stay;
 *    a browser shows U+FFFD for invalid UTF-8.
 * 4. Clients of bitly's take each chunk for one message, or for whole lines, and drop the rest of it. So the result of a step must
 *    be sent as one chunk: a part, or whole lines.
 * 5. An event is formed once its line is complete or has FRAMING_STEP bytes, so an incomplete shorter line leaves nothing. Parts
 *    and lines are gathered up to the longest line.
 */
#ifndef MILLRACE_PUBSUB_FRAMING_H
#define MILLRACE_PUBSUB_FRAMING_H

#include "journal/journal.h"

#define FRAMING_MULTIPART_TYPE "multipart/x-mixed-replace; boundary=xXPubSubXx"

#define FRAMING_STEP ((size_t)16 * 1024) /* about the result of a step of events */

enum framing_form { FRAMING_EVENTS, FRAMING_PARTS, FRAMING_LINES };

struct framing {
    enum framing_form form;
    const char *id;  /* the stream's; borrowed */
    uint64_t offset; /* events: of the next byte to form */
    bool in_line;    /* events: a line's beginning was formed, its end was not */
    struct buf cut;  /* the beginning of an incomplete line, not formed yet */
};
void framing_free(struct framing *f);

/* The response's beginning. Of events: the reconnect time and the first cursor, for a client that is cut off before the first
 * line. */
void framing_begin(struct framing *f, struct buf *out);
/* A step: takes at least a byte off the front of the piece, and appends what it forms, perhaps nothing, to `out`. */
void framing_take(struct framing *f, struct bytes *piece, struct buf *out);
/* A `gap` event: the bytes between the edges are gone, lines continue at `after`. Not within a line; drops an incomplete
 * one. */
void framing_add_gap(struct framing *f, const struct journal_edges *edges, struct buf *out);
void framing_add_heartbeat(struct buf *out); /* a comment; not within a line */

/* A Last-Event-ID: "OFFSET:STREAM_ID", or "OFFSET" alone (*id is then empty). */
bool framing_parse_id(struct bytes text, uint64_t *offset, struct bytes *id);

#endif
