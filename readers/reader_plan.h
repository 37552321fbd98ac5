/* reader_plan: decides the next step of a queue reader from all outcomes so far. It uses no clock and no sockets.
 *
 *     RELEASE ─▶ ASK ─▶ FENCE ─▶ work, in two lanes at once:
 *        ▲                          queue        RESERVE (with acks), TOUCH, BURY
 *        │                          destination  DELIVER, FENCE
 *        └── conflict, lost lease, another reader of this name, any failure of the queue ── ACK, if any are due
 *
 * For each idle lane the caller gets a step from plan_next, performs it, reports the outcome, and repeats. The next
 * batch is reserved while the current one is being delivered.
 *
 * A destination with marks stores a *mark* for the queue together with the messages: message id * 2^20 + fence. A mark
 * with id M means that all messages below M are settled. The *fence* counts takeovers: an empty delivery that raises it
 * makes every earlier delivery fail. Each release by a reader's name gets a new *epoch* from the queue, and only the
 * latest epoch may reserve. Under the following rules each message reaches the destination exactly once, even if
 * processes of one name crash, pause or overlap:
 *
 * 1. A delivery moves the destination's mark from its known value to the last id + 1. The destination stores a delivery only at that
 *    mark, and marks only rise, so no id is stored twice. The answer `duplicate` means that the mark is higher, but not which
 *    reader moved it. The plan treats it as a conflict and starts again with RELEASE.
 * 2. A message below M is acknowledged without a delivery. So each message must be delivered or buried before M passes
 *    it, as rules 3 to 5 ensure.
 * 3. Messages behind a poison message are delivered after the poison message is buried.
 * 4. A reader may skip ids only in its first batch after RELEASE. RELEASE ended all leases of the name. No other reader
 *    has reserved since, because a newer epoch, or a lease of another name, makes the reserve fail. A gap between later batches may
 *    hide messages leased by a client without an epoch, so the plan starts again.
 * 5. Buried and delayed messages come back under new ids. So while a delivery of a message may still arrive, that
 *    message must not get a new id. A reader raises the fence after RELEASE, before its first reserve. If one of its
 *    deliveries was never answered, it raises the fence again before it buries or stops. A raised fence counts only if
 *    it was stored; the answer `duplicate` is not enough.
 * 6. If M is above the queue's next id, the queue is an old copy, which gives used ids to other messages. The plan ends
 *    with PLAN_OLD_COPY. An old copy that has since accepted as many messages as it lost is not recognized.
 * 7. After any failure the queue may have been restarted or replaced, so the plan starts again.
 * 8. After a failure of the destination the same messages are delivered again, in order and under the same marks. Their leases
 *    are extended meanwhile. A refusal halves the run until one message, the poison, is left.
 * 9. Acknowledgements may be lost, because rule 2 repeats them.
 * 10. Two processes of one name take over from each other. A superseded process waits longer each time, so that the
 *     other process can make progress.
 *
 * Without marks rules 1, 2, 4, 5, 6 and 10 do not apply. Messages are then delivered at least once, and several
 * processes of one name may share the work.
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
    PLAN_RESERVE, /* lease messages, send plan_acks; step.wait: wait for messages: plan_reserved */
    PLAN_TOUCH,   /* extend step.lease: plan_touched */
    PLAN_BURY,    /* bury message step.first, with its reason: plan_buried */
    PLAN_ACK,     /* plan_acks: plan_acknowledged */
    PLAN_NACK,    /* after plan_stop: return the ids step.from to step.to of step.lease: plan_nacked */
    /* the destination's lane */
    PLAN_ASK, /* request the destination's mark of this queue: plan_asked */
    PLAN_DELIVER, /* step.count messages from step.first (0: only move the mark): plan_delivered, _conflict or _refused */
    /* either */
    PLAN_WAIT,         /* do nothing until the other lane reports */
    PLAN_PAUSE,        /* do nothing before step.until, unless the other lane reports */
    PLAN_STOPPED,      /* the stop is complete */
    PLAN_OLD_COPY,     /* rule 6 */
    PLAN_FOREIGN_MARK, /* the mark was not set by a reader */
    PLAN_MARKS_USED_UP /* after 2^44 messages, or 2^20 takeovers without a delivery */
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
    uint64_t items;   /* maximum per reserve; an answer with fewer means that the queue is empty */
    size_t max_items; /* maximum in one delivery; 0: unlimited */
    size_t max_bytes; /* maximum in one delivery, unless one message is longer; 0: unlimited */
    uint64_t rate;    /* messages a second (rate_limit.h); 0: unlimited */
    usec_t lease;
    usec_t backoff_min, backoff_max;
    uint64_t seed;
};

struct plan *plan_new(const struct plan_config *config);
void plan_free(struct plan **p);

/* Call only for an idle lane. A step with an action below PLAN_WAIT occupies its lane until its outcome is reported.
 * Times are monotonic. */
struct plan_step plan_next(struct plan *p, enum plan_lane lane, usec_t now);

/* `epoch` 0: the queue issues no epochs. */
void plan_released(struct plan *p, struct bytes queue_id, uint64_t next_id, uint64_t epoch);
void plan_asked(struct plan *p, uint64_t mark); /* 0: no mark of this queue */
/* Takes over the batch, which may be empty, and zeroes it. */
void plan_reserved(struct plan *p, struct bytes queue_id, struct batch *batch, usec_t now);
void plan_superseded(
    struct plan *p, usec_t now); /* answer to RESERVE: another process of this name has released */
void plan_touched(struct plan *p);
void plan_delivered(struct plan *p);
void plan_conflict(struct plan *p, usec_t now); /* the mark differs: the destination stored nothing */
void plan_refused(struct plan *p, const char *reason);
void plan_buried(struct plan *p);
void plan_acknowledged(struct plan *p); /* or refused for good */
/* The queue refused RESERVE for good. True: the acks may be the reason, so they are sent separately from now on. False:
 * the request had no acks, so the caller must report a fault. */
bool plan_piggyback_refused(struct plan *p);
void plan_nacked(struct plan *p);
void plan_lease_lost(struct plan *p); /* answer to BURY, TOUCH, NACK or the acks of a RESERVE */
/* The step failed: no connection, no reply, 5xx or 429. The plan retries after `wait`, or after a backoff if `wait` is negative. */
void plan_faulted(struct plan *p, enum plan_lane lane, usec_t now, usec_t wait);
/* The step, a long poll, was cancelled because of plan_stop. */
void plan_cancelled(struct plan *p, enum plan_lane lane);
/* Stops. The plan acknowledges delivered messages, waits for the run under way, acknowledges that run, and releases the
 * rest. Meanwhile it extends the run's lease; without marks it also returns the messages behind the run. Failed
 * requests are retried while the destination works. After that, acknowledgements are retried until `give_up` (only
 * without marks, rule 9), and the release is tried once. A second call with an earlier `give_up` retries at once. */
void plan_stop(struct plan *p, usec_t give_up);
/* Appends the ids of delivered but unacknowledged messages: "A-B,C". */
void plan_unacknowledged(const struct plan *p, struct buf *ids);

const struct batch *plan_batch(const struct plan *p); /* the batch being delivered */
const char *plan_queue_id(const struct plan *p);      /* "" before the first release */
uint64_t plan_epoch(const struct plan *p);
struct bytes plan_acks(const struct plan *p); /* "LEASE:A-B,C", or empty */

#endif
