/* framing: a stream's lines in the two forms that are not the stream's own bytes.
 *
 * Server-Sent Events, for browsers:                        bitly's multipart/x-mixed-replace:
 *     data: LINE\n                                             content-type, content-length: N
 *     id: OFFSET:STREAM_ID\n\n                                 LINE\r\n--xXPubSubXx\r\n
 *
 * 1. The bytes are fed in the stream's order, cut anywhere; what comes out for each piece is appended to `out`.
 * 2. An event's id is the cursor behind its line; whoever resumes from it gets what follows, once.
 * 3. In an event a CR within the line, which to a browser ends a field, begins a new data field. So an LF in what the
 *    browser hands out always stands for a CR. All other bytes go as they are; a browser shows U+FFFD for what is no
 *    UTF-8.
 * 4. An event is not gathered, however long its line is. A part's length stands before it, so a line that is cut is
 *    gathered, up to the longest line that may be published.
 */
#ifndef MILLRACE_PUBSUB_FRAMING_H
#define MILLRACE_PUBSUB_FRAMING_H

#include "journal.h"

#define FRAMING_MULTIPART_TYPE "multipart/x-mixed-replace; boundary=xXPubSubXx"

struct framing {
    const char *id;  /* the stream's; borrowed */
    uint64_t offset; /* of the next byte fed */
    bool in_line;    /* a line has begun and not ended */
    struct buf cut;  /* multipart: the beginning of a line whose end has not come */
};
void framing_free(struct framing *f);

/* What an event stream begins with: how soon to come back, and the cursor it begins at, so that a client that is cut
 * off before the first line comes back for that line. */
void framing_begin_events(struct framing *f, struct buf *out);
void framing_add_events(struct framing *f, struct bytes piece, struct buf *out);
/* A `gap` event: what is from edges->before to edges->after is gone; the lines go on at `after`. Not within a line. */
void framing_add_gap(struct framing *f, const struct journal_edges *edges, struct buf *out);
void framing_add_heartbeat(struct buf *out); /* a comment; not within a line */

void framing_begin_parts(struct buf *out);
void framing_add_parts(struct framing *f, struct bytes piece, struct buf *out);

/* A Last-Event-ID: "OFFSET:STREAM_ID", or "OFFSET" alone (*id is then empty). */
bool framing_parse_id(struct bytes text, uint64_t *offset, struct bytes *id);

#endif
