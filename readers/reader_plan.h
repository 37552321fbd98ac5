/* reader_plan: what a queue reader has to do next, given all that happened so far. Pure: no clock, no sockets.
 *
 *     RELEASE ─▶ ASK ─▶ FENCE ─▶ work, in two lanes at once:
 *        ▲                          queue        RESERVE (acks ride along), TOUCH, BURY
 *        │                          destination  DELIVER, FENCE
 *        └── conflict, lost lease, another reader of this name, any failure of the queue ── ACK, if any are due
 *
 * Whoever drives it asks plan_next for each lane that has nothing under way, does that one thing, and tells the
 * outcome; then asks again. While one batch is delivered the next is reserved.
 *
 * A destination with marks keeps, in the same step as what was delivered to it, how far it has got with the queue of
 * that id: the *mark*, message id * 2^20 + fence. The id M says that everything under M is done with. The *fence* counts
 * takeovers: moving it by an empty delivery makes every delivery that was prepared before it fail. The queue gives out
 * an *epoch* with each release, and leases only to the latest epoch of a reader's name. Each message reaches the
 * destination exactly once, whatever dies, pauses or arrives late, and however many processes use one name:
 *
 * 1. A delivery goes from the mark that the destination was known to have to last id + 1. It is stored only at that
 *    mark, and marks only rise, so no id is ever stored twice. An answer `duplicate` tells that the mark is past, not
 *    who moved it: it is a conflict like any other, and all starts again with RELEASE.
 * 2. What has an id under M is only acknowledged. So whatever was neither delivered nor given up for good must not
 *    fall under M: 3, 4, 5.
 * 3. What is behind a poison message is delivered once that is buried.
 * 4. A reader skips ids only when it knows that nobody can bring them back: in the first batch after RELEASE. That
 *    ended all leases of the name, and under a newer epoch nobody has reserved since, or this reserve would have been
 *    refused; under another name the queue refuses it while that one holds leases. A later batch that does not go on
 *    where the last one ended may leave out what a client of the same name that shows no epoch holds: all starts again.
 * 5. Messages that were buried or delayed come back under new ids. So before a message is moved no delivery that holds
 *    it may still be under way, or it would be stored twice: a reader fences after RELEASE, before its first reserve,
 *    against all readers before it, and fences again before it buries, and before it stops, when a delivery of its own
 *    was left without an answer. Those after it fence against it before they reserve; its leases ended with their
 *    release, so it can move nothing any more. A fence counts only when it was stored, never when it was a duplicate:
 *    a second reader may have moved the same fence and be delivering under it.
 * 6. When M is above the queue's next id, the queue is an old copy whose ids stand for other messages now:
 *    PLAN_OLD_COPY, nothing is touched. That is all that numbers can tell: an old copy that has taken as many new
 *    messages as it lost looks whole. The queue has to notice that its directory was copied, before it takes them.
 * 7. After any failure of the queue it may have been restarted, or be another: all starts again.
 * 8. A failure of the destination is waited out with the same messages under the same marks, in order; their leases are
 *    extended meanwhile. A refusal of the messages halves what is delivered at once, until one message is left alone: it
 *    is the poison.
 * 9. Acknowledgements are only an economy: lost ones come again under rule 2.
 * 10. Of two that use one name, each takes over from the other. The one that finds itself superseded waits longer each
 *    time, so that the other gets on with its work.
 *
 * For destinations without marks (`marks` false) rules 1, 2, 4, 5, 6 and 10 do not apply: at least once, and several
 * processes may share a name and the work.
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
    PLAN_RESERVE, /* with plan_acks riding along; waits for messages when step.wait: plan_reserved */
    PLAN_TOUCH,   /* extend step.lease: plan_touched */
    PLAN_BURY,    /* step.first, with its reason: plan_buried */
    PLAN_ACK,     /* plan_acks: plan_acknowledged */
    PLAN_NACK,    /* step.from to .to of step.lease, after plan_stop: plan_nacked */
    /* the destination's lane */
    PLAN_ASK, /* the destination's mark of this queue: plan_asked */
    PLAN_DELIVER, /* step.first, .count (0: only the mark moves), .mark, .next: plan_delivered, _conflict, _refused */
    /* either */
    PLAN_WAIT,         /* nothing, until the other lane has told something */
    PLAN_PAUSE,        /* nothing before step.until, unless the other lane has told something */
    PLAN_STOPPED,      /* after plan_stop: all that could be tidied is */
    PLAN_OLD_COPY,     /* rule 6 */
    PLAN_FOREIGN_MARK, /* the mark is none of a reader's with fences */
    PLAN_MARKS_USED_UP /* 2^44 messages, or 2^20 takeovers without one delivery */
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
    bool lines;       /* messages go as lines: an empty one and one that holds an LF are poison */
    bool ahead;       /* reserve the next batch while one is delivered */
    uint64_t items;   /* asked for in a reserve: one that brings fewer has emptied the queue */
    size_t max_items; /* delivered at once; 0: no bound */
    size_t max_bytes; /* delivered at once, unless one message alone has more; 0: no bound */
    uint64_t
        rate; /* messages a second that the destination sees at most, kept as pace.h has it; 0: no bound */
    usec_t lease;
    usec_t backoff_min, backoff_max;
    uint64_t seed;
};

struct plan *plan_new(const struct plan_config *config);
void plan_free(struct plan **p);

/* Times are monotonic. A step handed out (not PLAN_WAIT, PLAN_PAUSE or an end) occupies its lane until an outcome is
 * told; only lanes that are free are asked. */
struct plan_step plan_next(struct plan *p, enum plan_lane lane, usec_t now);

/* `epoch` 0: the queue gives none. */
void plan_released(struct plan *p, struct bytes queue_id, uint64_t next_id, uint64_t epoch);
void plan_asked(struct plan *p, uint64_t mark); /* 0: it knows nothing of this queue */
/* The queue answered. The batch is taken over (and zeroed), perhaps empty. */
void plan_reserved(struct plan *p, struct bytes queue_id, struct batch *batch, usec_t now);
void plan_superseded(struct plan *p, usec_t now); /* said to RESERVE: another process has released since */
void plan_touched(struct plan *p);
void plan_delivered(struct plan *p);
void plan_conflict(
    struct plan *p, usec_t now); /* the mark is another, or past: nothing was stored by this delivery */
void plan_refused(struct plan *p, const char *reason);
void plan_buried(struct plan *p);
void plan_acknowledged(struct plan *p); /* or nothing was left to acknowledge, or it is refused for good */
/* RESERVE was refused for what it is, as it would be for ever. True: the acks that rode may be the reason, they go by
 * themselves from now on. False: none did, it is a fault. */
bool plan_piggyback_refused(struct plan *p);
void plan_nacked(struct plan *p);
void plan_lease_lost(struct plan *p); /* said to BURY, TOUCH, NACK, or to the acks that rode on RESERVE */
/* What plan_next said could not be done: no connection, no reply, 5xx, 429. Waits for `wait`, or for what backoff says
 * when that is negative. */
void plan_faulted(struct plan *p, enum plan_lane lane, usec_t now, usec_t wait);
/* What plan_next said was given up by plan_stop's caller: a long poll. */
void plan_cancelled(struct plan *p, enum plan_lane lane);
/* Finish: acknowledge what is delivered, wait for what the destination has, acknowledge that, release the rest. Meanwhile that lease
 * is extended, and without marks what the destination has not got is given back. What the queue does not answer well of this is tried
 * again as long as the destination works; then acknowledgements until `give_up` (with marks not: rule 9), the release once. Again,
 * with an earlier `give_up`: the next try is made at once. */
void plan_stop(struct plan *p, usec_t give_up);
/* The ids "A-B,C" of what was delivered and is not acknowledged. Nothing when there is none. */
void plan_unacknowledged(const struct plan *p, struct buf *ids);

const struct batch *plan_batch(const struct plan *p); /* the one that is delivered */
const char *plan_queue_id(const struct plan *p);      /* "" before the first release */
uint64_t plan_epoch(const struct plan *p);
struct bytes plan_acks(const struct plan *p); /* "LEASE:A-B,C", or empty */
uint64_t plan_mark(const struct plan *p);
uint64_t plan_next_id(const struct plan *p);

#endif
