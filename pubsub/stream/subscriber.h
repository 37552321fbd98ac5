/* subscriber: reads a stream at its own speed and writes the committed bytes to a sink.
 *
 *     check the cursor ──▶ refuse                     (at most once, instead of start)
 *            │
 *            ▼
 *          start ──▶ write, write, ... ──▶ end        (end at most once)
 *            ▲                  │
 *            └── woken by a commit, by a finished read, or by room in the sink
 *
 * The sink delivers the bytes: to an HTTP response, an nng socket, or a test's buffer. All bytes come from the stream's
 * block_cache.
 *
 * 1. The sink gets exactly the stream's committed bytes from the start offset on, in order, each once. Bytes that the sink takes
 *    back are written again.
 * 2. A piece is written only while at most SUBSCRIBER_LOW bytes are pending, or SUBSCRIBER_BURST after spans of a file.
 *    So a slow subscriber needs at most SUBSCRIBER_LOW bytes and one small window, and does not delay others. A
 *    subscriber that wrote SUBSCRIBER_BURST within a tick is fast: its pieces may be large windows and spans. When its
 *    client stops, the sink takes back the unsent bytes (subscriber_go_back), and the subscriber is slow again.
 * 3. The cursor is checked before start: it is at the end of a line, or where the stream begins or continues after a hole. The
 *    first block is read before start too, so a cursor at the near edge of a hole is refused.
 * 4. Without `follow` the subscriber ends where the committed end was at its start, once at most SUBSCRIBER_LOW bytes
 *    are pending.
 * 5. The subscriber ends at a hole. A client that resumes there is refused by invariant 3, with both edges.
 * 6. When retention deletes bytes that are not written yet, the subscriber ends with the edges of the missing bytes. If
 *    this happens before start, a subscriber with an explicit offset is refused; any other starts at the new earliest
 *    offset.
 * 7. subscriber_new calls no function of the sink, and none is called after refuse or end. The sink may free the
 *    subscriber in refuse and end, but not in start and write. */
#ifndef MILLRACE_PUBSUB_SUBSCRIBER_H
#define MILLRACE_PUBSUB_SUBSCRIBER_H

#include "pubsub/stream/stream.h"
#include "pubsub/stream/window.h"

#define SUBSCRIBER_LOW ((size_t)16 * 1024)
#define SUBSCRIBER_BURST ((size_t)256 * 1024)

enum subscriber_end {
    SUBSCRIBER_AT_END,  /* without `follow`: everything is written */
    SUBSCRIBER_AT_HOLE, /* the next bytes are lost: see the edges */
    SUBSCRIBER_PASSED,  /* retention has deleted the next bytes: see the edges */
    SUBSCRIBER_DAMAGED, /* the next bytes are damaged: journal_failure names file and position */
    SUBSCRIBER_CLOSED,  /* the journal is being closed */
};

enum subscriber_refusal {
    SUBSCRIBER_BEYOND, /* the cursor is past the committed end */
    SUBSCRIBER_INSIDE, /* the cursor is inside a line */
    SUBSCRIBER_GONE,   /* the cursor is in a hole or below the earliest offset: see the edges */
    SUBSCRIBER_UNREADABLE,
};

struct subscriber_sink {
    void *arg;
    size_t (*pending)(void *arg); /* bytes written and not yet delivered */
    void (*refuse)(void *arg, enum subscriber_refusal why, const struct journal_edges *edges);
    void (*start)(void *arg, uint64_t offset, uint64_t end); /* `end` is the committed end */
    /* The piece is borrowed; hold the window to keep it. */
    void (*write)(void *arg, struct bytes piece, struct window *window);
    /* `edges` is NULL except with AT_HOLE and PASSED. */
    void (*end)(void *arg, enum subscriber_end why, const struct journal_edges *edges);
    /* Like `write`, for bytes to be sent from a file; hold the file to keep the spans. NULL: all pieces are windows. */
    void (*write_spans)(void *arg, struct journal_file *file, const struct journal_span *spans, size_t n);
};

struct subscriber_config {
    struct stream *stream;
    struct stream_from from;
    bool follow;
    size_t piece_max;            /* maximum bytes of a window's piece; 0: unlimited */
    bool is_internal;            /* not counted among the stream's subscribers */
    bool start_only;             /* only check the cursor: end directly after start */
    struct subscriber_sink sink; /* copied */
};

struct subscriber *subscriber_new(const struct subscriber_config *config);
/* Frees a subscriber in any state, without a call to the sink. */
void subscriber_free(struct subscriber **sub);

/* Checks the cursor. Call it once, directly after subscriber_new. It may call refuse. */
void subscriber_begin(struct subscriber *sub);
/* Call it when the pending bytes fall to SUBSCRIBER_LOW. */
void subscriber_drained(struct subscriber *sub);
/* The sink has taken back the bytes from `offset` on. Only after start. */
void subscriber_go_back(struct subscriber *sub, uint64_t offset);

#endif
