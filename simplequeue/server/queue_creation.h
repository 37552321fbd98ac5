/* queue_creation: creates queues for requests that need them. A creation needs several syncs and blocks the event
 * loop, so each queue is created in a turn of the loop of its own.
 *
 * 1. A turn of the loop creates at most one queue, so that all sockets are served between two creations.
 * 2. Requests are retried in the order in which they arrived, but never from within queue_creation_wait.
 * 3. Each reason for a refusal is logged once, and again only after a queue has been created. Every refused request
 *    is counted.
 * */
#ifndef SIMPLEQUEUE_QUEUE_CREATION_H
#define SIMPLEQUEUE_QUEUE_CREATION_H

#include "simplequeue/server/queue_loop.h"

struct stats_counter;

struct queue_creation {
    struct queue_loop *loop;
    struct wait_line line;
    bool posted;                  /* a call that serves the line is posted to the loop */
    unsigned logged;              /* one bit for each reason that was logged */
    struct stats_counter *unmade; /* requests refused because their queue could not be created */
};

/* The queue does not exist. QUEUE_OK: the request waits, and `retry` is called when the queue exists. Anything else: the
 * queue is not created, because of a limit or because the queue would refuse `put`. */
enum queue_result queue_creation_wait(struct queue_creation *c, const char *name, const struct first_put *put,
    struct http_request *req, wait_fn *retry, void *arg);

#endif
