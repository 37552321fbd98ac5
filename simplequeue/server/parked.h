/* parked: requests that wait until messages have been read from disk, a line a queue.
 *
 * 1. A parked request goes on in the order of parking each time its queue has read something, and parks again when that
 *    was not enough.
 * 2. When its client is gone it is told so once, with req NULL, and forgotten.
 * 3. The daemon does not stop before those that are parked have been answered.
 */
#ifndef SIMPLEQUEUE_PARKED_H
#define SIMPLEQUEUE_PARKED_H

struct app;
struct http_request;
struct named_queue;
struct parked;

struct parked_line {
    struct parked *first, *last;
};

/* Goes on; req is NULL when the client is gone, and `arg` is to be freed. */
typedef void parked_fn(struct http_request *req, void *arg);

void parked_add(
    struct parked_line *line, struct app *app, struct http_request *req, parked_fn *go_on, void *arg);
/* Something was read. */
void parked_resume(struct parked_line *line);
/* The queue is about to be freed, its clients are gone. */
void parked_free(struct parked_line *line);

#endif
