/* overflow: makes room in a full queue by moving its oldest messages to the overflow log. A put that finds its queue
 * full waits in the queue's line (served_queue.puts). The put is retried after enough messages are removed. The log is
 * FILE for the default queue and FILE.NAME for the queue NAME. If FILE is a device, all queues use FILE.
 *
 * 1. Only ready messages are moved, the oldest first, and only as many as the waiting puts need. Leased messages stay
 *    in the queue.
 * 2. A message is removed from its queue after it is written to the log and synced. After a crash between the sync and
 *    the removal, the message is in the log and in the queue.
 * 3. If the log cannot be written, the messages stay in the queue and the put is refused.
 * 4. Puts are retried in the order in which they arrived, but never from within overflow_wait.
 * 5. A daemon without a data directory writes all messages to the log when it stops (see overflow_close). */
#ifndef SIMPLEQUEUE_OVERFLOW_H
#define SIMPLEQUEUE_OVERFLOW_H

#include "simplequeue/server/served_queue.h"

struct overflow;

/* Opens the overflow log. The log's thread calls `notify` to request a call of overflow_poll. If the file cannot be
 * written, returns NULL with the error. */
struct overflow *overflow_open(struct queue_loop *loop, const char *path, void (*notify)(void *arg),
    void *arg, char *error, size_t error_size);
/* Writes the current batches and commits the removal of their messages. If the queues are in memory only, also writes
 * all of their messages, including buried messages. Blocks until these messages are written. Call overflow_close when
 * the daemon stops, after the last request and before any served_queue is freed. */
void overflow_close(struct overflow **o);

/* Without an overflow log, `o` is NULL, and the functions below do nothing. */

/* Makes a put wait for room in a full queue. Without an overflow log, returns false, and the caller must refuse the
 * put. */
bool overflow_wait(struct overflow *o, struct named_queue *q, const struct first_put *put,
    struct http_request *req, wait_fn *retry, void *arg);
/* Continues an eviction that waits for an operation or a load of the queue. Call overflow_on_ready when an operation or
 * load has ended. */
void overflow_on_ready(struct overflow *o, struct named_queue *q);
/* Continues each eviction whose batch is now in the log. */
void overflow_poll(struct overflow *o);
/* Allows writes again after a failed sync, and checks the file. Called on SIGHUP. */
void overflow_reopen(struct overflow *o);

#endif
