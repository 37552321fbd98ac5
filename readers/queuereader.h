/* queuereader: follows a queue and delivers its messages exactly once and in order, to a destination that keeps marks.
 * For all other destinations, see dispatcher.h.
 *
 * The reader becomes the queue's only follower, reads messages and passes them to the destination in order, one *run*
 * at a time. After failures the reader backs off. In one step, the destination stores the messages and its new *mark*,
 * run->next, but only if its present mark is run->mark. The queue then removes the messages before the new mark.
 *
 * The destination must answer each run in one of these ways:
 *
 *     delivered   the queue removes the messages with the next read
 *     refused     the run can never be delivered: the run is halved; a single message is buried with the reason
 *     faulted     the destination has failed (no connection, 500, a full disk): the run is repeated after a wait
 *     conflict    the destination has another mark; reading restarts from that mark
 *
 * 1. The destination has at most one run at a time, and answers each run exactly once, immediately or later.
 * 2. run->messages are in the order of the queue, and valid until the answer. After a fault or a refusal, the next run
 *    starts with the same message.
 * 3. A followed queue refuses other readers, even after the following process has died or the queue was restarted. A
 *    reader with the same name takes over. POST /unfollow ends the follow, so that other readers can use the queue.
 * 4. All calls and callbacks happen on the loop's thread. Nothing blocks.
 * 5. queuereader_stop waits for the answer to the current run, ends the follow and calls on_stopped. The reader also
 *    stops if it would otherwise lose or repeat messages. */
#ifndef MILLRACE_QUEUEREADER_H
#define MILLRACE_QUEUEREADER_H

#include "readers/batch.h"

#include "base/clock.h"

struct event_base;
struct queuereader;

struct queuereader_run {
    const struct message *messages;
    size_t n;                    /* number of messages; 0: only the mark or its opening changes */
    const char *queue_id, *host; /* the id of the queue; the name of its host, or "" if unknown */
    uint64_t mark, next; /* the mark that the destination must have, and the new mark: the last id + 1 */
    /* Only with `state`. Once the run is stored, each message that the queue accepted before time `until` is stored or
     * buried. `until` holds for the clocks of the queue and of the destination. 0: not known. */
    usec_t until;
    uint64_t until_after; /* the value of queuereader_set_position before the READ that showed `until` */
    const char *opening;  /* stored with `next`, and passed to queuereader_asked; may be "" */
};

struct queuereader_destination {
    /* Asks for the destination's mark of the queue. Answer with queuereader_asked or queuereader_faulted. */
    void (*ask)(struct queuereader *qr, const char *queue_id, void *arg);
    void (*deliver)(struct queuereader *qr, const struct queuereader_run *run, void *arg);
    /* Sends run->until to the destination without messages. The destination accepts run->until only if its mark is
     * run->mark. Answer with queuereader_stated, _conflict or _faulted. NULL: the destination does not need `until`. */
    void (*state)(struct queuereader *qr, const struct queuereader_run *run, void *arg);
    void *arg;
    bool hand_over; /* stop by itself, and end the follow, once all delivered messages are settled */
    /* Only with `state`. The destination may lose messages within this time after it has stored them. The queue keeps the
     * messages that long, and until the destination has shown in an answer to `ask` that it still has them. */
    usec_t settle_after;
    bool lines;       /* bury empty messages and messages that contain an LF */
    size_t max_bytes; /* maximum bytes in a run with several messages; 0: unlimited */
};

enum queuereader_end {
    QUEUEREADER_STOPPED,
    QUEUEREADER_OLD_COPY,        /* the queue is an old copy: the destination has newer messages of it */
    QUEUEREADER_OLD_DESTINATION, /* the destination does not have messages that were settled */
};
/* Returns the meaning of `end`. */
const char *queuereader_end_text(enum queuereader_end end);

struct queuereader_config {
    struct event_base *base;
    const char *queue_url, *queue, *reader; /* copied */
    const char *auth_token;                 /* NULL: none; copied */
    uint64_t items;                         /* maximum messages in a lease or a read */
    usec_t lease;                    /* only for a dispatcher: duration of a lease, extended while needed */
    usec_t wait;                     /* longest time that a request waits for messages; 0: 20 s */
    usec_t timeout;                  /* timeout for the queue's answers, in addition to `wait`; 0: 10 s */
    usec_t backoff_min, backoff_max; /* bounds of the backoff; 0: 50 ms and 2 s */
    struct queuereader_destination destination;
    void (*on_stopped)(enum queuereader_end end, void *arg); /* may be NULL */
    /* Called when queuereader_trouble has changed. May be NULL. */
    void (*on_trouble)(const char *trouble, void *arg);
    void (*on_buried)(const struct message *m, void *arg); /* may be NULL */
    void *arg;
};

/* The reader starts in the next iteration of the loop. Returns NULL if queue_url is invalid. */
struct queuereader *queuereader_new(const struct queuereader_config *config);
/* Frees the reader immediately. After this call, the destination must not answer its current run. */
void queuereader_free(struct queuereader **qr);
/* Stops the reader (invariant 5). */
void queuereader_stop(struct queuereader *qr);

/* Sets the random hexadecimal id of the destination. Call queuereader_set_destination before queuereader_asked. The
 * queue then stores the id before which messages were settled for this destination, and the reader recognizes an old
 * copy of the destination. */
#define QUEUEREADER_DESTINATION_DIGITS 8
void queuereader_set_destination(struct queuereader *qr, struct bytes id);
/* Passes the destination's time, from a reply of the destination. Call queuereader_set_time before the answer.
 * `is_new_era`: the destination's clock may have been ahead earlier, and the next run->until is a time of the new
 * era. */
void queuereader_set_time(struct queuereader *qr, usec_t time, bool is_new_era);
/* Passes the destination's present position, which ascends with its time. */
void queuereader_set_position(struct queuereader *qr, uint64_t position);
/* Only with settle_after. Call before queuereader_asked: messages before `settled` were settled, perhaps by an earlier
 * process (0: not known), and the destination has had all messages before `aged` for settle_after by its own clock. */
void queuereader_set_aged(struct queuereader *qr, uint64_t settled, uint64_t aged);
/* Changes destination.max_bytes of the next runs. */
void queuereader_set_max_bytes(struct queuereader *qr, size_t max_bytes);
void queuereader_asked(struct queuereader *qr, uint64_t mark, struct bytes opening);
void queuereader_delivered(struct queuereader *qr);
void queuereader_stated(struct queuereader *qr);
/* Answers that the destination's mark is not run->mark, or that the destination has replied `duplicate`. */
void queuereader_conflict(struct queuereader *qr);
/* Answers that the destination can never accept the run. A run without messages is repeated, as after a fault. */
void queuereader_refused(struct queuereader *qr, const char *reason);
/* Repeats the run after the time `wait`. QUEUEREADER_BACKOFF stands for the backoff of the reader. */
void queuereader_faulted(struct queuereader *qr, const char *why, usec_t wait);
#define QUEUEREADER_BACKOFF ((usec_t)-1)

/* Returns false if the queue may still refuse other readers after the stop. Reasons: a run may still be stored, another
 * process with this reader's name follows the queue, or the queue did not answer. */
bool queuereader_has_unfollowed(const struct queuereader *qr);

/* Returns the current problem, valid until the next call, or NULL if queue and destination have answered. */
const char *queuereader_trouble(const struct queuereader *qr);

/* The facts after QUEUEREADER_OLD_COPY. The destination has the messages before `mark_id` from another copy of the
 * queue. From id `differs_from` on, no message of this copy was delivered. */
struct queuereader_old_copy {
    const char *queue_id;
    uint64_t mark_id, differs_from;
    const char *opening;  /* of message mark_id - 1; "": unknown */
    uint64_t acked_below; /* messages before this id were settled for the destination */
    bool is_certain;      /* false: differs_from was found by comparing times */
    bool is_ahead;        /* differs_from is the queue's next id: another program has raised the mark */
    const char *began; /* UTC time at which the opening (run of the daemon) of message differs_from began */
    const char *openings; /* the latest openings of the queue: "from id FIRST at TIME, ..." */
};
struct queuereader_old_copy queuereader_old_copy(const struct queuereader *qr);
/* The facts after QUEUEREADER_OLD_DESTINATION. The destination has only the messages before `mark_id`, but the queue
 * has settled all messages before `acked_below`, a higher id, for this destination. */
struct queuereader_old_destination {
    const char *destination;
    uint64_t mark_id, acked_below;
};
struct queuereader_old_destination queuereader_old_destination(const struct queuereader *qr);

struct queuereader_numbers {
    uint64_t reserved, delivered, buried; /* numbers of messages */
    uint64_t runs, refused, conflicts;    /* numbers of delivered runs, refused runs, and conflicts */
    uint64_t superseded;                  /* takeovers by another process with this reader's name */
    uint64_t acks_refused;                /* acknowledgements that the queue refused permanently */
    uint64_t queue_faults, deliveries_failed;
    uint64_t unsettled; /* number of ids that are delivered, but not yet settled because of settle_after */
    uint64_t backlog;   /* number of ids that the queue has and that are not delivered */
    uint64_t settled;   /* the queue needs to keep no message before this id; 0: not known */
    uint64_t due;   /* in `ask`: a mark of this value suffices as answer; 0: the whole mark is asked for */
    uint64_t below; /* each message before this id is delivered or buried; 0: not known */
};
struct queuereader_numbers queuereader_numbers(const struct queuereader *qr);

/* Returns the raw value of the member `"name":"value"` in the JSON reply of a millrace daemon, or BYTES_NONE. */
struct bytes queuereader_reply_member(struct bytes json, const char *name);

#endif
