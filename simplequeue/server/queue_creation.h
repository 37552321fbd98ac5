/* queue_creation: creates queues for requests that need them. A creation needs several syncs and blocks the event loop.
 * Each queue is therefore created in a separate turn of the loop.
 *
 * 1. A turn of the loop creates at most one queue, so that all sockets are served between two creations.
 * 2. Requests are retried in the order in which they arrived, but never from within queue_creation_wait.
 * 3. The daemon logs each reason for refusals once, and logs it again only after it has created a queue. The daemon
 *    counts every refused request. */
#ifndef SIMPLEQUEUE_QUEUE_CREATION_H
#define SIMPLEQUEUE_QUEUE_CREATION_H

#include "simplequeue/server/queue_loop.h"

struct stats_counter;

struct queue_creation {
    struct queue_loop *loop;
    struct wait_line line;
    bool posted;                  /* true if a call of serve_line is posted to the loop */
    unsigned logged;              /* one bit for each logged reason */
    struct stats_counter *unmade; /* requests refused because their queue could not be created */
};

/* Requests the creation of a queue that does not exist. QUEUE_OK: the request waits, and `retry` is called when the
 * queue exists. Any other result: a limit forbids the creation, or the new queue would refuse `put`. */
enum queue_result queue_creation_wait(struct queue_creation *c, const char *name, const struct first_put *put,
    struct http_request *req, wait_fn *retry, void *arg);

#endif
