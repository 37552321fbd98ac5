/* dispatch: decides which messages of a queue are delivered, and when. Several deliveries may be in progress at a time.
 * dispatch uses no clock and no sockets. For destinations with marks, see queuereader.h.
 *
 *     leased ──▶ ready ──▶ in a run ──▶ done ──▶ acknowledged
 *                  ▲          │
 *                  └── retry ◀┴──▶ poison ──▶ buried
 *
 * A *run* is one delivery of at most max_items messages. At most `parallel` runs are in progress. A *lane* is a
 * sequence of messages that must be delivered in order. Depending on `order`, a lane contains all messages, all
 * messages of one key, or a single message.
 *
 * 1. Each lane has at most one run in progress, with the first messages of the lane. A failing message therefore delays
 *    only the messages in the same lane.
 * 2. Messages of a failed run are delivered again after a delay that grows with each failure in a row. A refused run is
 *    halved, until a single message is refused (the *poison message*). The poison message is buried, and its lane
 *    continues.
 * 3. No run begins while parallel * max_items messages are delivered but not acknowledged. If the process dies, at most
 *    twice this number of messages is therefore delivered again.
 * 4. A lease is extended until all of its messages are settled. After a lost lease, only a new start keeps the order.
 *    As after dispatch_stop, no more runs begin, delivered messages are acknowledged, and all other messages return
 *    to the queue. Once the dispatch is empty, the caller releases its leases and calls dispatch_resume.
 *
 * The caller gets runs from dispatch_run_begin, and steps from dispatch_step, one at a time. The caller reports the
 * outcome of each run and step exactly once. Times are monotonic. */
#ifndef MILLRACE_DISPATCH_H
#define MILLRACE_DISPATCH_H

#include "base/clock.h"
#include "readers/batch.h"

struct dispatch;

enum dispatch_order { DISPATCH_IN_ORDER, DISPATCH_BY_KEY, DISPATCH_IN_ANY_ORDER };

struct dispatch_config {
    size_t parallel;
    enum dispatch_order order;
    /* DISPATCH_BY_KEY: returns a hash of the message's key. Messages with equal hashes share a lane. */
    uint64_t (*key)(struct bytes text, void *arg);
    void *arg;
    bool lines;       /* messages are lines: empty messages and messages with an LF are poison */
    size_t items;     /* maximum messages of a lease */
    size_t max_items; /* maximum messages of a run; at least 1 */
    size_t max_bytes; /* maximum bytes of a run with several messages; 0: unlimited */
    uint64_t rate;    /* messages per second, including failed attempts; 0: unlimited */
    usec_t lease;
    usec_t backoff_min, backoff_max;
    uint64_t seed;
};

struct dispatch *dispatch_new(const struct dispatch_config *config);
void dispatch_free(struct dispatch **d);

/* Returns true if the caller should request another lease. */
bool dispatch_wants_more(const struct dispatch *d);
/* Takes over the messages of a lease that the caller requested at time `asked`, and zeroes the batch. */
void dispatch_add(struct dispatch *d, struct batch *batch, usec_t asked);

struct dispatch_run {
    struct message **messages; /* valid until the outcome is reported */
    size_t n;
    void *user; /* a pointer for the caller; NULL in a new run */
};
/* Returns a run, or NULL if no run is due. Call dispatch_run_begin again after the next outcome, or at time *until
 * (INT64_MAX: never). */
struct dispatch_run *dispatch_run_begin(struct dispatch *d, usec_t now, usec_t *until);
/* Report the outcome of a run, and free the run. dispatch_run_failed retries its messages after a backoff,
 * dispatch_run_again at once. */
void dispatch_run_delivered(struct dispatch *d, struct dispatch_run *run);
void dispatch_run_refused(struct dispatch *d, struct dispatch_run *run, const char *reason);
void dispatch_run_failed(struct dispatch *d, struct dispatch_run *run, usec_t now);
void dispatch_run_again(struct dispatch *d, struct dispatch_run *run);
size_t dispatch_runs(const struct dispatch *d);                    /* number of runs in progress */
struct dispatch_run *dispatch_run_first(const struct dispatch *d); /* a run in progress, or NULL */
/* No run begins before time `until`. */
void dispatch_pause(struct dispatch *d, usec_t until);

/* The kinds of requests to the queue. */
enum dispatch_action {
    DISPATCH_NOTHING, /* send no request until the next outcome or time `until` */
    DISPATCH_TOUCH,   /* extend the lease */
    DISPATCH_ACK,     /* acknowledge `ids` */
    DISPATCH_BURY,    /* bury `message` with its reason */
    DISPATCH_NACK,    /* return `ids` to the queue */
};
struct dispatch_step {
    enum dispatch_action action;
    uint64_t lease;
    struct bytes ids; /* "A-B,C", valid until the outcome of the step is reported */
    const struct message *message;
    usec_t until;
};
struct dispatch_step dispatch_step(struct dispatch *d, usec_t now);
void dispatch_step_done(struct dispatch *d);
/* Reports that the queue refuses the request permanently. If the request was an acknowledgement, appends its ids,
 * because the queue will deliver these messages again. */
void dispatch_step_refused(struct dispatch *d, struct buf *ids);
/* Reports that the request failed, so that the step is repeated. `doubtful`: the queue may have processed the
 * request. */
void dispatch_step_failed(struct dispatch *d, bool doubtful);
/* Reports that the queue has lost the lease. Appends the ids of messages of the lease that are delivered or in a run.
 * The queue delivers these messages again, unless an earlier acknowledgement without a reply has deleted them. Stops
 * the dispatch, unless such an acknowledgement may have ended the lease. */
void dispatch_step_lost(struct dispatch *d, struct buf *ids);

/* Returns true if a lease has expired. The caller must then call dispatch_stop. */
bool dispatch_has_expired(const struct dispatch *d, usec_t now);
/* Stops the dispatch: no more runs begin. The next steps acknowledge the delivered messages and return all other
 * messages. */
void dispatch_stop(struct dispatch *d);
bool dispatch_is_stopping(const struct dispatch *d);
bool dispatch_is_empty(const struct dispatch *d); /* true without messages and runs */
/* Returns true if runs are in progress, or messages must be acknowledged or buried. If false, the caller may return all
 * messages by ending the leases. */
bool dispatch_has_outcomes(const struct dispatch *d);
void dispatch_resume(struct dispatch *d);
/* Appends the ids of messages that are delivered but not acknowledged. */
void dispatch_unacknowledged(const struct dispatch *d, struct buf *ids);

#endif
