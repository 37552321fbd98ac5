/* dispatcher: delivers the messages of a queue to a destination, at least once each, and retries until the destination
 * accepts them.
 *
 *     #include <event2/event.h>
 *     #include <millrace/dispatcher.h>
 *     #include <stdio.h>
 *
 *     static void deliver(struct dispatcher *x, struct dispatch_run *run, void *arg)
 *     {
 *         (void)arg;
 *         for (size_t i = 0; i < run->n; i++)
 *             printf("%.*s\n", (int)run->messages[i]->text.len, run->messages[i]->text.ptr);
 *         if (fflush(stdout) == 0)
 *             dispatcher_delivered(x, run); // or another answer; now or later
 *         else
 *             dispatcher_down(x, run, "standard output is full", QUEUEREADER_BACKOFF);
 *     }
 *     int main(void)
 *     {
 *         struct event_base *base = event_base_new();
 *         struct dispatcher *x = dispatcher_new(&(struct dispatcher_config){.deliver = deliver, .max_items = 100,
 *             .reader = {.base = base, .queue_url = "http://127.0.0.1:8080", .queue = "default",
 *                 .reader = "my_reader", .items = 100, .lease = 30 * USEC_PER_SEC}});
 *         event_base_dispatch(base);
 *         dispatcher_free(&x);
 *         event_base_free(base);
 *     }
 * readers/example_reader.c is a longer example, which also stops cleanly.
 *
 * `deliver` gets a run. The caller answers each run exactly once, immediately or later, with one of these outcomes:
 *
 *     delivered   the messages are acknowledged, and deleted from the queue
 *     refused     the run can never be delivered: the run is halved; a single message is buried with the reason
 *     failed      the messages are delivered again after a backoff; other messages are not delayed
 *     down        the destination accepts nothing: no run begins for the time `wait`, or until another run is delivered
 *     again       the run is repeated immediately, for example at another server
 *     later       the run was not sent: no run begins for the time `wait`
 *
 * 1. dispatch.h describes order, retries and the messages that are repeated after a crash.
 * 2. on_trouble reports a destination that is down. on_trouble also reports a destination if DISPATCHER_FAILURES runs
 *    in a row have failed and no run was delivered for DISPATCHER_PATIENCE. on_failing reports single failures.
 * 3. In t seconds the destination gets at most rate * t + rate / 10 + 1 messages, including failed attempts. A run has
 *    at most rate / 20 + 1 messages.
 * 4. A shared dispatcher has no name at the queue, and shares the messages with other shared readers. If a shared
 *    dispatcher dies, its messages become ready when their lease expires. The messages of any other dispatcher also
 *    become ready when a reader with the same name starts.
 * 5. dispatcher_stop returns all messages that are not in runs to the queue, and waits for the answers to the current
 *    runs. The dispatcher then acknowledges the delivered messages, releases the leases and calls on_stopped.
 *    dispatcher_stop retries acknowledgements for the time `drain`.
 *
 * All calls and callbacks happen on the loop's thread. Nothing blocks. */
#ifndef MILLRACE_DISPATCHER_H
#define MILLRACE_DISPATCHER_H

#include "readers/dispatch.h"
#include "readers/queuereader.h"

#define DISPATCHER_PATIENCE USEC_PER_SEC
#define DISPATCHER_FAILURES 3

struct dispatcher;

struct dispatcher_config {
    struct queuereader_config reader; /* without `destination` */
    size_t parallel;                  /* maximum number of runs in progress; 0: 1 */
    enum dispatch_order order;
    uint64_t (*key)(struct bytes text, void *arg); /* as in dispatch_config */
    bool is_shared;
    bool lines;       /* bury empty messages and messages that contain an LF */
    size_t max_items; /* maximum messages in a run; 0: reader.items */
    size_t max_bytes; /* maximum bytes in a run with several messages; 0: unlimited */
    uint64_t rate;    /* messages per second, at most 1000000000; 0: unlimited */
    /* Number of refused single messages in a row after which a refusal counts as `down`, so that a mistyped address
     * does not bury all messages. 0: unlimited. */
    uint64_t poison_limit;
    usec_t drain; /* time for which dispatcher_stop retries acknowledgements; 0: 10 s */
    void (*deliver)(struct dispatcher *x, struct dispatch_run *run, void *arg);
    /* Cancels a run, which needs no answer then. Required for dispatcher_abort. */
    void (*cancel)(struct dispatch_run *run, void *arg);
    /* Called when runs fail, with the reason of the latest failure, and with NULL after a minute without a failure. May
     * be NULL. */
    void (*on_failing)(const char *why, void *arg);
    /* Called when delivered messages may be delivered again, because their lease ended before the queue answered their
     * acknowledgement, or because the queue refused it. `ids` is "A-B,C", valid during the call. `arg` is reader.arg.
     * May be NULL. */
    void (*on_ack_lost)(const char *why, struct bytes ids, void *arg);
    void *arg; /* argument of key, deliver, cancel and on_failing */
};

/* The dispatcher starts in the next iteration of the loop. Returns NULL if queue_url is invalid. */
struct dispatcher *dispatcher_new(const struct dispatcher_config *config);
/* Cancels all runs. Returns true if there were any. */
bool dispatcher_abort(struct dispatcher *x);
/* Frees the dispatcher. The caller must have answered all runs. */
void dispatcher_free(struct dispatcher **x);
/* Stops the dispatcher (invariant 5). A second call retries each pending acknowledgement immediately and for the last
 * time. */
void dispatcher_stop(struct dispatcher *x);

void dispatcher_delivered(struct dispatcher *x, struct dispatch_run *run);
void dispatcher_refused(struct dispatcher *x, struct dispatch_run *run, const char *reason);
void dispatcher_failed(struct dispatcher *x, struct dispatch_run *run, const char *why);
/* Answers `down`. `wait` may be QUEUEREADER_BACKOFF. */
void dispatcher_down(struct dispatcher *x, struct dispatch_run *run, const char *why, usec_t wait);
void dispatcher_again(struct dispatcher *x, struct dispatch_run *run);
void dispatcher_later(struct dispatcher *x, struct dispatch_run *run, usec_t wait);

const char *dispatcher_queue_id(const struct dispatcher *x);
/* Returns the current problem, as queuereader_trouble does. */
const char *dispatcher_trouble(const struct dispatcher *x);
/* Appends the ids of messages that are delivered but not acknowledged, as "A-B,C". These messages may be delivered
 * again. */
void dispatcher_unacknowledged(const struct dispatcher *x, struct buf *ids);
/* Returns true if acknowledgements were lost (on_ack_lost) and the dispatcher has received no messages since then. */
bool dispatcher_has_lost_acks(const struct dispatcher *x);
struct queuereader_numbers dispatcher_numbers(const struct dispatcher *x);

#endif
