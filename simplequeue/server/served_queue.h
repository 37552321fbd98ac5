/* served_queue: the server's data for each queue (named_queue_data): waiting requests, counters, and flags for failures
 * that are already logged. */
#ifndef SIMPLEQUEUE_SERVED_QUEUE_H
#define SIMPLEQUEUE_SERVED_QUEUE_H

#include "base/log.h"
#include "base/stats.h"
#include "simplequeue/server/queue_loop.h"

struct eviction;

struct served_queue {
    struct wait_line reserves; /* requests that wait for messages */
    struct wait_line loads;    /* requests that wait until messages are read from disk */
    struct wait_line puts;     /* puts that wait for room */
    struct eviction *eviction; /* the eviction in progress (overflow.c); NULL: none */
    bool room_granted;         /* the queue has room for the puts that are being retried */
    char id_line[sizeof "X-Millrace-Queue-Id: \r\n" + JOURNAL_ID_TEXT]; /* header in replies for this queue */
    size_t id_line_len;
    struct stats_counter *overflowed, *rejected;
    bool is_disk_full; /* true if queue_loop.n_disk_full includes this queue */
    bool disk_full_logged, overflow_failure_logged;
    bool was_full;           /* a put was refused because the queue was full */
    uint64_t puts_when_full; /* number of stored messages at that refusal */
    usec_t log_disk_full_at, log_overflow_at,
        log_full_at;                   /* earliest times for logging these failures again */
    uint64_t puts_before, gets_before; /* numbers at the last /stats?reset=1 */
};

static inline struct served_queue *served_of(const struct named_queue *q)
{
    return named_queue_data(q);
}

/* Returns true if a new put must wait because earlier puts wait. */
static inline bool served_queue_puts_wait(const struct named_queue *q)
{
    return served_of(q)->puts.first && !served_of(q)->room_granted;
}

/* Returns true if the queue had no room for the last put. */
static inline bool served_queue_is_full(const struct named_queue *q)
{
    const struct served_queue *served = served_of(q);
    return served->was_full && served->puts_when_full == queue_state(named_queue_core(q))->puts;
}

#define SERVED_QUEUE_LOG_FULL_EVERY (60 * USEC_PER_SEC)

/* If the queue had no room, counts the refused put as `rejected`, and logs the refusal at most once per minute. */
static inline void served_queue_count_refused(const struct named_queue *q, enum queue_result why)
{
    struct served_queue *served = served_of(q);
    if (!queue_is_full(why) && why != QUEUE_OVERFLOW_FAILED)
        return;
    stats_add(served->rejected, 1);
    served->was_full = true;
    served->puts_when_full = queue_state(named_queue_core(q))->puts;
    if (queue_loop_now().monotonic < served->log_full_at)
        return;
    served->log_full_at = queue_loop_now().monotonic + SERVED_QUEUE_LOG_FULL_EVERY;
    log_warn("puts are refused", LOG_S("queue", named_queue_name(q)), LOG_S("error", queue_strerror(why)),
        LOG_U("depth", queue_depth(named_queue_core(q))));
}

#endif
