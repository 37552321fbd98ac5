/* queue_loop: what the parts of the server need from the event loop: the time, a timer, a count of unfinished work,
 * and waiting requests.
 *
 * 1. One timer serves all deadlines: those of leases, delays, pauses and waiting requests.
 * 2. While the daemon drains, it stops when no work is left. Call queue_loop_begin and queue_loop_end around each
 *    piece of work.
 * */
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
    struct event *timer; /* created by main.c; the callback handles deadlines and sets it again */
    usec_t armed;        /* monotonic time at which the timer fires; INT64_MAX: never */
    struct heap waits;   /* deadlines of waiting requests */
    size_t working;      /* number of requests and evictions in progress */
    bool drained;        /* the end of all work was reported to the daemon */
    bool storage_failed; /* nothing more is written */
    size_t n_disk_full;  /* queues whose last put found no space */
};

struct queue_now queue_loop_now(void);

/* Call this after a change that may have added a deadline. Sets the timer to the earliest deadline. */
void queue_loop_arm(struct queue_loop *loop);

void queue_loop_begin(struct queue_loop *loop);
void queue_loop_end(struct queue_loop *loop);
/* If the daemon drains and no work is left, reports this once. */
void queue_loop_check_drained(struct queue_loop *loop);

/* Waiting requests, which cannot be answered yet. A request may wait for messages, for room in a full queue, for the
 * creation of its queue, or for messages that are being loaded from disk.
 *
 * Each wait is in one line. The owner of the line wakes its waits in order, and this calls `retry`. `retry` either
 * calls wait_leave and answers the request, or leaves the wait in the line.
 *
 * 1. A wait ends when `retry` calls wait_leave and returns true. This happens exactly once. After that the wait is
 *    freed.
 * 2. If the client disconnects, its wait leaves the line at once.
 * 3. All deadlines are in one heap, queue_loop.waits.
 * 4. The daemon stops only after all waits have ended.
 * */
struct wait;

enum wait_event {
    WAIT_RETRY,   /* the condition of the wait may hold now */
    WAIT_RECHECK, /* the request may no longer be allowed to wait */
    WAIT_EXPIRED, /* the deadline has passed; if the wait stays, it is woken again after WAIT_RECHECK_TIME */
    WAIT_STOPPED, /* the daemon stops or its storage failed: the wait ends */
    WAIT_REFUSED, /* the wait ends for the reason in `result` and `error` */
    WAIT_GONE     /* the client disconnected: the wait ends, and req is NULL */
};
/* Returns true if the wait has left its line, or false if it stays. May return false only for the first three
 * events. */
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
    struct http_request *req; /* NULL: nng */
    wait_fn *retry;
    void *arg;
    http_handler *handler; /* HTTP: retry_request calls it again */
    /* For the owners of lines: */
    struct named_queue *q;       /* the full queue; NULL: the queue does not exist yet */
    char name[NAME_LEN_MAX + 1]; /* name of a queue that does not exist yet */
    struct first_put put;        /* the put that needs the room or the queue */
    bool covered;                /* the current batch of the eviction makes room for this put */
    enum queue_result result;    /* WAIT_REFUSED: the reason */
    const char *error;           /* WAIT_REFUSED: a text valid during the call; NULL: that of `result` */
};

/* Appends a request to a line. */
struct wait *wait_add(
    struct queue_loop *loop, struct wait_line *line, struct http_request *req, wait_fn *retry, void *arg);
/* Sets the monotonic deadline. */
void wait_set_deadline(struct wait *w, usec_t deadline);
/* Moves the wait to the end of another line. */
void wait_move(struct wait *w, struct wait_line *line);
/* `retry` must call this before it answers. Removes the wait from its line and from the heap. Returns the request, or
 * NULL. */
struct http_request *wait_leave(struct wait *w);

/* Wakes one wait. Returns true if the wait has ended and was freed. */
bool wait_wake(struct wait *w, enum wait_event event);
bool wait_refuse(struct wait *w, enum queue_result result, const char *error);
/* Wakes each wait in the line, in order. Waits that are added meanwhile are not woken. */
void wait_wake_all(struct wait_line *line, enum wait_event event);
/* Ends all waits in the line. */
void wait_refuse_all(struct wait_line *line, enum queue_result result);
/* Wakes all waits whose deadline has passed. */
void wait_tick(struct queue_loop *loop, usec_t monotonic);
/* Ends all waits that have a deadline. */
void wait_stop(struct queue_loop *loop);

#endif
