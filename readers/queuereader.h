/* queuereader: takes what is on a queue to a destination, and does not give up.
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
 *             queuereader_delivered(qr); // now or later; or _refused, or _faulted
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
 * It reserves messages under a lease, hands them to the destination in order, acknowledges what was delivered (the
 * acknowledgement rides on the next reserve), extends the lease while the destination takes its time, backs off
 * exponentially while queue or destination fail, halves what is refused until the poison message is found, and buries
 * that with the reason. A destination with marks, which stores run->next in the same step as the run's messages and takes
 * no run whose mark is not what it has stored, gets each message exactly once.
 * readers/example_reader.c does the same and can be stopped.
 *
 * What the destination answers decides what becomes of the run's messages:
 *
 *     delivered   they are acknowledged, and gone from the queue
 *     refused     this run can never be delivered as it is: it is halved; a single message is buried with the reason
 *     faulted     the trouble is not theirs (no connection, 500, a full disk): the same run again after a wait
 *     conflict    only with marks: the destination stands elsewhere; all starts again from where it stands
 *
 * 1. One run is with the destination at a time. It may be answered at once or later, but exactly once.
 * 2. run->messages are borrowed until the answer. Their order is the queue's; a run that was faulted or refused is
 *    followed by one that starts with the same message.
 * 3. A run that is with the destination keeps its lease, however long that takes, as long as this process and the
 *    queue run. Messages that a dead process leased are ready again when their lease ends, or when a reader of the
 *    same name starts.
 * 4. The destination sees at most `rate` messages a second, tries that fail included: in no stretch of time t more than
 *    rate * t + rate / 10 + 1. What late timers and answers left unused is made up for within that bound, never what was left
 *    unused for longer; a run is at most rate / 20 + 1.
 * 5. The loop thread only. Nothing blocks.
 * 6. queuereader_stop acknowledges what was delivered, lets the run that is with the destination be answered (without marks it gives
 *    back at once what is not in it), acknowledges that, releases, and calls on_stopped. Without marks an acknowledgement that the queue
 *    does not take is tried again for `drain`, for without it messages that were delivered come again. on_stopped is also called
 *    when going on would lose or repeat messages.
 */
#ifndef MILLRACE_QUEUEREADER_H
#define MILLRACE_QUEUEREADER_H

#include "readers/batch.h"

#include "base/clock.h"

struct event_base;
struct queuereader;

struct queuereader_run {
    const struct message *messages;
    size_t n; /* with marks perhaps 0: then only the mark is to be moved */
    const char *queue_id;
    uint64_t mark, next; /* of a destination with marks: where it must stand, and where it will */
};

struct queuereader_destination {
    /* How far this destination has got with the queue of that id: queuereader_asked, or _faulted. NULL when it keeps
     * no marks: then it gets every message at least once. */
    void (*ask)(struct queuereader *qr, const char *queue_id, void *arg);
    void (*deliver)(struct queuereader *qr, const struct queuereader_run *run, void *arg);
    void *arg;
    bool lines;       /* empty messages and those that hold an LF are buried, never delivered */
    size_t max_items; /* in one run; 0: as many as are leased together */
    size_t max_bytes; /* in one run, unless one message has more; 0: no bound */
    uint64_t rate;    /* messages a second, at most 1000000000; 0: no bound */
    /* So many single messages refused in a row, with nothing delivered between, are taken for a fault of the destination:
     * it would be a pity to bury a whole queue for a mistyped address. 0: no bound. */
    uint64_t poison_limit;
};

enum queuereader_end {
    QUEUEREADER_STOPPED,
    QUEUEREADER_OLD_COPY,      /* the queue is an older state of the one that was relayed */
    QUEUEREADER_FOREIGN_MARK,  /* the destination's mark of this queue was made by something else */
    QUEUEREADER_MARKS_USED_UP, /* numbers have come to their end */
};
const char *queuereader_end_text(enum queuereader_end end); /* what it means and what to do, in a sentence */

struct queuereader_config {
    struct event_base *base;
    const char *queue_url, *queue, *reader; /* copied */
    const char *auth_token;                 /* NULL: none; copied */
    uint64_t items;                         /* a lease */
    usec_t lease;                           /* how long; extended while it is needed */
    usec_t wait;                            /* for messages, in one request; 0: 20 s */
    usec_t timeout;                         /* for the queue's answers, beside that wait; 0: 10 s */
    usec_t backoff_min, backoff_max;        /* 0: 50 ms, 2 s */
    usec_t
        drain; /* from queuereader_stop on, tries to acknowledge; the last request may outlast it. 0: 10 s */
    struct queuereader_destination destination;
    void (*on_stopped)(enum queuereader_end end, void *arg); /* may be NULL */
    /* The trouble has begun, changed or ended (see queuereader_trouble); may be NULL. */
    void (*on_trouble)(const char *trouble, void *arg);
    void (*on_buried)(const struct message *m, void *arg); /* it is, for its reason; may be NULL */
    /* Without marks: what was delivered comes again, for its lease was lost before it was acknowledged. Not said where an earlier
     * request may have done that. ids: "A-B,C", borrowed; may be NULL. */
    void (*on_ack_lost)(struct bytes ids, void *arg);
    void *arg;
};

/* Starts from the loop's next turn. NULL when queue_url is no address. */
struct queuereader *queuereader_new(const struct queuereader_config *config);
/* At once. A run with the destination must not be answered any more. */
void queuereader_free(struct queuereader **qr);
/* Again: what is to be acknowledged is tried once more, at once, and then given up. */
void queuereader_stop(struct queuereader *qr);
/* The ids "A-B,C" of what was delivered and not acknowledged: at the end they come again. Nothing with marks, which tell. */
void queuereader_unacknowledged(const struct queuereader *qr, struct buf *ids);

void queuereader_asked(struct queuereader *qr, uint64_t mark);
void queuereader_delivered(struct queuereader *qr);
/* Its mark is not run->mark, whatever it is: also when it says `duplicate`. */
void queuereader_conflict(struct queuereader *qr);
void queuereader_refused(struct queuereader *qr, const char *reason); /* these messages, whatever is tried */
/* Try again later: after `wait`, or when that is negative after the reader's own backoff. */
void queuereader_faulted(struct queuereader *qr, const char *why, usec_t wait);
#define QUEUEREADER_BACKOFF ((usec_t)-1)
/* The same run at once, for another server that may take it: no trouble, but a try that `rate` counts. */
void queuereader_again(struct queuereader *qr);

/* NULL: all goes well and both sides have answered at least once; else what does not go. Valid until the next call. */
const char *queuereader_trouble(const struct queuereader *qr);

struct queuereader_numbers {
    uint64_t reserved, delivered, buried; /* messages */
    uint64_t runs, refused, conflicts;    /* runs delivered, refused (and halved), met by another mark */
    uint64_t superseded;                  /* times that another process of this name took over */
    uint64_t acks_refused;                /* requests to acknowledge that the queue would never take */
    uint64_t queue_faults, deliveries_failed;
};
struct queuereader_numbers queuereader_numbers(const struct queuereader *qr);

/* A text member `"name":"value"` of one of our own daemons' JSON replies, as it stands; BYTES_NONE without it. */
struct bytes queuereader_reply_member(struct bytes json, const char *name);

#endif
