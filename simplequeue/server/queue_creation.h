/* creation: the line of requests whose queue is yet to be made. A queue's directory and journal cost several syncs of
 * the disk, for which the loop stands still; so each is made in a turn of the loop of its own, and whoever asked for it
 * is told then. (Queues that were there before are opened one a turn too, by queues_recover; but nobody may ask for them until
 * that is over, and where one of them fails the daemon ends.)
 *
 * 1. A turn makes one queue at most, so that between two of them all sockets are served.
 * 2. Who asks is told exactly once, from the loop and never from inside queue_creation_ask, in the order of asking.
 * 3. That none can be made is told in the log, once for each reason until one is made again, and counted.
 * 4. Queues in memory cost nothing: nobody waits for those.
 */
#ifndef SIMPLEQUEUE_QUEUE_CREATION_H
#define SIMPLEQUEUE_QUEUE_CREATION_H

#include "simplequeue/queue/queues.h"

struct queue_server;

struct queue_wish {
    struct queue_wish *next;
    char name[NAME_LEN_MAX + 1];
    struct first_put put; /* whose mark is not 0, or which is refused for what it puts: none is made */
    /* QUEUE_OK: the queue is there. Else why not, and what the system said, if anything. */
    void (*told)(struct queue_wish *wish, enum queue_result result, const char *error);
    void *arg;
};

/* A zeroed one is empty. */
struct queue_creation {
    struct queue_wish *first, *last;
    unsigned told;                /* a bit for each reason that the log has told */
    struct stats_counter *unmade; /* puts that were refused with their queue */
};

/* The queue of that name, made when that costs nothing and it would take the put. NULL with QUEUE_OK: ask for it. NULL with anything
 * else: it will not be made, and that is why. */
struct named_queue *queue_creation_find(
    struct queue_server *server, const char *name, const struct first_put *put, enum queue_result *result);
/* Name, put, told and arg are set. The wish lives until it was told, and its owner counts it as pending until then, so that the
 * daemon does not stop before. */
void queue_creation_ask(struct queue_server *server, struct queue_wish *wish);
/* The daemon stops, whatever waits: all are told QUEUE_CLOSED. */
void queue_creation_close(struct queue_server *server);

#endif
