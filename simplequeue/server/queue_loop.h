/* queue_loop: the event loop for the server's parts: the time, one timer, a count of unfinished work, and waiting requests.
 *
 * 1. One timer serves every deadline: leases, delays and pauses of the queues, and waits.
 * 2. A draining daemon stops once no work is left. queue_loop_begin and queue_loop_end enclose each piece of work.
 */
#ifndef SIMPLEQUEUE_QUEUE_LOOP_H
#define SIMPLEQUEUE_QUEUE_LOOP_H

#include "base/heap.h"
#include "http/server/http_server.h"
#include "simplequeue/queue/queues.h"

struct daemon;
struct event;

struct queue_loop {
    struct daemon *daemon;
    struct queues *queues;
    struct event *timer; /* created by main.c; its callback ticks the queues and the waits, then rearms it */
    usec_t armed;        /* monotonic time at which the timer fires; INT64_MAX: never */
    struct heap waits;   /* deadlines of waiting requests */
    size_t working;      /* requests and evictions in progress */
    bool drained;        /* the daemon knows that all work has ended */
    bool storage_failed; /* nothing more is written */
};

struct queue_now queue_loop_now(void);
/* The times of both clocks at a recent monotonic time. Reads the wall clock at most once a millisecond. */
struct queue_now queue_loop_now_at(usec_t monotonic);

/* Called after a change that may have added a deadline: makes the timer fire in time for the earliest deadline. */
void queue_loop_arm(struct queue_loop *loop);

void queue_loop_begin(struct queue_loop *loop);
void queue_loop_end(struct queue_loop *loop);
/* Reports to a draining daemon, once, that no work is left. */
void queue_loop_check_drained(struct queue_loop *loop);

/* Requests that cannot be answered yet. A request may wait for messages, for room in a full queue, for the creation of
 * its queue, or for messages that are being loaded from disk.
 *
 * Each wait is in one line. The owner of the line wakes its waits in order, and each wake calls `retry`. `retry` either
 * calls wait_leave and answers the request, or keeps the wait's place in the line.
 *
 * 1. A wait ends exactly once: `retry` calls wait_leave and returns true, and the list frees the wait.
 * 2. When the client disconnects, its wait leaves the line at once.
 * 3. All deadlines are in one heap, queue_loop.waits.
 * 4. The daemon stops only after every wait has ended.
 */
struct wait;

enum wait_event {
    WAIT_RETRY,   /* the condition of the wait may hold now */
    WAIT_RECHECK, /* the request may no longer be allowed to wait */
    WAIT_EXPIRED, /* the deadline has passed; a wait that stays is woken again after WAIT_RECHECK_TIME */
    WAIT_STOPPED, /* the daemon stops or its storage failed: the wait ends */
    WAIT_REFUSED, /* the wait ends for the reason in `result` and `error` */
    WAIT_GONE     /* the client disconnected: the wait ends, and req is NULL */
};
/* Returns true if the wait has left its line, false if it keeps its place. It may return false only for the first three
 * events. */
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
    http_handler *handler; /* HTTP: run again by retry_request */
    /* For the owners of lines: */
    struct named_queue *q;       /* the full queue; NULL: the queue does not exist yet */
    char name[NAME_LEN_MAX + 1]; /* of a queue that does not exist yet */
    struct first_put put;        /* the put that needs the room or the queue */
    bool covered;                /* the eviction in progress makes room for this put */
    enum queue_result result;    /* WAIT_REFUSED: the reason */
    const char *error;           /* WAIT_REFUSED: its text, valid during the call; NULL: that of `result` */
};

/* Appends a request to the list of waiting requests. */
struct wait *wait_add(
    struct queue_loop *loop, struct wait_line *line, struct http_request *req, wait_fn *retry, void *arg);
/* Sets the monotonic deadline. */
void wait_set_deadline(struct wait *w, usec_t deadline);
/* Moves the wait to the end of another line. */
void wait_move(struct wait *w, struct wait_line *line);
/* Called by `retry` before it answers: takes the wait out of its line and the heap. Returns the request, or NULL. */
struct http_request *wait_leave(struct wait *w);

/* Wakes one wait. Returns true if the wait has ended and is freed. */
bool wait_wake(struct wait *w, enum wait_event event);
bool wait_refuse(struct wait *w, enum queue_result result, const char *error);
/* Wakes each wait in the line, in order, except waits that are added meanwhile. */
void wait_wake_all(struct wait_line *line, enum wait_event event);
/* Ends each wait in the line. */
void wait_refuse_all(struct wait_line *line, enum queue_result result);
/* Wakes the waits whose deadline has passed. */
void wait_tick(struct queue_loop *loop, usec_t monotonic);
/* Ends every wait that has a deadline. */
void wait_stop(struct queue_loop *loop);

#endif
