/* overflow: makes room in a full queue by moving its oldest messages to the overflow log.
 *
 * Whoever wants room asks, waits in its queue's line, and is told to try again once enough messages have left, or that
 * there is no room to be made. FILE takes what the default queue has no room for, FILE.NAME that of queue NAME; a device takes all.
 *
 * 1. Only ready messages go, the oldest first, and no more than those in the line need. Leased ones never do.
 * 2. A message leaves its queue when the log holds it, synced, and not before: a crash in between leaves it in both.
 *    When the log fails it stays, in its place, and who asked is refused.
 * 3. Who asks is told exactly once, from the loop and never from inside overflow_put; in the order of asking but for
 *    those that are refused.
 * 4. A queue that is in memory only goes to the log whole when the daemon stops: see overflow_save.
 */
#ifndef SIMPLEQUEUE_OVERFLOW_H
#define SIMPLEQUEUE_OVERFLOW_H

#include "simplequeue/queue/named_queue.h"

struct queue_server;

struct room_ask {
    struct room_ask *next;
    size_t n;       /* messages */
    uint64_t bytes; /* of them together */
    /* QUEUE_OK: try again. Else there will be no room, and that is why. */
    void (*told)(struct room_ask *ask, enum queue_result result);
    void *arg;
};

/* A queue's line. A zeroed one is empty. */
struct room_line {
    struct room_ask *first, *last;
    size_t covered;         /* the first so many are what the batch under way is for */
    struct eviction *batch; /* under way */
    bool telling;           /* those who ask now were told to try */
    bool held_up;           /* there is no room to be made before what is under way in the queue is decided */
};

struct overflow;
/* With `path` NULL there is no overflow log: full queues refuse. 0, or -1 with the error when the file cannot be
 * written. */
int overflow_open(struct queue_server *server, const char *path, void (*notify)(void *arg), void *arg,
    char *error, size_t error_size);
void overflow_close(struct queue_server *server);

/* As named_queue_put; `done` gets ask->arg. But a queue that is full, and overflows, has the put wait in its line, and so do
 * puts while others wait there: then QUEUE_OK says that `ask`, whose told and arg are set, will be told. */
enum queue_result overflow_put(struct queue_server *server, struct named_queue *q,
    const struct queue_put *put, struct queue_now now, queue_done_fn *done, struct room_ask *ask,
    uint64_t *mark);
/* Something that was under way in the queue is decided. */
void overflow_on_ready(struct named_queue *q);
/* Goes on with what the log has written. */
void overflow_poll(struct queue_server *server);
/* SIGHUP: what failed is tried again, and the file is there again when it was moved away. */
void overflow_reopen(struct queue_server *server);
/* The daemon stops, and nothing is under way any more: writes what queues in memory hold, buried ones too. Blocks. */
void overflow_save(struct queue_server *server);

#endif
