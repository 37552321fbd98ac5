/* framing: formats the lines of a stream for browsers and for bitly's clients.
 *
 *     Server-Sent Events:               multipart/x-mixed-replace, as bitly's:
 *         data: LINE\n                     content-type, content-length: N
 *         id: OFFSET:STREAM_ID.OPENING      LINE\r\n--xXPubSubXx\r\n
 *
 * FRAMING_LINES does not change the text, but divides it into chunks of whole lines.
 *
 * 1. The caller passes the text in order, in pieces that may begin and end anywhere. A piece is formatted in steps,
 *    so that the caller can wait for room in the output between two steps. Steps are necessary because an event or a
 *    part may be fifty times as long as its line.
 * 2. The id of an event is the cursor after the line of the event. A client that resumes at this cursor gets every
 *    line once. The id contains the opening of the byte before the cursor (journal/opening.h). With the opening, a
 *    restored copy of the stream recognizes a cursor that is not from its past.
 * 3. In an event, a CR within a line would end the data field. Therefore a new data field begins after each CR, and
 *    the browser gets an LF instead of the CR. All other bytes are unchanged. A browser shows invalid UTF-8 as
 *    U+FFFD.
 * 4. bitly's clients expect that each chunk contains one part, or whole lines. Therefore, with FRAMING_PARTS and
 *    FRAMING_LINES, the caller must send the result of each step as one chunk.
 * 5. With FRAMING_PARTS and FRAMING_LINES, a line is formatted only when the line is complete. With FRAMING_EVENTS,
 *    the beginning of an incomplete line is also formatted if the beginning has at least FRAMING_STEP bytes. */
#ifndef MILLRACE_PUBSUB_FRAMING_H
#define MILLRACE_PUBSUB_FRAMING_H

#include "journal/journal.h"

#define FRAMING_MULTIPART_TYPE "multipart/x-mixed-replace; boundary=xXPubSubXx"
/* A comment of an event stream, allowed only between lines */
#define FRAMING_HEARTBEAT BYTES_LITERAL(":\n\n")

#define FRAMING_STEP ((size_t)16 * 1024) /* approximate size of a step of events */

enum framing_form { FRAMING_EVENTS, FRAMING_PARTS, FRAMING_LINES };

struct framing {
    enum framing_form form;
    const char *id; /* the stream's id; borrowed */
    /* The members up to `in_line` are only for events. */
    /* the stream's journal, which contains the openings; NULL: ids contain no opening */
    const struct journal *journal;
    uint64_t offset;            /* offset of the next byte to format; see framing_set_offset */
    char opening[OPENING_TEXT]; /* opening of the bytes before `until` */
    uint64_t until;             /* end of the bytes with `opening`; 0: `opening` is not known */
    bool in_line;               /* only the beginning of a line is formatted */

    struct buf cut; /* the unformatted beginning of an incomplete line */
};
void framing_free(struct framing *f);
/* Sets the offset up to which the client has all bytes. Call framing_set_offset before framing_begin and
 * framing_add_gap. */
void framing_set_offset(struct framing *f, uint64_t offset);

/* Appends the start of the response. With FRAMING_EVENTS, the start contains the reconnect time and the first cursor.
 * A client that disconnects before the first line resumes at the first cursor. */
void framing_begin(struct framing *f, struct buf *out);
/* Performs one step: removes at least one byte from the front of the piece, and appends the formatted text, which may
 * be empty. */
void framing_take(struct framing *f, struct bytes *piece, struct buf *out);
/* Appends a `gap` event, which reports that the bytes between the edges are lost and that the next line begins at
 * `after`. framing_add_gap drops the beginning of an incomplete line. */
void framing_add_gap(struct framing *f, const struct journal_edges *edges, struct buf *out);

/* Parses a Last-Event-ID: "OFFSET:STREAM_ID.OPENING", "OFFSET:STREAM_ID" or "OFFSET". For "OFFSET", *id is empty. */
bool framing_parse_id(struct bytes text, uint64_t *offset, struct bytes *id);

#endif
