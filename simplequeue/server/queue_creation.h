/* queue_creation: creates queues for the requests that need them. A creation takes several syncs of the disk and blocks the event loop, so
 * each queue is created in its own turn of the loop.
 *
 * 1. One turn creates at most one queue, so that all sockets are served between two creations.
 * 2. Requests are retried in the order in which they came, never from inside queue_creation_obtain.
 * 3. Each reason for a refusal is logged once, until a queue is created again. Every refused request is counted.
 */
#ifndef SIMPLEQUEUE_QUEUE_CREATION_H
#define SIMPLEQUEUE_QUEUE_CREATION_H

#include "simplequeue/server/queue_loop.h"

struct stats_counter;

struct queue_creation {
    struct queue_loop *loop;
    struct wait_line line;
    bool posted;                  /* a call to serve the line is posted to the loop */
    unsigned logged;              /* a bit for each reason that is logged */
    struct stats_counter *unmade; /* requests refused because their queue could not be created */
};

/* Returns the existing queue. NULL with QUEUE_OK: the request waits, and `retry` runs once the queue exists. NULL with
 * another result: the queue is not created, because of a limit or because it would refuse `put`. */
struct named_queue *queue_creation_obtain(struct queue_creation *c, const char *name,
    const struct first_put *put, struct http_request *req, wait_fn *retry, void *arg,
    enum queue_result *result);

#endif
