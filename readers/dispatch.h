/* dispatch: decides which messages of a queue are delivered when, with several deliveries at a time. It uses no clock and
 * no sockets. It is for destinations without marks (queuereader.h).
 *
 *     leased ──▶ ready ──▶ in a run ──▶ done ──▶ acknowledged
 *                  ▲          │
 *                  └── retry ◀┴──▶ poison ──▶ buried
 *
 * A *run* is one delivery of at most max_items messages. At most `parallel` runs are under way. A *lane* is a sequence of
 * messages that must be delivered in order: all messages, all messages of one key, or a single message.
 *
 * 1. Each lane has at most one run under way, with the first messages of the lane. So a failing message delays only its
 *    own lane.
 * 2. Messages of a failed run are delivered again after a delay that grows with each failure in a row. A refused run is
 *    halved, until a single message is refused: the poison message. This message is buried, and its lane continues.
 * 3. No run begins while parallel * max_items messages are delivered but not acknowledged. So if the process dies, at
 *    most twice as many messages are delivered again.
 * 4. A lease is extended until all of its messages are settled. If a lease is lost, only a new start keeps the order: as
 *    after dispatch_stop, no more runs begin, delivered messages are acknowledged, and all others return to the queue.
 *    Once the dispatch is empty, the caller releases its leases and calls dispatch_resume.
 *
 * The caller gets runs from dispatch_run_begin, and one step at a time from dispatch_step. The caller reports each outcome
 * exactly once. Times are monotonic. */
#ifndef MILLRACE_DISPATCH_H
#define MILLRACE_DISPATCH_H

#include "base/clock.h"
#include "readers/batch.h"

struct dispatch;

enum dispatch_order { DISPATCH_IN_ORDER, DISPATCH_BY_KEY, DISPATCH_IN_ANY_ORDER };

struct dispatch_config {
    size_t parallel;
    enum dispatch_order order;
    uint64_t (*key)(
        struct bytes text, void *arg); /* for DISPATCH_BY_KEY: a hash. Equal hashes share a lane */
    void *arg;
    bool lines;       /* messages are lines: an empty message, or one with an LF, is poison */
    size_t items;     /* of a lease */
    size_t max_items; /* maximum messages of a run; at least 1 */
    size_t max_bytes; /* maximum bytes of a run, unless one message is longer; 0: unlimited */
    uint64_t rate;    /* messages a second, failed attempts included; 0: unlimited */
    usec_t lease;
    usec_t backoff_min, backoff_max;
    uint64_t seed;
};

struct dispatch *dispatch_new(const struct dispatch_config *config);
void dispatch_free(struct dispatch **d);

/* True if another lease is wanted. */
bool dispatch_wants_more(const struct dispatch *d);
/* Takes over the messages of a lease that was requested at `asked`, and zeroes the batch. */
void dispatch_add(struct dispatch *d, struct batch *batch, usec_t asked);

struct dispatch_run {
    struct message **messages; /* valid until the outcome is reported */
    size_t n;
    void *user; /* for the caller; NULL at first */
};
/* Returns a run, or NULL: none before *until, unless an outcome is reported before (INT64_MAX: only then). */
struct dispatch_run *dispatch_run_begin(struct dispatch *d, usec_t now, usec_t *until);
/* The outcomes. Each frees the run. */
void dispatch_run_delivered(struct dispatch *d, struct dispatch_run *run);
void dispatch_run_refused(struct dispatch *d, struct dispatch_run *run, const char *reason);
void dispatch_run_failed(
    struct dispatch *d, struct dispatch_run *run, usec_t now);         /* retried after a backoff */
void dispatch_run_again(struct dispatch *d, struct dispatch_run *run); /* retried at once */
size_t dispatch_runs(const struct dispatch *d);                        /* under way */
/* No run begins before that time. */
void dispatch_pause(struct dispatch *d, usec_t until);

/* The next request to the queue. */
enum dispatch_action {
    DISPATCH_NOTHING, /* before `until`, unless an outcome is reported */
    DISPATCH_TOUCH,   /* extend the lease */
    DISPATCH_ACK,     /* acknowledge `ids` */
    DISPATCH_BURY,    /* bury `message` with its reason */
    DISPATCH_NACK,    /* return `ids` to the queue */
};
struct dispatch_step {
    enum dispatch_action action;
    uint64_t lease;
    struct bytes ids; /* "A-B,C", valid until the outcome */
    const struct message *message;
    usec_t until;
};
struct dispatch_step dispatch_step(struct dispatch *d, usec_t now);
void dispatch_step_done(struct dispatch *d);
/* The queue refuses the request for good. Appends the ids of an acknowledgement: these messages will be delivered again. */
void dispatch_step_refused(struct dispatch *d, struct buf *ids);
/* The step is to be repeated. `doubtful`: the queue may have processed it. */
void dispatch_step_failed(struct dispatch *d, bool doubtful);
/* The queue has lost the lease. Appends the ids of its messages that are delivered or in a run. They will be delivered again, unless
 * an earlier, doubtful acknowledgement has deleted them. Stops the dispatch, unless that acknowledgement may have ended the lease. */
void dispatch_step_lost(struct dispatch *d, struct buf *ids);

/* True if a lease has expired. The caller must then call dispatch_stop. */
bool dispatch_has_expired(const struct dispatch *d, usec_t now);
/* No more runs begin. The next steps acknowledge the delivered messages and return all others. */
void dispatch_stop(struct dispatch *d);
bool dispatch_is_stopping(const struct dispatch *d);
bool dispatch_is_empty(const struct dispatch *d); /* no messages and no runs */
/* True if there are runs, or messages to acknowledge or bury. All others may be returned by ending the leases. */
bool dispatch_has_outcomes(const struct dispatch *d);
void dispatch_resume(struct dispatch *d);
/* Appends the ids of messages that are delivered and not acknowledged. */
void dispatch_unacknowledged(const struct dispatch *d, struct buf *ids);

#endif
