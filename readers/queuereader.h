/* queuereader: delivers the messages of a queue to a destination, and retries until they are accepted.
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
 * It reserves messages under a lease and hands them to the destination in order. Acknowledgements ride on the next reserve. Leases are
 * extended while the destination works. If queue or destination fail it backs off exponentially. A refused run is halved until
 * the poison message is found, which is buried with the reason. A destination with marks stores run->next together with the
 * run's messages, and only while its mark is run->mark; it gets each message exactly once.
 * readers/example_reader.c is a program that can be stopped.
 *
 * The destination's answer decides what happens to the messages of a run:
 *
 *     delivered   they are acknowledged, and deleted from the queue
 *     refused     this run can never be delivered: it is halved; a single message is buried with the reason
 *     faulted     the messages are not to blame (no connection, 500, a full disk): the same run follows after a wait
 *     conflict    with marks only: the destination's mark is another; reading restarts from that mark
 *
 * 1. One run is with the destination at a time. It is answered exactly once, immediately or later.
 * 2. run->messages are borrowed until the answer, in the queue's order. After a run was faulted or refused, the next one starts with
 *    the same message.
 * 3. A run keeps its lease while it is with the destination, as long as this process and the queue are running. Messages leased by a
 *    process that died become ready when their lease expires, or when a reader of the same name starts.
 * 4. In any period t the destination sees at most rate * t + rate / 10 + 1 messages, failed attempts included. Time lost to late timers
 *    is made up within that bound. A run has at most rate / 20 + 1 messages.
 * 5. On the loop's thread only. Nothing blocks.
 * 6. queuereader_stop acknowledges what was delivered, waits for the answer to the run under way, acknowledges that, releases the
 *    leases and calls on_stopped. Without marks it gives back the messages behind that run at once, and retries an acknowledgement
 *    that fails for `drain`, since those messages would be delivered again. on_stopped is also called when going on would
 *    lose or repeat messages.
 */
#ifndef MILLRACE_QUEUEREADER_H
#define MILLRACE_QUEUEREADER_H

#include "readers/batch.h"

#include "base/clock.h"

struct event_base;
struct queuereader;

struct queuereader_run {
    const struct message *messages;
    size_t n; /* may be 0 with marks: then only the mark moves */
    const char *queue_id;
    uint64_t mark, next; /* with marks: the required mark, and the new one */
};

struct queuereader_destination {
    /* Asks for the destination's mark of that queue. Answer with queuereader_asked or _faulted. NULL: it keeps no marks, and gets every
     * message at least once. */
    void (*ask)(struct queuereader *qr, const char *queue_id, void *arg);
    void (*deliver)(struct queuereader *qr, const struct queuereader_run *run, void *arg);
    void *arg;
    bool lines;       /* empty messages and those that contain an LF are buried */
    size_t max_items; /* in one run; 0: all of a lease */
    size_t max_bytes; /* in one run, unless one message has more; 0: unlimited */
    uint64_t rate;    /* messages a second, at most 1000000000; 0: unlimited */
    /* After this many single messages refused in a row, the next refusal counts as a fault. A mistyped address must not bury a whole
     * queue. 0: unlimited. */
    uint64_t poison_limit;
};

enum queuereader_end {
    QUEUEREADER_STOPPED,
    QUEUEREADER_OLD_COPY,      /* the queue is an older copy of the one that was relayed */
    QUEUEREADER_FOREIGN_MARK,  /* the destination's mark of this queue is not a reader's */
    QUEUEREADER_MARKS_USED_UP, /* no higher mark is possible */
};
const char *queuereader_end_text(enum queuereader_end end); /* what it means and what to do */

struct queuereader_config {
    struct event_base *base;
    const char *queue_url, *queue, *reader; /* copied */
    const char *auth_token;                 /* NULL: none; copied */
    uint64_t items;                         /* in a lease */
    usec_t lease;                           /* duration; extended while needed */
    usec_t wait;                            /* for messages, per request; 0: 20 s */
    usec_t timeout;                         /* for the queue's answers, plus that wait; 0: 10 s */
    usec_t backoff_min, backoff_max;        /* 0: 50 ms, 2 s */
    usec_t drain; /* how long queuereader_stop retries acknowledgements; the last may end later. 0: 10 s */
    struct queuereader_destination destination;
    void (*on_stopped)(enum queuereader_end end, void *arg); /* may be NULL */
    /* queuereader_trouble has changed; may be NULL. */
    void (*on_trouble)(const char *trouble, void *arg);
    void (*on_buried)(const struct message *m, void *arg); /* may be NULL */
    /* Without marks: these messages are delivered again, since their lease expired before they were acknowledged. Not called if an
     * earlier request may have acknowledged them. ids: "A-B,C", borrowed; may be NULL. */
    void (*on_ack_lost)(struct bytes ids, void *arg);
    void *arg;
};

/* Starts with the loop's next iteration. NULL if queue_url is invalid. */
struct queuereader *queuereader_new(const struct queuereader_config *config);
/* Immediately. A run with the destination must not be answered afterwards. */
void queuereader_free(struct queuereader **qr);
/* A second call tries each pending acknowledgement once more, at once. */
void queuereader_stop(struct queuereader *qr);
/* The ids "A-B,C" that were delivered and not acknowledged, and so are delivered again. None with marks. */
void queuereader_unacknowledged(const struct queuereader *qr, struct buf *ids);

void queuereader_asked(struct queuereader *qr, uint64_t mark);
void queuereader_delivered(struct queuereader *qr);
/* Its mark is not run->mark. `duplicate` is a conflict too. */
void queuereader_conflict(struct queuereader *qr);
void queuereader_refused(struct queuereader *qr, const char *reason); /* for ever */
/* Retries after `wait`, or after the reader's own backoff if that is negative. */
void queuereader_faulted(struct queuereader *qr, const char *why, usec_t wait);
#define QUEUEREADER_BACKOFF ((usec_t)-1)
/* Delivers the same run again at once, to another server. Counts for `rate`, but not as trouble. */
void queuereader_again(struct queuereader *qr);

/* NULL: it works, and both sides have answered at least once. Otherwise the problem, valid until the next call. */
const char *queuereader_trouble(const struct queuereader *qr);

struct queuereader_numbers {
    uint64_t reserved, delivered, buried; /* messages */
    uint64_t runs, refused, conflicts;    /* runs delivered, refused, in conflict */
    uint64_t superseded;                  /* takeovers by another process of this name */
    uint64_t acks_refused;                /* acknowledgements refused for good */
    uint64_t queue_faults, deliveries_failed;
};
struct queuereader_numbers queuereader_numbers(const struct queuereader *qr);

/* The member `"name":"value"` of a millrace daemon's JSON reply, not unescaped; BYTES_NONE without it. */
struct bytes queuereader_reply_member(struct bytes json, const char *name);

#endif
