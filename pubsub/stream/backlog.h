/* backlog: what of a stream lies behind its tail, read and verified once for all who come by soon after each other.
 *
 *     journal ── a reader for each place where somebody is ──▶ stretches ──▶ any number of subscribers
 *
 * A *stretch* is a run of the stream's bytes. Where frames are large it is spans of a segment's file, to be sent from
 * there without a copy; where they are small it is a window (window.h), copied out of the frames and sent in one go.
 *
 * 1. What is handed out was committed and verified. A span is handed out only while its file has not been changed since
 *    it was verified and that was at most BACKLOG_TRUST ago; else it is verified again. (What may still go wrong between
 *    the check and the socket: docs/guide/streams.md.)
 * 2. Spans are handed out whole, windows from any place on: who stands inside a frame gets a stretch that begins there.
 * 3. Memory: at most BACKLOG_COPIED_MAX stretches with windows and BACKLOG_LOCATED_MAX of spans, and nothing that nobody has asked for
 *    in BACKLOG_TRUST. Of what somebody still sends, windows and files live on; when those are many, stretches are short
 *    (window_may_be_large).
 * 4. A reader holds its segment only until tidied or trimmed; a stretch holds none.
 * 5. Where reading stops (a hole, damage) those who ask are told to read for themselves, and find the reason.
 *
 * The loop thread only; `grown` is called from journal_set_poll and from backlog_trim.
 */
#ifndef MILLRACE_PUBSUB_BACKLOG_H
#define MILLRACE_PUBSUB_BACKLOG_H

#include "journal/journal.h"
#include "pubsub/stream/window.h"

#define BACKLOG_READERS_MAX ((size_t)8)
#define BACKLOG_COPY_MAX ((size_t)512 * 1024) /* bytes of a stretch in a window */
#define BACKLOG_COPIED_MAX ((size_t)8)
#define BACKLOG_LOCATED_MAX ((size_t)1024)
#define BACKLOG_TRUST (10 * USEC_PER_SEC)
#define BACKLOG_PIECE_MAX                                                                                    \
    ((uint64_t)512 * 1024)             /* spans handed out at a time end with the one that passes it ... */
#define BACKLOG_SPANS_MAX ((size_t)12) /* ... or are so many: each takes a KB while it waits for its socket */

struct backlog;

/* `grown`: those who wait are to ask again. */
struct backlog *backlog_new(struct journal *j, void (*grown)(void *arg), void *arg);
void backlog_free(struct backlog **b);

struct backlog_piece {
    struct window *window; /* NULL: spans */
    struct bytes bytes;    /* of the window */
    struct journal_file *file;
    const struct journal_span *spans;
    size_t n_spans;
};
enum backlog_answer {
    BACKLOG_HAS,   /* *piece: at least a byte, from the offset on; good until the next call here */
    BACKLOG_WAITS, /* they come: `grown` will be called */
    BACKLOG_NOT,   /* read for yourself */
};
/* `offset` is below `end`, at or behind which nothing is handed out; a frame ends there. */
enum backlog_answer backlog_ask(
    struct backlog *b, uint64_t offset, uint64_t end, struct backlog_piece *piece);
/* To be called now and then, with the monotonic clock. */
void backlog_tidy(struct backlog *b, usec_t now);
/* What is below `earliest` is to go. */
void backlog_trim(struct backlog *b, uint64_t earliest);

#endif
