/* framing: formats the lines of a stream for browsers and for bitly's clients.
 *
 *     Server-Sent Events:               multipart/x-mixed-replace, as bitly's:
 *         data: LINE\n                     content-type, content-length: N
 *         id: OFFSET:STREAM_ID.OPENING      LINE\r\n--xXPubSubXx\r\n
 *
 * FRAMING_LINES does not change the text, but divides it into chunks of whole lines.
 *
 * 1. The caller passes the text in order, in pieces that may begin and end anywhere. A piece is formatted in steps,
 *    so that the caller can wait for room in the output between two steps. This is necessary because short lines
 *    become up to fifty times as long as events or parts.
 * 2. The id of an event is the cursor after its line. If a client resumes there, it gets every line once. With the opening of
 *    the byte before the cursor (journal/opening.h), a restored copy of the stream recognizes a cursor that is not of its past.
 * 3. In an event, a CR within a line would end the field. So after each CR a new data field begins, and the browser
 *    gets an LF instead of the CR. All other bytes are unchanged. For invalid UTF-8 a browser shows U+FFFD.
 * 4. bitly's clients expect that each chunk contains one part, or whole lines. So with FRAMING_PARTS and
 *    FRAMING_LINES the caller must send the result of each step as one chunk.
 * 5. Parts and lines are formatted only when the line is complete. For events, the beginning of an incomplete line is
 *    also formatted if it has at least FRAMING_STEP bytes. */
#ifndef MILLRACE_PUBSUB_FRAMING_H
#define MILLRACE_PUBSUB_FRAMING_H

#include "journal/journal.h"

#define FRAMING_MULTIPART_TYPE "multipart/x-mixed-replace; boundary=xXPubSubXx"
#define FRAMING_HEARTBEAT BYTES_LITERAL(":\n\n") /* a comment of an event stream; only between lines */

#define FRAMING_STEP ((size_t)16 * 1024) /* approximate size of a step of events */

enum framing_form { FRAMING_EVENTS, FRAMING_PARTS, FRAMING_LINES };

struct framing {
    enum framing_form form;
    const char *id; /* the stream's; borrowed */
    /* events: */
    const struct journal *journal; /* knows the openings; NULL: ids have none */
    uint64_t offset;               /* of the next byte to format; see framing_set_offset */
    char opening[OPENING_TEXT];    /* of the bytes before `until` */
    uint64_t until;                /* 0: look the opening up */
    bool in_line;                  /* only the beginning of a line is formatted */

    struct buf cut; /* the unformatted beginning of an incomplete line */
};
void framing_free(struct framing *f);
/* Call this before framing_begin and framing_add_gap: the client has the bytes before `offset`. */
void framing_set_offset(struct framing *f, uint64_t offset);

/* Appends the start of the response. For events this is the reconnect time and the first cursor. If the client
 * disconnects before the first line, it resumes at this cursor. */
void framing_begin(struct framing *f, struct buf *out);
/* Performs one step: removes at least one byte from the front of the piece and appends the formatted text. The text
 * may be empty. */
void framing_take(struct framing *f, struct bytes *piece, struct buf *out);
/* Appends a `gap` event: the bytes between the edges are gone, and the next line begins at `after`. The function
 * drops the beginning of an incomplete line. */
void framing_add_gap(struct framing *f, const struct journal_edges *edges, struct buf *out);

/* Parses a Last-Event-ID: "OFFSET:STREAM_ID.OPENING", the same without the opening, or only "OFFSET". In the last case
 * *id is empty. */
bool framing_parse_id(struct bytes text, uint64_t *offset, struct bytes *id);

#endif
