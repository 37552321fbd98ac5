/* subscriber: reads a stream at its own speed, and writes committed bytes into a sink.
 *
 *     check the cursor ──▶ refuse                     (once, instead of start)
 *            │
 *            ▼
 *          start ──▶ write, write, ... ──▶ end        (end once)
 *            ▲                  │
 *            └── woken by a commit, a block that was read, or room in the sink
 *
 * The sink delivers: an HTTP response, an nng socket, a test's buffer. All bytes come from the stream's block_cache.
 *
 * 1. The sink gets exactly the stream's committed bytes from the start offset on, in order and once, except for bytes it
 *    takes back.
 * 2. A piece is written only while the sink holds no more than SUBSCRIBER_LOW bytes. So a slow sink costs at most
 *    SUBSCRIBER_LOW and one window, and delays no other. A sink that takes each piece at once gets up to SUBSCRIBER_BURST
 *    at a time. After SUBSCRIBER_BURST within a tick it gets large windows and spans of files. When it then stops, it takes
 *    back what is unsent (subscriber_go_back), and gets the same bytes in small pieces.
 * 3. The cursor is checked before start: the byte before it must be an LF, or a part of the stream must begin there. The
 *    first block is read before start too, so a cursor at the near edge of a hole is refused, not answered with nothing.
 * 4. Without `follow` it ends at the end committed when it started, once the sink holds no more than SUBSCRIBER_LOW.
 * 5. A hole ends it. A client that resumes with its own byte count is refused by invariant 3, with both edges.
 * 6. When retention takes bytes that it has not written, it ends with the edges of the missing part. Before its start it
 *    is refused if it named an offset; otherwise it starts at the stream's new beginning.
 * 7. subscriber_new calls nothing of the sink. No call follows refuse or end. The sink may free the subscriber in refuse
 *    and end, not in start and write.
 */
#ifndef MILLRACE_PUBSUB_SUBSCRIBER_H
#define MILLRACE_PUBSUB_SUBSCRIBER_H

#include "pubsub/stream/stream.h"
#include "pubsub/stream/window.h"

#define SUBSCRIBER_LOW ((size_t)16 * 1024)
#define SUBSCRIBER_BURST ((size_t)256 * 1024)

enum subscriber_end {
    SUBSCRIBER_AT_END,  /* not following, and all was written */
    SUBSCRIBER_AT_HOLE, /* the bytes that follow were lost: see the edges */
    SUBSCRIBER_PASSED,  /* retention took the bytes that follow: see the edges */
    SUBSCRIBER_DAMAGED, /* the journal cannot be read on: journal_failure names file and position */
    SUBSCRIBER_CLOSED,  /* the journal is being closed */
};

enum subscriber_refusal {
    SUBSCRIBER_BEYOND, /* past the committed end */
    SUBSCRIBER_INSIDE, /* inside a line */
    SUBSCRIBER_GONE,   /* in a hole or below the earliest: see the edges */
    SUBSCRIBER_UNREADABLE,
};

struct subscriber_sink {
    void *arg;
    size_t (*pending)(void *arg); /* bytes written and not yet taken on */
    void (*refuse)(void *arg, enum subscriber_refusal why, const struct journal_edges *edges);
    void (*start)(void *arg, uint64_t offset, uint64_t end); /* end: committed at this moment */
    /* Borrowed; hold the window to keep the piece. */
    void (*write)(void *arg, struct bytes piece, struct window *window);
    /* edges: of AT_HOLE and PASSED, else NULL */
    void (*end)(void *arg, enum subscriber_end why, const struct journal_edges *edges);
    /* As `write`, for bytes to be sent from a file; hold the file to keep the spans. NULL: all bytes come by `write`. */
    void (*write_spans)(void *arg, struct journal_file *file, const struct journal_span *spans, size_t n);
};

struct subscriber_config {
    struct stream *stream;
    struct stream_from from;
    bool follow;
    size_t piece_max;            /* bytes of a piece in memory; 0: no limit */
    bool is_internal;            /* not a client: not counted among the stream's subscribers */
    bool start_only;             /* ends right after start: to check a cursor */
    struct subscriber_sink sink; /* copied */
};

struct subscriber *subscriber_new(const struct subscriber_config *config);
/* Frees it at any time, without a call of the sink. */
void subscriber_free(struct subscriber **sub);

/* Begins: judges the cursor. Called once, right after subscriber_new. May call refuse at once. */
void subscriber_begin(struct subscriber *sub);
/* The sink has room again (pending fell to SUBSCRIBER_LOW or under). */
void subscriber_drained(struct subscriber *sub);
/* The sink has taken back what was written from `offset` on; after start only. */
void subscriber_go_back(struct subscriber *sub, uint64_t offset);

#endif
