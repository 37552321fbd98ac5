/* subscriber: reads a stream at the speed of its client and writes the committed bytes to a sink.
 *
 *     check the cursor ──▶ refuse                     (at most once, instead of start)
 *            │
 *            ▼
 *          start ──▶ write, write, ... ──▶ end        (end at most once)
 *            ▲                  │
 *            └── woken by a commit, by a finished read, or by room in the sink
 *
 * The sink delivers the bytes: to an HTTP response, an nng socket, or a test's buffer. The subscriber reads all bytes
 * from the stream's block_cache.
 *
 * 1. The sink gets all committed bytes of the stream from the start offset on, in order, each byte once. Bytes that
 *    the sink takes back are written again.
 * 2. A piece is written only if at most SUBSCRIBER_LOW bytes are pending, or at most SUBSCRIBER_BURST bytes if the
 *    last piece consisted of spans. Therefore a slow subscriber uses at most SUBSCRIBER_LOW bytes and one small
 *    window, and does not delay other subscribers. A subscriber that writes SUBSCRIBER_BURST within a tick is fast,
 *    and its pieces may be large windows and spans. When the client of a fast subscriber stops reading, the sink
 *    takes back the unsent bytes (subscriber_go_back), and the subscriber is slow again.
 * 3. The subscriber checks the cursor before start. The cursor must be at the end of a line, at the beginning of the
 *    stream, or at the end of a hole. The first block is also read before start, so a cursor at the beginning of a
 *    hole is refused.
 * 4. Without `follow`, the subscriber ends at the offset that was the committed end when it started. With
 *    `one_opening`, the subscriber ends where another opening (run of the daemon) begins (journal/opening.h). Before
 *    both ends, the subscriber waits until at most SUBSCRIBER_LOW bytes are pending.
 * 5. The subscriber ends at a hole. A client that resumes at the hole is refused (invariant 3) and gets both edges of
 *    the hole.
 * 6. If retention deletes bytes that are not written yet, the subscriber ends with the edges of the deleted bytes. If
 *    retention deletes the bytes before start, a subscriber with an explicit offset is refused, and any other
 *    subscriber starts at the new earliest offset.
 * 7. subscriber_new calls no function of the sink. After refuse or end, no function of the sink is called. The sink
 *    may free the subscriber in refuse and end, but not in start and write. */
#ifndef MILLRACE_PUBSUB_SUBSCRIBER_H
#define MILLRACE_PUBSUB_SUBSCRIBER_H

#include "pubsub/stream/stream.h"
#include "pubsub/stream/window.h"

#define SUBSCRIBER_LOW ((size_t)16 * 1024)
#define SUBSCRIBER_BURST ((size_t)256 * 1024)

enum subscriber_end {
    SUBSCRIBER_AT_END,  /* all bytes are written (invariant 4) */
    SUBSCRIBER_AT_HOLE, /* the next bytes are lost; `edges` is set */
    SUBSCRIBER_PASSED,  /* retention has deleted the next bytes; `edges` is set */
    SUBSCRIBER_DAMAGED, /* the next bytes are damaged; journal_failure returns file and byte */
    SUBSCRIBER_CLOSED,  /* the journal is being closed */
};

enum subscriber_refusal {
    SUBSCRIBER_BEYOND, /* the cursor is after the committed end */
    SUBSCRIBER_INSIDE, /* the cursor is inside a line */
    SUBSCRIBER_GONE,   /* the cursor is in a hole or before the earliest offset; `edges` is set */
    SUBSCRIBER_UNREADABLE,
};

struct subscriber_sink {
    void *arg;
    size_t (*pending)(void *arg); /* returns the number of bytes written but not yet delivered */
    void (*refuse)(void *arg, enum subscriber_refusal why, const struct journal_edges *edges);
    void (*start)(void *arg, uint64_t offset, uint64_t end); /* `end` is the committed end */
    /* The piece is valid during the call. Call window_hold to keep the piece longer. */
    void (*write)(void *arg, struct bytes piece, struct window *window);
    /* `edges` is NULL, except with SUBSCRIBER_AT_HOLE and SUBSCRIBER_PASSED. */
    void (*end)(void *arg, enum subscriber_end why, const struct journal_edges *edges);
    /* As `write`, but the sink must send the bytes from a file. Call journal_file_hold to keep the spans longer. If
     * write_spans is NULL, all pieces are windows. */
    void (*write_spans)(void *arg, struct journal_file *file, const struct journal_span *spans, size_t n);
};

struct subscriber_config {
    struct stream *stream;
    struct stream_from from;
    bool follow;
    bool one_opening;
    size_t piece_max;            /* maximum bytes of a piece of a window; 0: unlimited */
    bool is_internal;            /* true: the stream does not count the subscriber */
    bool start_only;             /* true: only check the cursor and end after start */
    struct subscriber_sink sink; /* copied */
};

struct subscriber *subscriber_new(const struct subscriber_config *config);
/* Frees a subscriber in any state. Does not call the sink. */
void subscriber_free(struct subscriber **sub);

/* Starts to check the cursor. May already call `refuse`, `start`, `write` and `end` of the sink. */
void subscriber_begin(struct subscriber *sub);
/* Call subscriber_drained when the pending bytes have fallen to SUBSCRIBER_LOW or below. */
void subscriber_drained(struct subscriber *sub);
/* Call subscriber_go_back when the sink has taken back all bytes from `offset` on, but not before start. */
void subscriber_go_back(struct subscriber *sub, uint64_t offset);

#endif
