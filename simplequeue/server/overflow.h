/* overflow: makes room in a full queue by moving its oldest messages to the overflow log. A put that finds its queue full waits in the
 * queue's line (served_queue.puts) and is retried once enough messages have left. The log is FILE for the default queue and FILE.NAME
 * for queue NAME; a device takes the messages of all queues.
 *
 * 1. Only ready messages are moved, the oldest first, and no more than the waiting puts need. Leased messages stay.
 * 2. A message leaves its queue after it is written to the log and synced. After a crash in between, it is in both.
 * 3. When the log fails, the messages stay in their place and the put is refused.
 * 4. Puts are retried in the order in which they came, never from inside overflow_wait.
 * 5. On a stop, all messages of queues without a data directory are written to the log: see overflow_close.
 */
#ifndef SIMPLEQUEUE_OVERFLOW_H
#define SIMPLEQUEUE_OVERFLOW_H

#include "simplequeue/server/served_queue.h"

struct overflow;

/* Opens the overflow log. The log's thread calls `notify` when overflow_poll has work. Returns NULL with the error if
 * the file cannot be written. */
struct overflow *overflow_open(struct queue_loop *loop, const char *path, void (*notify)(void *arg),
    void *arg, char *error, size_t error_size);
/* On a stop, once nothing else is in progress: writes the batches in progress and commits their removals. If the queues
 * are in memory only, writes all of their messages too, buried ones included. Blocks. The queues must still have their
 * served_queue. */
void overflow_close(struct overflow **o);

/* The functions below do nothing if `o` is NULL, which means that there is no overflow log. */

/* Makes a put that found the queue full wait. Returns false without an overflow log: the caller must refuse the put. */
bool overflow_wait(struct overflow *o, struct named_queue *q, const struct first_put *put,
    struct http_request *req, wait_fn *retry, void *arg);
/* After an operation of the queue is committed or refused: continues an eviction that waited for the outcome. */
void overflow_on_ready(struct overflow *o, struct named_queue *q);
/* Continues the evictions whose batch the log has written. */
void overflow_poll(struct overflow *o);
/* On SIGHUP: allows writing again after a failed sync, and checks the file. */
void overflow_reopen(struct overflow *o);

#endif
