/* loads: requests that wait until messages have been read from disk, a line a queue.
 *
 * 1. A loads request goes on in the order of parking each time its queue has read something, and parks again when that
 *    was not enough.
 * 2. When its client is gone it is told so once, with req NULL, and forgotten.
 * 3. The daemon does not stop before those that are loads have been answered.
 */
#ifndef SIMPLEQUEUE_LOAD_WAIT_H
#define SIMPLEQUEUE_LOAD_WAIT_H

struct queue_server;
struct http_request;
struct named_queue;
struct load_wait;

struct load_line {
    struct load_wait *first, *last;
};

/* Goes on; req is NULL when the client is gone, and `arg` is to be freed. */
typedef void load_wait_fn(struct http_request *req, void *arg);

void load_wait_add(struct load_line *line, struct queue_server *server, struct http_request *req,
    load_wait_fn *go_on, void *arg);
/* Something was read. */
void load_wait_resume(struct load_line *line);
/* The queue is about to be freed, its clients are gone. */
void load_wait_free(struct load_line *line);

#endif
