/* reader_plan: decides the next step of a queue reader whose destination keeps marks, based on the outcomes of earlier
 * steps. It uses no clock and no sockets.
 *
 *     RELEASE ─▶ ASK ─▶ FENCE ─▶ work, in two lanes at once:
 *        ▲                          queue        RESERVE (with acks), TOUCH, BURY
 *        │                          destination  DELIVER, FENCE
 *        └── conflict, lost lease, another reader of this name, any failure of the queue ── ACK, if any are due
 *
 * For each idle lane the caller gets a step from plan_next, performs it and reports the outcome. While a batch is
 * being delivered, the next one is reserved.
 *
 * A destination with marks stores, with the messages, a *mark* for the queue: a message id M * 2^20 + a fence. All
 * messages below M are settled. The *fence* counts takeovers: a reader that takes over raises it by an empty
 * delivery, so that every earlier delivery fails. Each release gives the reader's name a new *epoch*, and only the
 * latest epoch may reserve. So each message reaches the destination exactly once, even if processes of one name
 * crash, pause or run at the same time:
 *
 * 1. A delivery states the known mark and a new one, the last id + 1. The destination stores it only if it has the
 *    known mark. Marks never decrease, so no id is stored twice. `duplicate` does not tell which reader has raised
 *    the mark: the plan starts again with RELEASE.
 * 2. A message below M is acknowledged without a delivery. So each must be delivered or buried before M exceeds its
 *    id:
 * 3. Messages after a poison message are delivered only once it is buried.
 * 4. Ids may be missing only in the first batch after RELEASE. No other reader can have reserved them: a client without
 *    an epoch ends that of its name. If ids are missing later, the plan starts again.
 * 5. Buried and delayed messages get new ids later, so no delivery of such a message may still be under way. The
 *    reader raises the fence between RELEASE and its first reserve, and, if one of its deliveries was never
 *    answered, again before it buries a message or stops. The raised fence must be stored; `duplicate` is not
 *    enough.
 * 6. An old copy of the queue assigns used ids to other messages. So the destination stores the lineage of M - 1
 *    with M (journal/opening_list.h). If the queue assigned M - 1 in another opening, or M is above its next id,
 *    the plan ends with PLAN_OLD_COPY and delivers nothing. plan_old_copy has the first id of the copy's own
 *    messages, to which an operator sets M. An old copy of the destination lacks acknowledged messages. So each
 *    acknowledgement names the destination, and the queue keeps the id below which messages were acknowledged for
 *    it. If M is lower, the plan ends with PLAN_OLD_DESTINATION.
 * 7. After any failure of the queue the plan starts again: the queue may have been restarted or replaced.
 * 8. After a failure of the destination the same messages are delivered again, with the same marks. After a refusal
 *    the run is halved, until a single message is refused: the poison message.
 * 9. Lost acknowledgements are repeated by rule 2.
 * 10. Of two processes with one name, each waits longer each time it was superseded, so that the other can make
 *     progress.
 *
 * 11. A *watermark* is a time before which every accepted message is settled. The destination's replies have its
 *     time t, and the reply to a reserve that is sent afterwards has the queue's time and the highest remaining id
 *     accepted before it. Once M exceeds this id, the earlier of both times is a watermark. A clock that is ahead can
 *     therefore not make a watermark too late. The plan states it with the delivery that raises M, or by itself at least every
 *     second. 0: not known. A new era of the destination's clock invalidates all earlier times. */
#ifndef MILLRACE_READER_PLAN_H
#define MILLRACE_READER_PLAN_H

#include "base/backoff.h"
#include "journal/opening_list.h"
#include "readers/batch.h"

struct plan;

#define PLAN_FENCE_BITS 20
#define PLAN_ID_MAX (UINT64_MAX >> PLAN_FENCE_BITS)
#define PLAN_MARK(id, fence) ((uint64_t)(id) << PLAN_FENCE_BITS | (fence))

enum plan_lane { PLAN_QUEUE, PLAN_DESTINATION, PLAN_LANES };

enum plan_action {
    /* the queue's lane */
    PLAN_RELEASE, /* end this reader's leases: plan_released */
    PLAN_RESERVE, /* lease messages and send plan_acks; with step.wait, wait for messages: plan_reserved */
    PLAN_TOUCH,   /* extend step.lease: plan_touched */
    PLAN_BURY,    /* bury message step.first, with its reason: plan_buried */
    PLAN_ACK,     /* plan_acks: plan_acknowledged */
    /* the destination's lane */
    PLAN_ASK,     /* request the destination's mark of this queue: plan_asked */
    PLAN_DELIVER, /* step.count messages from step.first; 0: only change the mark: plan_delivered ... */
    PLAN_STATE,   /* state step.watermark without a delivery: plan_stated, or plan_conflict */
    /* either */
    PLAN_WAIT,            /* do nothing until an outcome of the other lane is reported */
    PLAN_PAUSE,           /* do nothing before step.until, unless an outcome of the other lane is reported */
    PLAN_STOPPED,         /* the stop is complete */
    PLAN_OLD_COPY,        /* rule 6 */
    PLAN_OLD_DESTINATION, /* rule 6 */
    PLAN_FOREIGN_MARK,    /* the mark was not set by a reader */
    PLAN_MARKS_USED_UP    /* after 2^44 messages, or 2^20 takeovers without a delivery */
};

struct plan_step {
    enum plan_action action;
    size_t first, count; /* of plan_batch */
    uint64_t mark, next;
    char opening[MARK_LABEL_MAX]; /* to store with `next` */
    uint64_t lease;
    bool wait;
    usec_t until;
    usec_t watermark; /* PLAN_DELIVER with messages, PLAN_STATE; 0: not known */
};

struct plan_config {
    bool states;      /* the destination keeps watermarks (rule 11) */
    bool lines;       /* messages are lines: an empty message, or one with an LF, is poison */
    uint64_t items;   /* maximum messages per reserve; fewer in a reply mean that the queue is empty */
    size_t max_bytes; /* maximum bytes in a delivery, unless one message is longer; 0: unlimited */
    usec_t lease;
    usec_t backoff_min, backoff_max;
    uint64_t seed;
};

struct plan *plan_new(const struct plan_config *config);
void plan_free(struct plan **p);

/* Only for an idle lane. If the action is below PLAN_WAIT, the lane is busy until its outcome is reported. Times
 * are monotonic. */
struct plan_step plan_next(struct plan *p, enum plan_lane lane, usec_t now);

/* The answer to RELEASE. */
struct plan_queue {
    struct bytes id;
    uint64_t next_id;
    uint64_t epoch;        /* 0: the queue has no epochs */
    struct bytes openings; /* openings_from_text; empty: unknown */
    uint64_t acked_below;  /* messages below this id were acknowledged for the destination; 0: unknown */
};
void plan_released(struct plan *p, const struct plan_queue *queue);
/* `mark` 0: the destination has none of this queue. `opening` is the text that it stored with the mark. */
void plan_asked(struct plan *p, uint64_t mark, struct bytes opening);
/* Every message that the queue accepted before `before` has left it, is buried, or has at most the id `last_id`. */
struct plan_accepted {
    usec_t before; /* by the queue's clock; 0: not known */
    uint64_t last_id;
};
/* Takes over the batch, which may be empty, and zeroes it. */
void plan_reserved(struct plan *p, struct bytes queue_id, struct batch *batch,
    const struct plan_accepted *accepted, usec_t now);
void plan_superseded(
    struct plan *p, usec_t now); /* answer to RESERVE: another process of this name has called release */
/* Answer to RESERVE: messages below this id were acknowledged, and the destination's mark is lower (rule 6). */
void plan_destination_behind(struct plan *p, uint64_t acked_below);
void plan_touched(struct plan *p);
void plan_delivered(struct plan *p);
void plan_stated(struct plan *p);
/* In a reply of the destination (rule 11). is_new_era: its clock may have been ahead before. */
void plan_destination_time(struct plan *p, usec_t time, bool is_new_era);
void plan_conflict(struct plan *p, usec_t now); /* the mark differs, so the destination stored nothing */
void plan_refused(struct plan *p, const char *reason);
void plan_buried(struct plan *p);
void plan_acknowledged(struct plan *p); /* or refused for good */
/* The queue refuses RESERVE for good. True if the request had acks, which are sent separately from now on; else the
 * caller must report a fault. */
bool plan_piggyback_refused(struct plan *p);
void plan_lease_lost(struct plan *p); /* answer to BURY, TOUCH or the acks of a RESERVE */
/* The step has failed: no connection, no reply, 5xx or 429. The plan retries after `wait`; negative: after a
 * backoff. */
void plan_faulted(struct plan *p, enum plan_lane lane, usec_t now, usec_t wait);
/* The step was a long poll, cancelled because of plan_stop. */
void plan_cancelled(struct plan *p, enum plan_lane lane);
/* Stops the plan: waits for the current run, acknowledges once, and releases all other messages. A lost
 * acknowledgement is repeated by the next process (rule 9). */
void plan_stop(struct plan *p);

/* After PLAN_OLD_COPY. */
struct plan_old_copy {
    uint64_t mark_id;    /* the destination has messages below this id, from another history */
    const char *opening; /* the lineage of that mark; "": unknown */
    uint64_t own_from;   /* from this id on, no message of the copy was delivered */
    bool
        is_exact; /* else that id is unknown, and own_from is the first message that the copy may still have */
    uint64_t next_id; /* of the queue */
    bool is_ahead;    /* the histories agree, but the mark is above next_id: a reader did not set it */
};
struct plan_old_copy plan_old_copy(const struct plan *p);
/* After PLAN_OLD_DESTINATION: messages below this id were acknowledged. */
uint64_t plan_acked_below(const struct plan *p);
/* All messages below this id are settled in the destination. */
uint64_t plan_mark_id(const struct plan *p);

const struct batch *plan_batch(const struct plan *p); /* the batch being delivered */
const char *plan_queue_id(const struct plan *p);      /* "" before the first release */
uint64_t plan_epoch(const struct plan *p);
struct bytes plan_acks(const struct plan *p); /* "LEASE:A-B,C", or empty */

#endif
