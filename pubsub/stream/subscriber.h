/* subscriber: one reader of a stream at its own speed, pulling windows of committed bytes into a sink.
 *
 *     check the cursor ──▶ refuse                     (once, instead of start)
 *            │
 *            ▼
 *          start ──▶ write, write, ... ──▶ end        (end once)
 *            ▲                  │
 *            └── woken by a commit, or by the sink having room again
 *
 * The sink is whatever delivers: an HTTP response, a test's buffer. Nothing here knows sockets.
 *
 * Invariants
 * 1. What is written is exactly the stream's committed bytes from the start offset on, in order, once but for what the
 *    sink takes back.
 * 2. A piece is written only while the sink holds no more than SUBSCRIBER_LOW bytes: a slow sink costs at most
 *    SUBSCRIBER_LOW and one window, its own or shared with others, and delays nobody else. One that took all that
 *    it was given gets more at a time, up to SUBSCRIBER_BURST, until it does not. One that has read as much since
 *    the last tick gets a stretch of the backlog at a time. What is sent from a file takes no memory. A sink that then
 *    takes little may take back what it has not sent (subscriber_go_back): it is written again, in small pieces.
 * 3. The cursor is judged before start: the byte before it must be an LF, or it must be where a part of the
 *    stream begins. The first window is read before start too, so that a cursor at the near edge of a hole
 *    is refused (it can never yield a byte) rather than answered with nothing.
 * 4. Without `follow` it ends at the committed end of the moment of its start, once the sink holds no more than
 *    SUBSCRIBER_LOW.
 * 5. A hole met later ends it: whoever counted the bytes comes back with a cursor that invariant 3 refuses,
 *    naming both edges, so that nothing is skipped unsaid.
 * 6. When retention passes it, it is ended with the edges of what it missed. What was written before is the
 *    sink's to deliver. Before its start it is refused when it named an offset, else it begins where the stream does now.
 * 7. refuse, start, write and end are never called from inside subscriber_new; no call follows refuse or end.
 *    The sink may free the subscriber in refuse and end, not in start and write.
 *
 * Who is near the end gets its bytes from the stream's tail, which has them once for all (tail.h). Who is further
 * behind, and fast, gets them from the stream's backlog, which reads them once for all who come by (backlog.h). Who is
 * slow, and would need what all others have long passed, has a reader of its own, and so has whoever wants another form.
 */
#ifndef MILLRACE_PUBSUB_SUBSCRIBER_H
#define MILLRACE_PUBSUB_SUBSCRIBER_H

#include "pubsub/stream/backlog.h"
#include "pubsub/stream/stream.h"
#include "pubsub/stream/tail.h"

#define SUBSCRIBER_LOW ((size_t)16 * 1024)
#define SUBSCRIBER_BURST ((size_t)256 * 1024) /* at most at a time, to a sink that took all before */

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
    /* Borrowed; whoever needs it longer holds the window. */
    void (*write)(void *arg, struct bytes piece, struct window *window);
    /* edges: of AT_HOLE and PASSED, else NULL */
    void (*end)(void *arg, enum subscriber_end why, const struct journal_edges *edges);
    /* As `write`, for bytes that are to be sent from a file (journal_file): whoever needs it longer holds the file. NULL: all
     * comes by `write`. */
    void (*write_spans)(void *arg, struct journal_file *file, const struct journal_span *spans, size_t n);
};

struct subscriber_config {
    struct stream *stream;
    struct stream_from from;
    bool follow;
    size_t window;               /* of the largest piece; 0: as comes */
    bool is_own;                 /* nobody's who asked: not counted where a stream's subscribers are told */
    bool start_only;             /* ends right after start: for those who only ask where a cursor stands */
    struct subscriber_sink sink; /* copied */
};

struct subscriber *subscriber_new(const struct subscriber_config *config);
/* Frees it at any time, without a call of the sink. */
void subscriber_free(struct subscriber **sub);

/* Begins: judges the cursor. Called once, right after subscriber_new. May call refuse at once. */
void subscriber_begin(struct subscriber *sub);
/* The sink has room again (pending fell to SUBSCRIBER_LOW or under). */
void subscriber_drained(struct subscriber *sub);
/* The sink has taken back what was written from `offset` on; only while it waits for the sink or for the stream. */
bool subscriber_may_go_back(const struct subscriber *sub);
void subscriber_go_back(struct subscriber *sub, uint64_t offset);
uint64_t subscriber_offset(const struct subscriber *sub); /* of the next byte to write */
bool subscriber_started(const struct subscriber *sub);    /* start was called */

#endif
