/* served_queue: what the server stores for each queue (named_queue_data): waiting requests, counters, and which
 * failures are already logged. */
#ifndef SIMPLEQUEUE_SERVED_QUEUE_H
#define SIMPLEQUEUE_SERVED_QUEUE_H

#include "base/stats.h"
#include "simplequeue/server/queue_loop.h"

struct eviction;

struct served_queue {
    struct wait_line reserves; /* requests that wait for messages */
    struct wait_line loads;    /* requests that wait for messages to be read from disk */
    struct wait_line puts;     /* puts that wait for room */
    struct eviction *eviction; /* the eviction in progress (overflow.c); NULL: none */
    bool room_granted;         /* the puts that are being retried have room */
    char id_line[sizeof "X-Millrace-Queue-Id: \r\n" + JOURNAL_ID_TEXT]; /* header of its replies */
    size_t id_line_len;
    struct stats_counter *overflowed, *rejected;
    bool disk_full_logged, overflow_failure_logged;
    usec_t log_disk_full_at, log_overflow_at; /* not before this time is the failure logged again */
    uint64_t puts_before, gets_before;        /* counted before /stats?reset=1 */
};

static inline struct served_queue *served_of(const struct named_queue *q)
{
    return named_queue_data(q);
}

/* True if a new put must wait because earlier puts wait. */
static inline bool served_queue_puts_wait(const struct named_queue *q)
{
    return served_of(q)->puts.first && !served_of(q)->room_granted;
}

/* If the queue had no room, counts the refused put as `rejected`. */
static inline void served_queue_count_refused(const struct named_queue *q, enum queue_result why)
{
    if (queue_is_full(why) || why == QUEUE_OVERFLOW_FAILED)
        stats_add(served_of(q)->rejected, 1);
}

#endif
