/* dispatcher: delivers the messages of a queue to a destination without marks, several at a time (dispatch.h), and
 * retries until the destination accepts them. Each message is delivered at least once.
 *
 * The caller gets runs by `deliver` and answers each once, immediately or later:
 *
 *     delivered   the messages are acknowledged
 *     refused     the run can never be delivered: it is halved; a single message is buried with the reason
 *     failed      this attempt has failed: its messages are delivered again after a backoff, others at once
 *     down        the destination takes nothing now: no run begins before `wait` is over, or another is delivered
 *     again       the run is repeated at once, at another server
 *     later       it was not sent; likewise
 *
 * 1. A destination is in trouble, and on_trouble gets the reason, if it is down, or if DISPATCHER_FAILURES runs in a row
 *    have failed and none has succeeded for DISPATCHER_PATIENCE. So a server that fails now and then is reported once, by
 *    on_failing.
 * 2. A shared dispatcher has no name at the queue, and takes its share beside other shared readers. If it dies, its messages
 *    come back when their lease has expired. Otherwise they come back when a reader of the same name starts.
 *
 * All calls and callbacks are on the loop's thread. See queuereader.h for the settings and for stopping. */
#ifndef MILLRACE_DISPATCHER_H
#define MILLRACE_DISPATCHER_H

#include "readers/dispatch.h"
#include "readers/queuereader.h"

#define DISPATCHER_PATIENCE USEC_PER_SEC
#define DISPATCHER_FAILURES 3

struct dispatcher;

struct dispatcher_config {
    /* Of `destination`, only lines, max_items, max_bytes, rate and poison_limit are used. */
    struct queuereader_config reader;
    size_t parallel; /* runs under way */
    enum dispatch_order order;
    uint64_t (*key)(struct bytes text, void *arg); /* as of dispatch_config */
    bool is_shared;
    void (*deliver)(struct dispatcher *x, struct dispatch_run *run, void *arg);
    /* Some runs fail (`why`), or none has failed for a minute (NULL). */
    void (*on_failing)(const char *why, void *arg);
    void *arg; /* of the callbacks here */
};

/* Starts in the next iteration of the loop. Returns NULL if queue_url is invalid. */
struct dispatcher *dispatcher_new(const struct dispatcher_config *config);
/* All runs must have been answered. */
void dispatcher_free(struct dispatcher **x);
/* As queuereader_stop. */
void dispatcher_stop(struct dispatcher *x);

void dispatcher_delivered(struct dispatcher *x, struct dispatch_run *run);
void dispatcher_refused(struct dispatcher *x, struct dispatch_run *run, const char *reason);
void dispatcher_failed(struct dispatcher *x, struct dispatch_run *run, const char *why);
void dispatcher_down(struct dispatcher *x, struct dispatch_run *run, const char *why, usec_t wait);
void dispatcher_again(struct dispatcher *x, struct dispatch_run *run);
void dispatcher_later(struct dispatcher *x, struct dispatch_run *run, usec_t wait);

const char *dispatcher_queue_id(const struct dispatcher *x);
/* As of queuereader.h. */
const char *dispatcher_trouble(const struct dispatcher *x);
void dispatcher_unacknowledged(const struct dispatcher *x, struct buf *ids);
struct queuereader_numbers dispatcher_numbers(const struct dispatcher *x);

#endif
