/* overflow: makes room in a full queue by moving its oldest messages to the overflow log. If a put finds its queue
 * full, the put waits in the queue's line (served_queue.puts). When enough messages are removed, the put is retried.
 * The log is FILE for the default queue and FILE.NAME for the queue NAME. If FILE is a device, all queues use FILE.
 *
 * 1. Only ready messages are moved, beginning with the oldest, and no more than the waiting puts need. Leased
 *    messages stay in the queue.
 * 2. A message is removed from its queue after it is written to the log and synced. If a crash happens between these
 *    steps, the message is in both.
 * 3. If the log cannot be written, the messages stay in the queue and the put is refused.
 * 4. Puts are retried in the order in which they arrived, but never from within overflow_wait.
 * 5. When the daemon stops and has no data directory, all messages are written to the log, see overflow_close.
 * */
#ifndef SIMPLEQUEUE_OVERFLOW_H
#define SIMPLEQUEUE_OVERFLOW_H

#include "simplequeue/server/served_queue.h"

struct overflow;

/* Opens the overflow log. The log's thread calls `notify` when overflow_poll must be called. If the file cannot be
 * written, returns NULL with the error. */
struct overflow *overflow_open(struct queue_loop *loop, const char *path, void (*notify)(void *arg),
    void *arg, char *error, size_t error_size);
/* Called when the daemon stops and no request is in progress. Writes the current batches and commits the removal of
 * their messages. If the queues are in memory only, also writes all of their messages, including buried ones. Blocks.
 * The queues must still have their served_queue. */
void overflow_close(struct overflow **o);

/* If there is no overflow log, `o` is NULL, and the functions below do nothing. */

/* Makes a put wait that has found the queue full. If there is no overflow log, returns false, and the caller must
 * refuse the put. */
bool overflow_wait(struct overflow *o, struct named_queue *q, const struct first_put *put,
    struct http_request *req, wait_fn *retry, void *arg);
/* Call this when an operation of the queue was committed or refused. Continues an eviction that waited for the
 * operation. */
void overflow_on_ready(struct overflow *o, struct named_queue *q);
/* Continues those evictions whose batch is now in the log. */
void overflow_poll(struct overflow *o);
/* Called on SIGHUP. Allows writes again after a failed sync, and checks the file. */
void overflow_reopen(struct overflow *o);

#endif
