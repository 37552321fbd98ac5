/* queuereader: delivers the messages of a queue to a destination, and retries until the destination accepts them.
 *
 *     #include <event2/event.h>
 *     #include <millrace/queuereader.h>
 *     #include <stdio.h>
 *
 *     static void deliver(struct queuereader *qr, const struct queuereader_run *run, void *arg)
 *     {
 *         (void)arg;
 *         for (size_t i = 0; i < run->n; i++)
 *             printf("%.*s\n", (int)run->messages[i].text.len, run->messages[i].text.ptr);
 *         if (fflush(stdout) == 0)
 *             queuereader_delivered(qr); // or _refused, or _faulted; now or later
 *         else
 *             queuereader_faulted(qr, "standard output is full", QUEUEREADER_BACKOFF);
 *     }
 *     int main(void)
 *     {
 *         struct event_base *base = event_base_new();
 *         struct queuereader *qr = queuereader_new(&(struct queuereader_config){.base = base,
 *             .queue_url = "http://127.0.0.1:8080", .queue = "default", .reader = "my_reader", .items = 100,
 *             .lease = 30 * USEC_PER_SEC, .destination = {.deliver = deliver}});
 *         event_base_dispatch(base);
 *         queuereader_free(&qr);
 *         event_base_free(base);
 *     }
 *
 * The reader reserves messages under a lease and hands them to the destination in order, one *run* at a time. It extends the
 * lease while the destination works, acknowledges with the next reserve, and backs off exponentially after failures. A destination
 * with marks stores run->next together with the run's messages, but only while its mark is run->mark. Such a destination gets each
 * message exactly once. readers/example_reader.c is a complete program that stops cleanly.
 *
 * The destination answers each run with one of:
 *
 *     delivered   the messages are acknowledged, and deleted from the queue
 *     refused     the run can never be delivered: it is halved; a single message is buried with the reason
 *     faulted     the messages are not to blame (no connection, 500, a full disk): the run is repeated after a wait
 *     conflict    with marks only: the destination has another mark; reading restarts from that mark
 *
 * 1. The destination has one run at a time. It answers exactly once, immediately or later.
 * 2. run->messages are in the queue's order and borrowed until the answer. After a fault or a refusal, the next run starts with the
 *    same message.
 * 3. While this process and the queue run, a run keeps its lease until the answer. Messages leased by a process that
 *    died become ready when their lease expires, or when a reader of the same name starts.
 * 4. In any period t the destination sees at most rate * t + rate / 10 + 1 messages, failed attempts included. After a
 *    late timer, the reader catches up within that bound. A run has at most rate / 20 + 1 messages.
 * 5. All calls and callbacks happen on the loop's thread. Nothing blocks.
 * 6. queuereader_stop acknowledges delivered messages, waits for the answer to the run under way, acknowledges that
 *    run, releases the leases and calls on_stopped. Without marks it returns the messages behind that run to the queue
 *    at once, and retries a failed acknowledgement for `drain`. on_stopped is also called when continuing would lose or
 *    repeat messages.
 */
#ifndef MILLRACE_QUEUEREADER_H
#define MILLRACE_QUEUEREADER_H

#include "readers/batch.h"

#include "base/clock.h"

struct event_base;
struct queuereader;

struct queuereader_run {
    const struct message *messages;
    size_t n; /* with marks it may be 0: then only the mark moves */
    const char *queue_id;
    uint64_t mark, next; /* with marks: the required mark and the new mark */
};

struct queuereader_destination {
    /* Asks the destination for its mark of that queue. Answer with queuereader_asked or _faulted. NULL: the destination
     * keeps no marks, and gets every message at least once. */
    void (*ask)(struct queuereader *qr, const char *queue_id, void *arg);
    void (*deliver)(struct queuereader *qr, const struct queuereader_run *run, void *arg);
    void *arg;
    bool lines;       /* bury empty messages and messages that contain an LF */
    size_t max_items; /* maximum in one run; 0: all of a lease */
    size_t max_bytes; /* maximum in one run, unless one message is longer; 0: unlimited */
    uint64_t rate;    /* messages a second, at most 1000000000; 0: unlimited */
    /* After this many refusals of single messages in a row, the next refusal counts as a fault, so that a mistyped address does not
     * bury a whole queue. 0: unlimited. */
    uint64_t poison_limit;
};

enum queuereader_end {
    QUEUEREADER_STOPPED,
    QUEUEREADER_OLD_COPY,      /* the destination has newer messages of this queue */
    QUEUEREADER_FOREIGN_MARK,  /* the destination's mark of this queue was not set by a reader */
    QUEUEREADER_MARKS_USED_UP, /* no higher mark is possible */
};
const char *queuereader_end_text(enum queuereader_end end); /* the meaning, and advice for the operator */

struct queuereader_config {
    struct event_base *base;
    const char *queue_url, *queue, *reader; /* copied */
    const char *auth_token;                 /* NULL: none; copied */
    uint64_t items;                         /* in a lease */
    usec_t lease;                           /* duration; extended while needed */
    usec_t wait;                            /* the longest time that a request waits for messages; 0: 20 s */
    usec_t timeout;                         /* for the queue's answers, in addition to wait; 0: 10 s */
    usec_t backoff_min, backoff_max;        /* 0: 50 ms, 2 s */
    usec_t
        drain; /* how long queuereader_stop retries acknowledgements; the last attempt may end later; 0: 10 s */
    struct queuereader_destination destination;
    void (*on_stopped)(enum queuereader_end end, void *arg); /* may be NULL */
    /* queuereader_trouble has changed; may be NULL. */
    void (*on_trouble)(const char *trouble, void *arg);
    void (*on_buried)(const struct message *m, void *arg); /* may be NULL */
    /* Without marks: the lease of these messages expired before they were acknowledged, so they are delivered again. Not called if
     * an earlier request may have acknowledged them. ids: "A-B,C", borrowed. May be NULL. */
    void (*on_ack_lost)(struct bytes ids, void *arg);
    void *arg;
};

/* Starts with the loop's next iteration. NULL if queue_url is invalid. */
struct queuereader *queuereader_new(const struct queuereader_config *config);
/* Frees immediately. The destination must not answer its run afterwards. */
void queuereader_free(struct queuereader **qr);
/* Stops (invariant 6). A second call retries each pending acknowledgement at once, one last time. */
void queuereader_stop(struct queuereader *qr);
/* Appends the ids of delivered but unacknowledged messages, "A-B,C": they are delivered again. Appends nothing with marks. */
void queuereader_unacknowledged(const struct queuereader *qr, struct buf *ids);

void queuereader_asked(struct queuereader *qr, uint64_t mark);
void queuereader_delivered(struct queuereader *qr);
/* The destination's mark is not run->mark, or it answered `duplicate`. */
void queuereader_conflict(struct queuereader *qr);
/* The destination can never accept this run. */
void queuereader_refused(struct queuereader *qr, const char *reason);
/* Repeats the run after `wait`; QUEUEREADER_BACKOFF: after the reader's own backoff. */
void queuereader_faulted(struct queuereader *qr, const char *why, usec_t wait);
#define QUEUEREADER_BACKOFF ((usec_t)-1)
/* Repeats the run at once, so that another server can try it. The repetition counts towards `rate`, but is not reported
 * as trouble. */
void queuereader_again(struct queuereader *qr);

/* Returns the current problem, valid until the next call, or NULL once both sides have answered. */
const char *queuereader_trouble(const struct queuereader *qr);

struct queuereader_numbers {
    uint64_t reserved, delivered, buried; /* messages */
    uint64_t runs, refused, conflicts;    /* runs delivered, refused, in conflict */
    uint64_t superseded;                  /* takeovers by another process of this name */
    uint64_t acks_refused;                /* acknowledgements refused for good */
    uint64_t queue_faults, deliveries_failed;
};
struct queuereader_numbers queuereader_numbers(const struct queuereader *qr);

/* Returns the raw value of the member `"name":"value"` of a millrace daemon's JSON reply, or BYTES_NONE. */
struct bytes queuereader_reply_member(struct bytes json, const char *name);

#endif
