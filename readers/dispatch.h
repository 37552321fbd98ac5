/* dispatch: decides which messages of a queue are delivered when, several deliveries at a time. It uses no clock and no
 * sockets. reader_plan.h is for destinations that keep marks; this is for all others.
 *
 *     leased ──▶ ready ──▶ in a run ──▶ done ──▶ acknowledged
 *                  ▲          │
 *                  └── retry ◀┴──▶ poison ──▶ buried
 *
 * A *run* is what one delivery has: up to max_items messages. Up to `parallel` runs are under way. A *lane* is a
 * sequence of messages that must arrive in order: all messages, those of one key, or a message alone.
 *
 * 1. Of a lane at most one run is under way, and it has the lane's first messages. So a message that fails delays its
 *    lane only.
 * 2. Messages that failed wait before they are delivered again, longer after each failure in a row. A run that is
 *    refused is halved, until a single message is refused: this is the poison message. It is buried, and its lane goes
 *    on.
 * 3. No run begins while parallel * max_items messages are delivered and not yet acknowledged. So if the process dies,
 *    at most twice as many messages are delivered again.
 * 4. A lease is extended as long as a message of it is not settled. If a lease is lost, only a new start keeps the order:
 *    as after dispatch_stop, no more runs begin, what is done is acknowledged, and the rest goes back to the queue. When
 *    the dispatch is empty, the caller releases its leases and calls dispatch_resume.
 *
 * The caller gets runs from dispatch_run_begin, and one step at a time from dispatch_step. It reports each outcome once.
 * Times are monotonic. */
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
    uint64_t rate;    /* messages a second, failed attempts included (rate_limit.h); 0: unlimited */
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
void dispatch_step_done(struct dispatch *d); /* also if the queue refuses the request for good */
/* The step is to be repeated. `doubtful`: the queue may have processed it. */
void dispatch_step_failed(struct dispatch *d, bool doubtful);
/* The queue does not have the lease. Appends the ids of its messages that were delivered, and are now delivered again. Stops
 * the dispatch, unless an earlier, doubtful acknowledgement has ended the lease. */
void dispatch_step_lost(struct dispatch *d, struct buf *ids);

/* True if a lease has ended although it was to be extended. The caller must call dispatch_stop. */
bool dispatch_has_expired(const struct dispatch *d, usec_t now);
/* No more runs begin. The steps acknowledge what is delivered and return the rest. */
void dispatch_stop(struct dispatch *d);
bool dispatch_is_stopping(const struct dispatch *d);
bool dispatch_is_empty(const struct dispatch *d); /* no messages and no runs */
void dispatch_resume(struct dispatch *d);         /* of an empty one */
/* Appends the ids of messages that are delivered and not acknowledged. */
void dispatch_unacknowledged(const struct dispatch *d, struct buf *ids);

#endif
