/* reader_plan: decides the next step of a relay. A relay is a reader that follows a queue and delivers its messages to
 * a destination that keeps marks. The plan uses no clock and no sockets.
 *
 *     FOLLOW ─▶ ASK ─▶ work, in two lanes at once:
 *        ▲                queue        READ, BURY
 *        │                destination  DELIVER, STATE
 *        └── conflict, or another follower        stop ─▶ UNFOLLOW
 *
 * For each idle lane the caller gets a step from plan_next, performs the step and reports the outcome. While a batch is
 * being delivered, the relay reads the next batch.
 *
 * With the messages, the destination stores the queue's *mark*, a message id M. Each message before M is stored or
 * buried. A queue has at most one follower. Each follow has a *number*, and a takeover begins a new follow. While a
 * queue is followed, no other client takes, delays or buries its messages. These rules deliver each message exactly
 * once, even if processes with the same reader name crash, pause or run at the same time:
 *
 * 1. A delivery contains the known mark and a new mark, which is the last id + 1. The destination stores the delivery
 *    only if its mark is the known mark. Marks never decrease, so no id is stored twice. After a conflict the plan
 *    starts again with FOLLOW. A delivery without messages sets the first mark, 1, or adds an opening (a run of the
 *    queue's daemon) to a mark that an operator has set.
 * 2. Each message is delivered or buried before M exceeds its id, in the order of ids. Messages after a poison message
 *    are delivered only after the poison message is buried.
 * 3. A READ contains the first id that the plan does not have, so that the queue repeats messages of a lost reply. If a
 *    READ returns a message that the plan already has, with an id of at least M, the plan starts again with FOLLOW. A
 *    READ also contains M, and the queue removes the sent messages before M. The next READ repeats a lost removal.
 * 4. A buried message gets a new id when it is kicked, so a late delivery with the old id would store the message
 *    twice. But the plan buries only messages that the destination refuses, and the destination also refuses the late
 *    delivery. This fails only if an operator has raised the destination's limits in the meantime
 *    (docs/guide/exactness.md).
 * 5. A stopping plan ends the follow, so that other clients may read the queue, unless an earlier delivery may still
 *    be stored: a delivery of the plan has failed, there was a conflict, or the former follower did not end its
 *    follow. Once a delivery has raised M, no earlier delivery can be stored.
 * 6. An old copy of the queue assigns used ids to other messages. The destination therefore stores, with M, the opening
 *    of message M - 1 (journal/opening.h), and each READ contains M and this opening. If M does not belong to the
 *    queue's past, the queue refuses the READ, and the plan ends with PLAN_OLD_COPY. Before the first READ is answered,
 *    the plan delivers no message, and sets only the first mark. An old copy of the destination does not have all
 *    settled messages. A READ therefore names the destination, and the queue stores the id before which messages were
 *    settled for it. If M is lower than this id, the plan ends with PLAN_OLD_DESTINATION.
 * 7. After a failure of the destination the same messages are delivered again, with the same marks. A refused run is
 *    halved, until a single message is refused (the poison message).
 * 8. If two processes have the same reader name, each process waits longer after each takeover by the other, so that
 *    the other can make progress.
 * 9. A *watermark* is a time. Each message that the queue accepted before this time is settled. The destination's
 *    replies contain its time t. The reply to a READ that is sent afterwards contains the queue's time, and the highest
 *    remaining id that the queue accepted before its time. Once M exceeds this id, the earlier of the destination's
 *    time and the queue's time is a watermark, so a clock that is ahead cannot make a watermark too late. The plan
 *    sends the watermark with the delivery that raises M, or without a delivery at least once per second. 0: not known.
 *    A new era of the destination's clock invalidates all earlier times.
 * 10. A destination may lose the messages that it stored less than `settle_after` ago. The queue therefore keeps the
 *    messages from id S on. Such a destination stores each delivery, whatever its mark, and its consumers ignore what
 *    they have. The answer to ASK is what the destination shows: the mark is the id before which it has all messages
 *    from S on. S rises to a former M if an ASK settle_after later shows that the destination still has these messages,
 *    and has had them for settle_after by its own clock. If messages before this M are missing, the plan starts again with
 *    FOLLOW, and delivers from the first missing message on. After a failure the plan also starts again with FOLLOW.
 *    If another process has followed in between, M starts its settle_after again. A plan with settle_after continues
 *    after a loss of settled messages, because the consumers of the destination may have these messages: the first mark
 *    is then the id before which messages were settled. Earlier deliveries may be stored at any time, so the plan ends
 *    the follow only if S is M, and no earlier delivery has a message from M on: M has reached the id that the queue
 *    assigned next at the FOLLOW, or a READ found no message from M on.
 * 11. A plan with hand_over reads no more once rule 5 allows it to end the follow, and then stops by itself. */
#ifndef MILLRACE_READER_PLAN_H
#define MILLRACE_READER_PLAN_H

#include "base/backoff.h"
#include "readers/batch.h"

struct plan;

enum plan_lane { PLAN_QUEUE, PLAN_DESTINATION, PLAN_LANES };

enum plan_action {
    /* the queue's lane */
    PLAN_FOLLOW, /* become the queue's follower: plan_followed */
    PLAN_READ, /* settle messages before step.settle, read from id step.from on, and wait if step.wait: plan_read */
    PLAN_BURY,     /* bury message step.first of plan_batch with its reason: plan_buried */
    PLAN_UNFOLLOW, /* settle messages before step.settle, and end the follow: plan_unfollowed */
    /* the destination's lane */
    PLAN_ASK,     /* request the destination's mark of this queue: plan_asked */
    PLAN_DELIVER, /* deliver step.count messages from step.first on, or only the mark: plan_delivered ... */
    PLAN_STATE,   /* send step.watermark without a delivery: plan_stated or plan_conflict */
    /* either lane */
    PLAN_WAIT,     /* do nothing until an outcome of the other lane is reported */
    PLAN_PAUSE,    /* do nothing until time step.until, or until an outcome of the other lane is reported */
    PLAN_STOPPED,  /* the stop is complete */
    PLAN_OLD_COPY, /* the plan has ended because of an old copy of the queue (rule 6) */
    PLAN_OLD_DESTINATION /* the plan has ended because of an old copy of the destination (rule 6) */
};

struct plan_step {
    enum plan_action action;
    size_t first, count;          /* index of the first message in plan_batch, and number of messages */
    uint64_t mark, next;          /* the known mark and the new mark */
    uint64_t settle;              /* PLAN_READ, PLAN_UNFOLLOW: S, at most `mark` (rule 10) */
    char opening[MARK_LABEL_MAX]; /* the opening of `next` (PLAN_DELIVER) or of `mark` (PLAN_READ) */
    uint64_t from;                /* PLAN_READ: the first id to read */
    bool wait;                    /* PLAN_READ: wait for messages if the queue has none */
    usec_t until;                 /* PLAN_PAUSE: end of the pause */
    usec_t watermark;             /* PLAN_STATE, and PLAN_DELIVER with messages; 0: not known */
    uint64_t watermark_after;     /* plan_destination_position before the READ that showed the watermark */
};

struct plan_config {
    bool states;         /* the destination keeps watermarks (rule 9) */
    bool lines;          /* messages are lines: empty messages and messages with an LF are poison */
    uint64_t items;      /* messages per READ; a reply with fewer messages means that the queue is empty */
    bool hand_over;      /* rule 11 */
    usec_t settle_after; /* rule 10; 0: the destination never loses stored messages, and S is M */
    size_t max_bytes;    /* maximum bytes in a delivery with several messages; 0: unlimited */
    usec_t backoff_min, backoff_max;
    uint64_t seed;
};

struct plan *plan_new(const struct plan_config *config);
void plan_free(struct plan **p);

/* Returns the next step of the lane. After an action below PLAN_WAIT, the lane is busy until the outcome is reported.
 * Times are monotonic. */
struct plan_step plan_next(struct plan *p, enum plan_lane lane, usec_t now);

/* The queue's answer to FOLLOW. */
struct plan_queue {
    struct bytes id;
    uint64_t number;      /* number of the new follow */
    bool is_takeover;     /* the former follower, perhaps this plan, did not end its follow */
    struct bytes opening; /* opening of the latest message; empty: unknown */
    uint64_t next_id;     /* all messages that followers have read have lower ids */
};
void plan_followed(struct plan *p, const struct plan_queue *queue);
/* Reports the mark of the queue at the destination, and the opening that is stored with the mark. `mark` is 0 if the
 * destination has no mark, and `opening` is empty if the mark has no opening. */
void plan_asked(struct plan *p, uint64_t mark, struct bytes opening);
/* Call before plan_asked (rule 10): messages before `settled` were settled, perhaps by an earlier plan (0: not known),
 * and the destination has had all messages before `aged` for settle_after by its own clock. */
void plan_destination_has(struct plan *p, uint64_t settled, uint64_t aged);
/* Every message that the queue accepted before time `before` is removed, is buried, or has at most the id `last_id`. */
struct plan_accepted {
    usec_t before; /* time of the queue's clock; 0: not known */
    uint64_t last_id;
};
/* Takes over the batch of a READ, which may be empty, and zeroes *batch. */
void plan_read(struct plan *p, struct batch *batch, const struct plan_accepted *accepted, usec_t now);
/* Reports that the queue has refused a READ or BURY because the plan's follow has ended: another process follows the
 * queue, or the queue was restarted. */
void plan_superseded(struct plan *p, usec_t now);
/* Reports that the queue has refused a READ because the mark does not belong to its past (rule 6). */
void plan_other_history(struct plan *p);
/* Reports that the queue has refused a READ because messages before `acked_below` were settled, but the destination's
 * mark is lower (rule 6). */
void plan_destination_behind(struct plan *p, uint64_t acked_below);
void plan_delivered(struct plan *p);
void plan_stated(struct plan *p);
/* Passes the time that a reply of the destination contains to the plan (rule 9). `is_new_era`: the destination's
 * clock may have been ahead earlier. */
void plan_destination_time(struct plan *p, usec_t time, bool is_new_era);
/* Passes the destination's present position, which ascends with its time, to the plan. */
void plan_destination_position(struct plan *p, uint64_t position);
void plan_conflict(struct plan *p, usec_t now); /* the destination has another mark and stored nothing */
void plan_refused(struct plan *p, const char *reason);
void plan_buried(struct plan *p);
void plan_bury_lost(struct plan *p); /* the queue has not sent this message: the plan restarts */
void plan_unfollowed(struct plan *p);
/* Changes max_bytes of the next deliveries. */
void plan_set_max_bytes(struct plan *p, size_t max_bytes);
/* Reports that the step has failed: no connection, no reply, 5xx or 429. The plan retries the step after the time
 * `wait`, or after a backoff if `wait` is negative. */
void plan_faulted(struct plan *p, enum plan_lane lane, usec_t now, usec_t wait);
/* Reports that the step was a long poll, which the caller has cancelled because of plan_stop. */
void plan_cancelled(struct plan *p, enum plan_lane lane);
/* Stops the plan. The plan waits for the steps in progress, and then sends UNFOLLOW once (rule 5). If the removal of
 * settled messages is lost, the next process repeats it (rule 3). */
void plan_stop(struct plan *p);

/* After PLAN_OLD_DESTINATION, returns the id before which messages were settled. */
uint64_t plan_acked_below(const struct plan *p);
uint64_t plan_mark(const struct plan *p); /* M */
/* S, or the id before which the queue has settled messages that the destination has lost; 0: not known. */
uint64_t plan_settled(const struct plan *p);
/* During ASK: the mark that is due to be settled. A lower mark of the answer means a loss. 0: the whole mark is asked for. */
uint64_t plan_due(const struct plan *p);
/* The number of ids that are delivered and not settled (rule 10). */
uint64_t plan_unsettled(const struct plan *p);
/* The number of ids from M to the highest id that the queue had at the last READ. */
uint64_t plan_backlog(const struct plan *p);
const char *plan_opening(const struct plan *p); /* the opening of M; "": no opening */

const struct batch *plan_batch(const struct plan *p); /* the batch being delivered */
const char *plan_queue_id(const struct plan *p); /* id of the queue; "" before the first answer to FOLLOW */
uint64_t plan_number(const struct plan *p);      /* number of the present follow */
/* After PLAN_STOPPED, returns false if the queue may still refuse other clients, because of rule 5 or because the queue
 * did not answer. */
bool plan_has_unfollowed(const struct plan *p);

#endif
