/* reader_plan: decides the next step of a relay: a reader that follows a queue and delivers its messages to a
 * destination that keeps marks. It uses no clock and no sockets.
 *
 *     FOLLOW ─▶ ASK ─▶ work, in two lanes at once:
 *        ▲                queue        READ, BURY
 *        │                destination  DELIVER, STATE
 *        └── conflict, or another follower        stop ─▶ UNFOLLOW
 *
 * For each idle lane the caller gets a step from plan_next, performs it and reports the outcome. While a batch is
 * being delivered, the next one is read.
 *
 * A destination with marks stores, with the messages, the queue's *mark*: a message id M. Each message below M is
 * stored or buried. A queue has one follower, with a *number*; a takeover begins another number, and ends the former. While
 * a queue is followed, no other client takes, delays or buries its messages. So each message reaches the destination
 * exactly once, even if processes of one name crash, pause or run at the same time:
 *
 * 1. A delivery states the known mark and a new one, the last id + 1. The destination stores it only if it has the
 *    known mark. Marks never decrease, so no id is stored twice. After a conflict the plan starts again with FOLLOW.
 *    A delivery without messages sets the first mark, 1, or adds an opening to a mark that an operator has set.
 * 2. Each message is delivered or buried before M exceeds its id, in the order of ids. Messages after a poison message
 *    are delivered only once it is buried.
 * 3. A READ states the first id that the plan does not have, so a lost reply is sent again. If it brings a message from
 *    M on that the plan has, the plan starts again with FOLLOW. A READ also states M, and the queue removes the messages
 *    below M that it has sent. The next READ repeats a removal that was lost.
 * 4. A buried message gets a new id when it is kicked, so a late delivery that contains it would store it twice. The
 *    plan buries only what the destination refuses, and a destination refuses a late delivery too. Exception: the
 *    destination's limits were raised meanwhile (docs/guide/exactness.md).
 * 5. When stopping, the plan ends the following, so that other clients may read the queue, unless an earlier delivery
 *    may still be stored: one of its own has failed, there was a conflict, or the former follower did not end the
 *    following. Once a delivery has raised M, none of these can be stored.
 * 6. An old copy of the queue assigns used ids to other messages. So the destination stores the opening of message M - 1
 *    with M (journal/opening.h), and each READ states both. If M is not of its past, the queue refuses the READ, and the plan
 *    ends with PLAN_OLD_COPY. Before the first READ is answered, the plan delivers and states nothing but the first mark.
 *    An old copy of the destination is without settled messages. So a READ names the destination, and the queue keeps the
 *    id below which messages were settled for it. If M is lower, the plan ends with PLAN_OLD_DESTINATION.
 * 7. After a failure of the destination the same messages are delivered again, with the same marks. After a refusal
 *    the run is halved, until a single message is refused: the poison message.
 * 8. Of two processes with one name, each waits longer each time it was superseded, so that the other can make
 *    progress.
 *
 * 9. A *watermark* is a time before which every accepted message is settled. The destination's replies have its
 *    time t, and the reply to a READ that is sent afterwards has the queue's time and the highest remaining id
 *    accepted before it. Once M exceeds this id, the earlier of both times is a watermark. A clock that is ahead can
 *    therefore not make a watermark too late. The plan states it with the delivery that raises M, or by itself at least every
 *    second. 0: not known. A new era of the destination's clock invalidates all earlier times. */
#ifndef MILLRACE_READER_PLAN_H
#define MILLRACE_READER_PLAN_H

#include "base/backoff.h"
#include "readers/batch.h"

struct plan;

enum plan_lane { PLAN_QUEUE, PLAN_DESTINATION, PLAN_LANES };

enum plan_action {
    /* the queue's lane */
    PLAN_FOLLOW, /* become the queue's follower: plan_followed */
    PLAN_READ, /* settle below step.mark, and read from step.from on; with step.wait, wait for messages: plan_read */
    PLAN_BURY,     /* bury message step.first, with its reason: plan_buried */
    PLAN_UNFOLLOW, /* settle below step.mark, and end the following: plan_unfollowed */
    /* the destination's lane */
    PLAN_ASK,     /* request the destination's mark of this queue: plan_asked */
    PLAN_DELIVER, /* step.count messages from step.first; 0: only the mark, or its opening: plan_delivered ... */
    PLAN_STATE, /* state step.watermark without a delivery: plan_stated, or plan_conflict */
    /* either */
    PLAN_WAIT,           /* do nothing until an outcome of the other lane is reported */
    PLAN_PAUSE,          /* do nothing before step.until, unless an outcome of the other lane is reported */
    PLAN_STOPPED,        /* the stop is complete */
    PLAN_OLD_COPY,       /* rule 6 */
    PLAN_OLD_DESTINATION /* rule 6 */
};

struct plan_step {
    enum plan_action action;
    size_t first, count;          /* of plan_batch */
    uint64_t mark, next;          /* the known mark, and the new one */
    char opening[MARK_LABEL_MAX]; /* PLAN_DELIVER: to store with `next`; PLAN_READ: of `mark` */
    uint64_t from;
    bool wait;
    usec_t until;
    usec_t watermark; /* PLAN_DELIVER with messages, PLAN_STATE; 0: not known */
};

struct plan_config {
    bool states; /* the destination keeps watermarks (rule 9) */
    bool lines;  /* messages are lines: an empty message, or one with an LF, is poison */
    uint64_t
        items; /* maximum messages per READ; fewer in a reply mean that the queue has no more at present */
    size_t max_bytes; /* maximum bytes in a delivery, unless one message is longer; 0: unlimited */
    usec_t backoff_min, backoff_max;
    uint64_t seed;
};

struct plan *plan_new(const struct plan_config *config);
void plan_free(struct plan **p);

/* If the action is below PLAN_WAIT, the lane is busy until its outcome is reported. Times are monotonic. */
struct plan_step plan_next(struct plan *p, enum plan_lane lane, usec_t now);

/* The answer to FOLLOW. */
struct plan_queue {
    struct bytes id;
    uint64_t number;      /* of this follower */
    bool is_takeover;     /* the former follower, perhaps this plan, did not end the following */
    struct bytes opening; /* of the latest message; empty: unknown */
};
void plan_followed(struct plan *p, const struct plan_queue *queue);
/* `mark` 0: the destination has none of this queue. `opening` is the text that it stored with the mark; empty: none. */
void plan_asked(struct plan *p, uint64_t mark, struct bytes opening);
/* Every message that the queue accepted before `before` has left it, is buried, or has at most the id `last_id`. */
struct plan_accepted {
    usec_t before; /* by the queue's clock; 0: not known */
    uint64_t last_id;
};
/* Takes over the batch, which may be empty, and zeroes it. */
void plan_read(struct plan *p, struct batch *batch, const struct plan_accepted *accepted, usec_t now);
/* Answer to READ or BURY: the number is over. Another process follows the queue, or the queue has started again. */
void plan_superseded(struct plan *p, usec_t now);
/* Answer to READ: the mark is not of this queue's past (rule 6). */
void plan_other_history(struct plan *p);
/* Answer to READ: messages below this id were settled, and the destination's mark is lower (rule 6). */
void plan_destination_behind(struct plan *p, uint64_t acked_below);
void plan_delivered(struct plan *p);
void plan_stated(struct plan *p);
/* In a reply of the destination (rule 9). is_new_era: its clock may have been ahead before. */
void plan_destination_time(struct plan *p, usec_t time, bool is_new_era);
void plan_conflict(struct plan *p, usec_t now); /* the mark differs, so the destination stored nothing */
void plan_refused(struct plan *p, const char *reason);
void plan_buried(struct plan *p);
void plan_bury_lost(struct plan *p); /* the queue has not sent this message, or has it no more: starts over */
void plan_unfollowed(struct plan *p);
/* The step has failed: no connection, no reply, 5xx or 429. The plan retries after `wait`; negative: after a
 * backoff. */
void plan_faulted(struct plan *p, enum plan_lane lane, usec_t now, usec_t wait);
/* The step was a long poll, cancelled because of plan_stop. */
void plan_cancelled(struct plan *p, enum plan_lane lane);
/* Stops the plan: waits for the steps under way, then settles and unfollows once (rule 5). A lost removal is repeated by the next
 * process (rule 3). */
void plan_stop(struct plan *p);

/* After PLAN_OLD_DESTINATION: messages below this id were settled. */
uint64_t plan_acked_below(const struct plan *p);
uint64_t plan_mark(const struct plan *p);       /* M */
const char *plan_opening(const struct plan *p); /* of M; "": none */

const struct batch *plan_batch(const struct plan *p); /* the batch being delivered */
const char *plan_queue_id(const struct plan *p);      /* "" before the first FOLLOW is answered */
uint64_t plan_number(const struct plan *p);           /* of this follower */
/* After PLAN_STOPPED: false if the queue may still refuse other clients (rule 5, or the queue did not answer). */
bool plan_has_unfollowed(const struct plan *p);

#endif
