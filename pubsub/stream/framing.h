/* framing: formats the lines of a stream for browsers and for bitly's clients.
 *
 *     Server-Sent Events:               multipart/x-mixed-replace, as bitly's:
 *         data: LINE\n                     content-type, content-length: N
 *         id: OFFSET:STREAM_ID\n\n         LINE\r\n--xXPubSubXx\r\n
 *
 * FRAMING_LINES leaves the text unchanged, but cuts it into chunks of whole lines.
 *
 * 1. The input arrives in order, in pieces cut anywhere. It is formatted in steps, so that the caller can wait for room
 *    between two steps, because events and parts of short lines are up to thirty times as long.
 * 2. An event's id is the cursor after its line. A client that resumes there gets every line once.
 * 3. A CR inside a line would end the field, so it starts a new data field: the browser shows it as an LF. Other bytes are
 *    unchanged; a browser shows U+FFFD for invalid UTF-8.
 * 4. bitly's clients expect one part, or whole lines, in each chunk. So with FRAMING_PARTS and FRAMING_LINES, send the
 *    result of each step as one chunk.
 * 5. Parts and lines are formatted once they are complete. The beginning of an event's line is formatted once it has
 *    FRAMING_STEP bytes; a shorter incomplete line adds nothing to the output. */
#ifndef MILLRACE_PUBSUB_FRAMING_H
#define MILLRACE_PUBSUB_FRAMING_H

#include "journal/journal.h"

#define FRAMING_MULTIPART_TYPE "multipart/x-mixed-replace; boundary=xXPubSubXx"
#define FRAMING_HEARTBEAT BYTES_LITERAL(":\n\n") /* a comment of an event stream; only between lines */

#define FRAMING_STEP ((size_t)16 * 1024) /* approximate bytes of a step of events */

enum framing_form { FRAMING_EVENTS, FRAMING_PARTS, FRAMING_LINES };

struct framing {
    enum framing_form form;
    const char *id;  /* the stream's; borrowed */
    uint64_t offset; /* events: of the next byte to format */
    bool in_line;    /* events: the beginning of a line is formatted, its end is not */
    struct buf cut;  /* the unformatted beginning of an incomplete line */
};
void framing_free(struct framing *f);

/* Appends the start of the response. For events this is the reconnect time and the first cursor, from which a client
 * resumes if it disconnects before the first line. */
void framing_begin(struct framing *f, struct buf *out);
/* Performs a step: removes at least one byte from the front of the piece and appends the formatted text, which may be
 * empty. */
void framing_take(struct framing *f, struct bytes *piece, struct buf *out);
/* Appends a `gap` event: the bytes between the edges are gone, and lines continue at `after`. Do not call it within a
 * line. Drops the beginning of an incomplete line. */
void framing_add_gap(struct framing *f, const struct journal_edges *edges, struct buf *out);

/* Parses a Last-Event-ID: "OFFSET:STREAM_ID", or "OFFSET" alone (*id is then empty). */
bool framing_parse_id(struct bytes text, uint64_t *offset, struct bytes *id);

#endif
