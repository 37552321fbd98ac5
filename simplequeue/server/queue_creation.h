/* queue_creation: requests whose queue does not exist yet. Making a queue costs several syncs of the disk, during which the event loop
 * stands still, so each queue is made in a loop turn of its own.
 *
 * 1. One turn makes at most one queue: all sockets are served between two of them.
 * 2. Requests are retried in the order in which they came, never from inside queue_creation_obtain.
 * 3. Each reason why no queue can be made is logged once, until one is made again. Every refused request is counted.
 */
#ifndef SIMPLEQUEUE_QUEUE_CREATION_H
#define SIMPLEQUEUE_QUEUE_CREATION_H

#include "simplequeue/server/wait_list.h"

struct stats_counter;

struct queue_creation {
    struct queue_loop *loop;
    struct wait_line line;
    bool posted;                  /* a turn of the loop will serve the line */
    unsigned logged;              /* a bit for each reason */
    struct stats_counter *unmade; /* requests refused because their queue could not be made */
};

/* The existing queue. NULL with QUEUE_OK: the request waits, and `retry` runs once the queue exists. NULL with
 * another result: the queue is not made, because it would refuse `put` or because something is missing. */
struct named_queue *queue_creation_obtain(struct queue_creation *c, const char *name,
    const struct first_put *put, struct http_request *req, wait_fn *retry, void *arg,
    enum queue_result *result);
/* Ends all waits with QUEUE_CLOSED. */
void queue_creation_stop(struct queue_creation *c);

#endif
