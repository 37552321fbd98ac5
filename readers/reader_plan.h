/* reader_plan: decides what a queue reader does next, given what has happened so far. Pure: no clock, no sockets.
 *
 *     RELEASE ─▶ ASK ─▶ FENCE ─▶ work, in two lanes at once:
 *        ▲                          queue        RESERVE (with acks), TOUCH, BURY
 *        │                          destination  DELIVER, FENCE
 *        └── conflict, lost lease, another reader of this name, any failure of the queue ── ACK, if any are due
 *
 * The caller asks plan_next for each lane that is idle, does that one thing, reports the outcome, and asks again. While one batch is
 * being delivered the next is reserved.
 *
 * A destination with marks stores, together with the messages, its *mark* of the queue: message id * 2^20 + fence. The id M says that
 * all messages below M are settled. The *fence* counts takeovers: moving it by an empty delivery makes every delivery prepared
 * earlier fail. The queue issues an *epoch* with each release, and leases only to the latest epoch of a reader's name. Each message
 * reaches the destination exactly once, whatever dies, pauses or arrives late, and however many processes share a name:
 *
 * 1. A delivery moves the destination's mark from its known value to the last id + 1. It is stored only at that mark, and marks only
 *    rise, so no id is stored twice. The answer `duplicate` says that the mark is higher, not who moved it. It is a
 *    conflict: start again with RELEASE.
 * 2. A message below M is only acknowledged. So no message may fall below M before it is delivered or given up: rules 3 to 5.
 * 3. Messages behind a poison message are delivered after that is buried.
 * 4. A reader may skip ids only in the first batch after RELEASE, which ended all leases of the name. No other reader has reserved since:
 *    a newer epoch would make this reserve fail, and so would leases of another name. A gap between later batches may hide messages
 *    that a client without an epoch has leased: start again.
 * 5. Buried and delayed messages come back under new ids. So no delivery that contains a message may be under way when that is moved. A
 *    reader fences after RELEASE, before its first reserve, against all readers before it. It fences again before it buries and
 *    before it stops, if a delivery of its own was never answered. Its successors fence against it before they reserve, and
 *    their release has ended its leases. A fence counts only when stored: a `duplicate` may be another reader's.
 * 6. If M is above the queue's next id, the queue is an old copy, and its ids mean other messages: PLAN_OLD_COPY, nothing is touched.
 *    An old copy that has since taken as many messages as it lost goes unnoticed; the queue itself must notice that its directory
 *    was copied.
 * 7. After any failure of the queue it may have been restarted or replaced: start again.
 * 8. After a failure of the destination the same messages are delivered again, under the same marks, in order, and their leases are
 *    extended meanwhile. A refusal halves the number delivered together until one message is left: the poison.
 * 9. Acknowledgements are an optimization: a lost one is repeated under rule 2.
 * 10. Two processes of one name take over from each other. A superseded one waits longer each time, so that the other makes progress.
 *
 * Without marks rules 1, 2, 4, 5, 6 and 10 do not apply: messages are delivered at least once, and several processes may share a
 * name and the work.
 */
#ifndef MILLRACE_READER_PLAN_H
#define MILLRACE_READER_PLAN_H

#include "base/backoff.h"
#include "readers/batch.h"

struct plan;

#define PLAN_FENCE_BITS 20
#define PLAN_ID_MAX (UINT64_MAX >> PLAN_FENCE_BITS)
#define PLAN_MARK(id, fence) ((uint64_t)(id) << PLAN_FENCE_BITS | (fence))

enum plan_lane { PLAN_QUEUE, PLAN_DESTINATION, PLAN_LANES };

enum plan_action {
    /* the queue's lane */
    PLAN_RELEASE, /* end this reader's leases: plan_released */
    PLAN_RESERVE, /* with plan_acks; step.wait: waits for messages: plan_reserved */
    PLAN_TOUCH,   /* extend step.lease: plan_touched */
    PLAN_BURY,    /* step.first, with its reason: plan_buried */
    PLAN_ACK,     /* plan_acks: plan_acknowledged */
    PLAN_NACK,    /* step.from to .to of step.lease, after plan_stop: plan_nacked */
    /* the destination's lane */
    PLAN_ASK, /* the destination's mark of this queue: plan_asked */
    PLAN_DELIVER, /* step.first, .count (0: only the mark moves), .mark, .next: plan_delivered, _conflict, _refused */
    /* either */
    PLAN_WAIT,         /* nothing, until the other lane reports */
    PLAN_PAUSE,        /* nothing before step.until, unless the other lane reports */
    PLAN_STOPPED,      /* after plan_stop: everything is settled */
    PLAN_OLD_COPY,     /* rule 6 */
    PLAN_FOREIGN_MARK, /* the mark is not a reader's */
    PLAN_MARKS_USED_UP /* 2^44 messages, or 2^20 takeovers without a delivery */
};

struct plan_step {
    enum plan_action action;
    size_t first, count; /* of plan_batch */
    uint64_t mark, next;
    uint64_t lease;
    uint64_t from, to; /* ids */
    bool wait;
    usec_t until;
};

struct plan_config {
    bool marks;       /* the destination keeps marks */
    bool lines;       /* messages are lines: an empty one, or one with an LF, is poison */
    bool ahead;       /* reserve the next batch during a delivery */
    uint64_t items;   /* per reserve: if fewer come, the queue is empty */
    size_t max_items; /* in one delivery; 0: unlimited */
    size_t max_bytes; /* in one delivery, unless one message has more; 0: unlimited */
    uint64_t rate;    /* messages a second (rate_limit.h); 0: unlimited */
    usec_t lease;
    usec_t backoff_min, backoff_max;
    uint64_t seed;
};

struct plan *plan_new(const struct plan_config *config);
void plan_free(struct plan **p);

/* Times are monotonic. A step (except PLAN_WAIT, PLAN_PAUSE and the ends) occupies its lane until an outcome is reported. Ask only
 * idle lanes. */
struct plan_step plan_next(struct plan *p, enum plan_lane lane, usec_t now);

/* `epoch` 0: the queue issues none. */
void plan_released(struct plan *p, struct bytes queue_id, uint64_t next_id, uint64_t epoch);
void plan_asked(struct plan *p, uint64_t mark); /* 0: it has no mark of this queue */
/* Takes over the batch, which may be empty, and zeroes it. */
void plan_reserved(struct plan *p, struct bytes queue_id, struct batch *batch, usec_t now);
void plan_superseded(struct plan *p, usec_t now); /* answer to RESERVE: another process has released since */
void plan_touched(struct plan *p);
void plan_delivered(struct plan *p);
void plan_conflict(struct plan *p, usec_t now); /* the mark differs: this delivery stored nothing */
void plan_refused(struct plan *p, const char *reason);
void plan_buried(struct plan *p);
void plan_acknowledged(struct plan *p); /* or refused for good */
/* RESERVE was refused, and would be again. True: its acks may be the reason, and are sent separately from now on. False: it had
 * none, so this is a fault. */
bool plan_piggyback_refused(struct plan *p);
void plan_nacked(struct plan *p);
void plan_lease_lost(struct plan *p); /* answer to BURY, TOUCH, NACK, or to the acks of a RESERVE */
/* The step failed: no connection, no reply, 5xx, 429. Retries after `wait`, or after a backoff if that is negative. */
void plan_faulted(struct plan *p, enum plan_lane lane, usec_t now, usec_t wait);
/* The caller of plan_stop has cancelled the step: a long poll. */
void plan_cancelled(struct plan *p, enum plan_lane lane);
/* Stops: acknowledges what is delivered, waits for the run under way, acknowledges that, releases the rest. Meanwhile that run's lease is
 * extended; without marks, messages behind it are given back. Requests that fail are retried while the destination works. After that
 * acknowledgements are retried until `give_up` (without marks only, rule 9), and the release is tried once. Calling it again with
 * an earlier `give_up` retries at once. */
void plan_stop(struct plan *p, usec_t give_up);
/* Appends the ids "A-B,C" that were delivered and not acknowledged. */
void plan_unacknowledged(const struct plan *p, struct buf *ids);

const struct batch *plan_batch(const struct plan *p); /* the one being delivered */
const char *plan_queue_id(const struct plan *p);      /* "" before the first release */
uint64_t plan_epoch(const struct plan *p);
struct bytes plan_acks(const struct plan *p); /* "LEASE:A-B,C", or empty */

#endif
