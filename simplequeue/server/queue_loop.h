/* queue_loop: gives the other parts of the server the time, a timer, a count of unfinished work, and waiting requests.
 *
 * 1. One timer serves the deadlines of leases, delays, pauses and waiting requests.
 * 2. A draining daemon stops when no work is in progress. Call queue_loop_begin at the start of each piece of work, and
 *    queue_loop_end at its end. */
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
    struct loop_timer *timer; /* created by main.c; its callback handles deadlines and sets the timer again */
    usec_t armed;             /* monotonic time at which the timer fires; INT64_MAX: never */
    struct heap waits;        /* deadlines of waiting requests */
    size_t working;           /* number of requests and evictions in progress */
    bool drained;             /* true if the end of all work was reported to the daemon */
    bool storage_failed;      /* true after a failed write; the daemon then writes nothing */
    size_t n_disk_full;       /* number of queues whose last put found no disk space */
};

struct queue_now queue_loop_now(void);

/* Sets the timer to the earliest deadline. Call queue_loop_arm after each change that may have added a deadline. */
void queue_loop_arm(struct queue_loop *loop);

void queue_loop_begin(struct queue_loop *loop);
void queue_loop_end(struct queue_loop *loop);
/* If the daemon drains and no work is in progress, reports the end of the work to the daemon, once. */
void queue_loop_check_drained(struct queue_loop *loop);

/* Waiting requests. A request may wait for messages, for room in a full queue, for the creation of its queue, or for
 * messages that are being loaded from disk.
 *
 * Each wait is in one line. The owner of a line wakes the waits of this line in order. Waking a wait calls its `retry`.
 * `retry` either calls wait_leave and answers the request, or leaves the wait in the line.
 *
 * 1. A wait ends, exactly once, when `retry` calls wait_leave and returns true. The wait is then freed.
 * 2. If the client disconnects, its wait leaves the line at once.
 * 3. All deadlines are in one heap, queue_loop.waits.
 * 4. The daemon stops only after all waits have ended. */
struct wait;

enum wait_event {
    WAIT_RETRY,   /* the condition of the wait may hold now */
    WAIT_RECHECK, /* `retry` must check whether the request may still wait */
    WAIT_EXPIRED, /* the deadline has passed; a wait that stays is woken again after WAIT_RECHECK_TIME */
    WAIT_STOPPED, /* the daemon stops or its storage failed: the wait ends */
    WAIT_REFUSED, /* the wait ends for the reason in `result` and `error` */
    WAIT_GONE     /* the client disconnected: the wait ends, and req is NULL */
};
/* Returns true if the wait has left its line, and false if the wait stays. Only WAIT_RETRY, WAIT_RECHECK and
 * WAIT_EXPIRED allow false. */
typedef bool wait_fn(struct wait *w, enum wait_event event);

#define WAIT_RECHECK_TIME (100 * USEC_PER_MSEC)

struct wait_line {
    struct wait *first, *last;
};

struct wait {
    struct heap_node deadline; /* in queue_loop.waits; must be the first member */
    struct queue_loop *loop;
    struct wait_line *line;
    struct wait *before, *after;
    struct http_request *req; /* NULL: a request over nng */
    wait_fn *retry;
    void *arg;
    http_handler *handler; /* HTTP: the handler that retry_request calls again */
    /* The owners of lines use the following fields. */
    struct named_queue *q;       /* the full queue; NULL: the queue does not exist yet */
    char name[NAME_LEN_MAX + 1]; /* name of a queue that does not exist yet */
    struct first_put put;        /* the put that needs room or a new queue */
    bool covered;                /* the current batch of the eviction makes room for this put */
    enum queue_result result;    /* WAIT_REFUSED: the reason */
    const char *error; /* WAIT_REFUSED: a text valid during the call; NULL: use the text of `result` */
};

/* Appends a request to a line. */
struct wait *wait_add(
    struct queue_loop *loop, struct wait_line *line, struct http_request *req, wait_fn *retry, void *arg);
/* Sets the monotonic deadline of a wait. */
void wait_set_deadline(struct wait *w, usec_t deadline);
/* Moves the wait to the end of another line. */
void wait_move(struct wait *w, struct wait_line *line);
/* Removes the wait from its line and from the heap. Returns the request, or NULL. `retry` must call wait_leave before
 * it answers the request. */
struct http_request *wait_leave(struct wait *w);

/* Wakes one wait. Returns true if the wait has ended and was freed. */
bool wait_wake(struct wait *w, enum wait_event event);
bool wait_refuse(struct wait *w, enum queue_result result, const char *error);
/* Wakes each wait in the line, in order, except waits that are added during this call. */
void wait_wake_all(struct wait_line *line, enum wait_event event);
/* Ends all waits in the line. */
void wait_refuse_all(struct wait_line *line, enum queue_result result);
/* Wakes all waits whose deadline has passed. */
void wait_tick(struct queue_loop *loop, usec_t monotonic);
/* Ends all waits that have a deadline. */
void wait_stop(struct queue_loop *loop);

#endif
