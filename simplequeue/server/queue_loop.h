/* queue_loop: the event loop as the server's parts see it: the time, one timer, and a count of unfinished work.
 *
 * 1. One timer serves every deadline: leases, delays and pauses of the queues, and waits (wait_list.h).
 * 2. A draining daemon stops once no work is left. queue_loop_begin and queue_loop_end enclose each piece of work.
 */
#ifndef SIMPLEQUEUE_QUEUE_LOOP_H
#define SIMPLEQUEUE_QUEUE_LOOP_H

#include "base/heap.h"
#include "simplequeue/queue/queues.h"

struct daemon;
struct event;

struct queue_loop {
    struct daemon *daemon;
    struct queues *queues;
    struct event *timer; /* made by main.c; its callback ticks the queues and the waits, then arms it again */
    usec_t armed;        /* monotonic time at which the timer fires; INT64_MAX: never */
    struct heap waits;   /* deadlines of waiting requests */
    size_t working;      /* requests and evictions in progress */
    bool drained;        /* the end of all work was reported to the daemon */
    bool storage_failed; /* nothing is written any more */
};

struct queue_now queue_loop_now(void);
/* Both clocks at a monotonic time in the recent past. Reads the wall clock at most once a millisecond. */
struct queue_now queue_loop_now_at(usec_t monotonic);

/* Called after a change that may have added a deadline: makes the timer fire in time for the earliest deadline. */
void queue_loop_arm(struct queue_loop *loop);

void queue_loop_begin(struct queue_loop *loop);
void queue_loop_end(struct queue_loop *loop);
/* Reports to a draining daemon, once, that no work is left. */
void queue_loop_check_drained(struct queue_loop *loop);

#endif
