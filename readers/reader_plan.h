/* reader_plan: what a queue reader has to do next, given all that happened so far. Pure: no clock, no sockets.
 *
 *     RELEASE ─▶ ASK ─▶ RESERVE ─▶ WORK: DELIVER, BURY, ... ─▶ RESERVE (the acks ride along)
 *        ▲                            │
 *        └──── conflict, lost lease, a queue that may be another one ── ACK, if any are due
 *
 * Whoever drives it asks plan_next, does that one thing, and tells the outcome; then asks again. A destination with
 * marks keeps, atomically with what was delivered to it, the id behind the last message it holds: the *mark* M of the
 * queue's id. That makes the transfer exactly once, whatever dies when, by these rules:
 *
 * 1. A message is delivered only under marks M and last id + 1, so a destination that holds it already, or holds
 *    less than was thought, does not take it: it says so (conflict), and all starts again with RELEASE.
 * 2. Whatever has an id under M was delivered: it is acknowledged, not delivered again. So nothing that was
 *    neither delivered nor buried may fall under M, hence 3, 4 and 5.
 * 3. A poison message is buried before anything behind it is delivered.
 * 4. A batch that does not go on where the last one ended may leave out messages that another process of the same
 *    reader name holds. Only a batch reserved right after RELEASE has left out none: so all starts again.
 * 5. When M is above the queue's next id, the queue is an old copy whose ids stand for other messages now:
 *    PLAN_OLD_COPY, nothing is touched.
 * 6. After any failure of the queue it may have been restarted, or be another: all starts again.
 * 7. A failure of the destination is waited out with the same messages under the same marks, in order, while the
 *    lease lasts. A refusal of the messages halves what is delivered at once, until one message is left alone: it is
 *    the poison.
 * 8. Acknowledgements are only an economy: lost ones come again under rule 2.
 *
 * For destinations without marks (`marks` false) rules 1, 2, 4 and 5 do not apply: at least once.
 */
#ifndef MILLRACE_READER_PLAN_H
#define MILLRACE_READER_PLAN_H

#include "backoff.h"
#include "batch.h"

struct plan;

enum plan_action {
    PLAN_RELEASE, /* end this reader's leases: plan_released */
    PLAN_ASK,     /* the destination's mark of this queue: plan_asked */
    PLAN_RESERVE, /* with plan_acks riding along: plan_reserved */
    PLAN_DELIVER, /* step.first, step.count, step.mark, step.next: plan_delivered, _conflict or _refused */
    PLAN_BURY,    /* step.first, with its reason: plan_buried */
    PLAN_ACK,     /* plan_acks: plan_acknowledged */
    PLAN_PAUSE,   /* nothing before step.until */
    PLAN_STOPPED, /* after plan_stop: all that could be tidied is */
    PLAN_OLD_COPY,
};

enum plan_side { PLAN_QUEUE, PLAN_DESTINATION };

struct plan_step {
    enum plan_action action;
    size_t first, count; /* of plan_batch */
    uint64_t mark, next;
    usec_t until;
};

struct plan_config {
    bool marks;       /* the destination keeps marks */
    bool lines;       /* messages go as lines: an empty one and one that holds an LF are poison */
    size_t max_bytes; /* delivered at once, unless one message alone has more; 0: no bound */
    usec_t lease;
    usec_t backoff_min, backoff_max;
    uint64_t seed;
};

struct plan *plan_new(const struct plan_config *config);
void plan_free(struct plan **p);

/* Times are monotonic. Asking again without telling an outcome gives the same step. */
struct plan_step plan_next(struct plan *p, usec_t now);

/* ---- outcomes ---- */
/* An empty id: there is no such queue yet. ASK is then only about whether the destination is there. */
void plan_released(struct plan *p, struct bytes queue_id, uint64_t next_id);
void plan_asked(struct plan *p, uint64_t mark); /* 0: it knows nothing of this queue */
/* The queue answered. The batch is taken over (and zeroed), perhaps empty. */
void plan_reserved(struct plan *p, struct bytes queue_id, struct batch *batch, usec_t now);
void plan_delivered(struct plan *p);
void plan_conflict(struct plan *p); /* the mark is another */
void plan_refused(struct plan *p, const char *reason);
void plan_buried(struct plan *p);
void plan_acknowledged(struct plan *p); /* or there was nothing left to acknowledge */
void plan_lease_lost(struct plan *p);   /* said to BURY, or to the acks that rode on RESERVE */
/* What plan_next said could not be done: no connection, no reply, 5xx, 429. */
void plan_faulted(struct plan *p, enum plan_side side, usec_t now);
/* Finish: acknowledge what is delivered, release the rest. A fault from here on ends it. */
void plan_stop(struct plan *p);

/* ---- what the steps are about ---- */
const struct batch *plan_batch(const struct plan *p);
const char *plan_queue_id(const struct plan *p); /* "" before the first release, and without a queue */
struct bytes plan_acks(const struct plan *p);    /* "LEASE:A-B,C", or empty */
size_t plan_run_length(const struct plan *p);    /* of what PLAN_DELIVER said last */
uint64_t plan_mark(const struct plan *p);
uint64_t plan_next_id(const struct plan *p);

#endif
