/* wait_list: requests that wait: reserves for messages, puts for room in a full queue, requests for a queue that is being made, and
 * reads for messages that are being loaded from disk.
 *
 * A wait stands in one line. The owner of the line wakes its waits in order; `retry` then either answers the request, after wait_leave,
 * or keeps its place.
 *
 * 1. A wait ends exactly once: `retry` has called wait_leave and returned true. The list frees it then.
 * 2. A wait whose client disconnects leaves its line at once.
 * 3. All deadlines are in one heap, queue_loop.waits.
 * 4. A stop waits for every wait to end.
 */
#ifndef SIMPLEQUEUE_WAIT_LIST_H
#define SIMPLEQUEUE_WAIT_LIST_H

#include "simplequeue/server/queue_loop.h"

struct http_request;
struct wait;

enum wait_event {
    WAIT_RETRY,   /* what the request waits for may be there */
    WAIT_RECHECK, /* only the permission to wait may have ended */
    WAIT_EXPIRED, /* the deadline has passed; a wait that stays is asked again after WAIT_RECHECK_TIME */
    WAIT_STOPPED, /* the daemon stops or its storage failed: the wait ends */
    WAIT_REFUSED, /* the wait ends; `result` and `error` say why */
    WAIT_GONE     /* the client disconnected: the wait ends, and req is NULL */
};
/* True: the wait has left its line. False: it keeps its place, which only the first three events allow. */
typedef bool wait_fn(struct wait *w, enum wait_event event);

#define WAIT_RECHECK_TIME (100 * USEC_PER_MSEC)

struct wait_line {
    struct wait *first, *last;
};

struct wait {
    struct heap_node deadline; /* first member: in queue_loop.waits */
    struct queue_loop *loop;
    struct wait_line *line;
    struct wait *before, *after;
    struct http_request *req; /* NULL: nng */
    wait_fn *retry;
    void *arg;
    /* For the owners of lines: */
    struct named_queue *q;       /* that has no room; NULL: it is yet to be made */
    char name[NAME_LEN_MAX + 1]; /* of the queue that does not exist yet */
    struct first_put put;        /* what needs the room or the queue */
    bool covered;                /* the eviction under way makes room for it */
    enum queue_result result;    /* WAIT_REFUSED: why, */
    const char *error;           /* and the system's text, valid during the call; NULL: none */
};

/* Adds a wait at the end of the line. */
struct wait *wait_add(
    struct queue_loop *loop, struct wait_line *line, struct http_request *req, wait_fn *retry, void *arg);
/* Sets the monotonic deadline. */
void wait_set_deadline(struct wait *w, usec_t deadline);
/* Moves the wait to the end of another line. */
void wait_move(struct wait *w, struct wait_line *line);
/* For `retry`, before it answers: takes the wait out of its line and the heap. The request, or NULL. */
struct http_request *wait_leave(struct wait *w);

/* True: the wait has left. */
bool wait_wake(struct wait *w, enum wait_event event);
bool wait_refuse(struct wait *w, enum queue_result result, const char *error);
/* Wakes each wait in the line, in order, but not those that are added meanwhile. */
void wait_wake_all(struct wait_line *line, enum wait_event event);
/* Ends each wait in the line. */
void wait_refuse_all(struct wait_line *line, enum queue_result result);
/* Wakes the waits whose deadline has passed. */
void wait_tick(struct queue_loop *loop, usec_t monotonic);
/* Ends every wait that has a deadline. */
void wait_stop(struct queue_loop *loop);

#endif
