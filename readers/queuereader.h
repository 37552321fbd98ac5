/* queuereader: follows a queue and delivers its messages exactly once and in order, to a destination that keeps marks.
 * dispatcher.h is for all other destinations.
 *
 * The reader becomes the queue's only follower, reads messages and passes them to the destination in order, one *run* at a
 * time. It backs off after failures. The destination stores run->next, its new *mark*, in one step with the messages, and only if its
 * mark is run->mark. The queue then removes the messages below the mark.
 *
 * The destination must answer each run in one of these ways:
 *
 *     delivered   the queue removes the messages with the next read
 *     refused     the run can never be delivered: it is halved; a single message is buried with the reason
 *     faulted     the messages are not to blame (no connection, 500, a full disk): the run is repeated after a wait
 *     conflict    the destination has another mark; reading restarts from that mark
 *
 * 1. The destination has at most one run, and answers it exactly once, immediately or later.
 * 2. run->messages are in the order of the queue, valid until the answer. After a fault or a refusal, the next run
 *    starts with the same message.
 * 3. While a queue is followed, it refuses other readers, also after this process has died or the queue was restarted. A reader of the
 *    same name takes over; POST /unfollow lets others in.
 * 4. All calls and callbacks happen on the loop's thread. Nothing blocks.
 * 5. queuereader_stop waits for the answer to the current run, ends the following and calls on_stopped. The reader also stops if
 *    it would lose or repeat messages. */
#ifndef MILLRACE_QUEUEREADER_H
#define MILLRACE_QUEUEREADER_H

#include "readers/batch.h"

#include "base/clock.h"

struct event_base;
struct queuereader;

struct queuereader_run {
    const struct message *messages;
    size_t n;                    /* 0: only the mark, or its opening, changes */
    const char *queue_id, *host; /* the name of the queue's host; "": unknown */
    uint64_t mark, next; /* the mark that the destination must have, and the new one: the last id + 1 */
    /* With `state`: once the run is stored, each message that the queue accepted before this time, by its clock and
     * by the destination's, is stored or buried; 0: not known. */
    usec_t until;
    const char *opening; /* to be stored with `next` and passed to queuereader_asked; may be "" */
};

struct queuereader_destination {
    /* Asks for the destination's mark of this queue: answer with queuereader_asked or _faulted. */
    void (*ask)(struct queuereader *qr, const char *queue_id, void *arg);
    void (*deliver)(struct queuereader *qr, const struct queuereader_run *run, void *arg);
    /* States run->until, without messages, if the destination's mark is run->mark: answer with queuereader_stated,
     * _conflict or _faulted. NULL: no `until` needed. */
    void (*state)(struct queuereader *qr, const struct queuereader_run *run, void *arg);
    void *arg;
    bool lines;       /* bury empty messages and messages that contain an LF */
    size_t max_bytes; /* maximum bytes in a run, unless one message is longer; 0: unlimited */
};

enum queuereader_end {
    QUEUEREADER_STOPPED,
    QUEUEREADER_OLD_COPY,        /* the destination has newer messages of this queue */
    QUEUEREADER_OLD_DESTINATION, /* messages were settled that the destination does not have */
};
/* The meaning, and advice for the operator. */
const char *queuereader_end_text(enum queuereader_end end);

struct queuereader_config {
    struct event_base *base;
    const char *queue_url, *queue, *reader; /* copied */
    const char *auth_token;                 /* NULL: none; copied */
    uint64_t items;                         /* in a lease or a read */
    usec_t lease;                           /* only for a dispatcher: duration; extended while needed */
    usec_t wait;                            /* the longest time that a request waits for messages; 0: 20 s */
    usec_t timeout;                         /* for the queue's answers, in addition to wait; 0: 10 s */
    usec_t backoff_min, backoff_max;        /* 0: 50 ms, 2 s */
    struct queuereader_destination destination;
    void (*on_stopped)(enum queuereader_end end, void *arg); /* may be NULL */
    /* Called when queuereader_trouble has changed. May be NULL. */
    void (*on_trouble)(const char *trouble, void *arg);
    void (*on_buried)(const struct message *m, void *arg); /* may be NULL */
    void *arg;
};

/* The reader starts in the next iteration of the loop. Returns NULL if queue_url is invalid. */
struct queuereader *queuereader_new(const struct queuereader_config *config);
/* Frees the reader immediately. Afterwards the destination must not answer its run. */
void queuereader_free(struct queuereader **qr);
/* Stops the reader (invariant 5). */
void queuereader_stop(struct queuereader *qr);

/* States the destination's random hexadecimal id, before queuereader_asked. The queue then stores what was
 * settled for it, and the reader recognizes an old copy of the destination. */
#define QUEUEREADER_DESTINATION_DIGITS 8
void queuereader_set_destination(struct queuereader *qr, struct bytes id);
/* States the destination's time, as a reply names it. Call this before the answer. is_new_era: its clock may have been ahead before; the
 * next run->until is of the new era. */
void queuereader_set_time(struct queuereader *qr, usec_t time, bool is_new_era);
void queuereader_asked(struct queuereader *qr, uint64_t mark, struct bytes opening);
void queuereader_delivered(struct queuereader *qr);
void queuereader_stated(struct queuereader *qr);
/* Call this if the destination's mark is not run->mark or it has answered `duplicate`. */
void queuereader_conflict(struct queuereader *qr);
/* Call this if the destination can never accept this run. A run without messages is repeated, as after a fault. */
void queuereader_refused(struct queuereader *qr, const char *reason);
/* Repeats the run after `wait`, or with QUEUEREADER_BACKOFF after the backoff of the reader. */
void queuereader_faulted(struct queuereader *qr, const char *why, usec_t wait);
#define QUEUEREADER_BACKOFF ((usec_t)-1)

/* After a stop: false if the queue may still refuse other readers, because a run may still be stored, because another process
 * of this name follows the queue, or because the queue did not answer. */
bool queuereader_has_unfollowed(const struct queuereader *qr);

/* The current problem, valid until the next call; NULL: queue and destination have answered. */
const char *queuereader_trouble(const struct queuereader *qr);

/* After QUEUEREADER_OLD_COPY: the destination has messages below mark_id of another copy of the queue. From differs_from on, no
 * message of this copy was delivered. */
struct queuereader_old_copy {
    const char *queue_id;
    uint64_t mark_id, differs_from;
    uint64_t acked_below; /* messages below this id were settled for the destination; 0: none */
    bool is_certain;      /* false: differs_from was found by the clocks */
    bool is_ahead;        /* differs_from is the next id: another program has raised the mark above it */
    const char *began;    /* when the opening of differs_from began, in UTC */
    const char *openings; /* the latest of the queue: "from id FIRST at TIME, ..." */
};
struct queuereader_old_copy queuereader_old_copy(const struct queuereader *qr);
/* After QUEUEREADER_OLD_DESTINATION: the destination has the messages below `mark_id`, and the messages below
 * `acked_below` were settled for it. */
struct queuereader_old_destination {
    const char *destination;
    uint64_t mark_id, acked_below;
};
struct queuereader_old_destination queuereader_old_destination(const struct queuereader *qr);

struct queuereader_numbers {
    uint64_t reserved, delivered, buried; /* messages */
    uint64_t runs, refused, conflicts;    /* delivered runs, refused runs, and conflicts */
    uint64_t superseded;                  /* takeovers by another process of this name */
    uint64_t acks_refused;                /* acknowledgements refused for good */
    uint64_t queue_faults, deliveries_failed;
};
struct queuereader_numbers queuereader_numbers(const struct queuereader *qr);

/* Returns the raw value of the member `"name":"value"` in the JSON reply of a millrace daemon, or BYTES_NONE. */
struct bytes queuereader_reply_member(struct bytes json, const char *name);

#endif
