/* waiting: reserve requests that wait for messages, first come first served, a line a queue.
 *
 * 1. Whoever waits is in one line: that of its queue, or `strays` while there is no such queue.
 * 2. A waiter is answered once: with messages, with nothing when its time is over or the daemon drains, or
 *    with 409 when another reader holds leases or its epoch is over. When its client is gone it is forgotten
 *    and takes nothing.
 *    Its time is not over while messages that are ready are being read from disk.
 * 3. Messages are leased and the reply is written in one turn of the loop, so no lease is left without one.
 */
#ifndef SIMPLEQUEUE_LONG_POLL_H
#define SIMPLEQUEUE_LONG_POLL_H

#include "base/heap.h"
#include "simplequeue/queue/named_queue.h"

struct queue_server;
struct http_request;

struct waiter {
    struct heap_node deadline; /* first member: in polls.deadlines */
    struct queue_server *server;
    struct http_request *req;
    struct waiter *before, *after;
    struct poll_line *line; /* NULL: in none */
    char queue[NAME_LEN_MAX + 1], reader[NAME_LEN_MAX + 1];
    size_t items;
    usec_t lease, wait;
    uint64_t epoch; /* 0: it shows none */
    bool acks;      /* an ack rides along: `acked` is told */
    uint64_t acked;
};

struct poll_line {
    struct waiter *first, *last;
};

struct long_polls {
    struct poll_line strays;
    struct heap deadlines;
    size_t n;
};

/* Answers now, or waits. Takes over the waiter, whose req is set. */
void long_poll_reserve(struct waiter *w, struct queue_now now);
void long_poll_free(struct waiter *w);

/* A queue is new: those who asked for it wait in its line from now on. */
void long_poll_queue_new(struct queue_server *server, struct named_queue *q);
/* A reader of the queue has released: those who waited with an epoch that is over are told. */
void long_poll_refuse_stale(struct named_queue *q);
/* When the waiter shows an epoch that is not its reader's last it is answered so: true. q is NULL when there is no
 * such queue. */
bool long_poll_answer_stale(struct waiter *w, struct named_queue *q);
/* Messages may be ready, or have been read. */
void long_poll_serve(struct named_queue *q);
/* Those whose time is over are answered with nothing. */
void long_poll_tick(struct queue_server *server, usec_t monotonic);
bool long_poll_next_deadline(const struct queue_server *server, usec_t *deadline);
/* All are answered with nothing. */
void long_poll_drain(struct queue_server *server);
#endif
