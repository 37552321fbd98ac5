/* server: what simplequeue's HTTP handlers share. docs/guide/protocol.md says what they answer.
 *
 * A request whose reply waits for a commit, or for messages, may lose its client meanwhile; its `struct
 * pending` or `struct waiter` outlives it and knows by `req` being NULL.
 */
#ifndef SIMPLEQUEUE_QUEUE_SERVER_H
#define SIMPLEQUEUE_QUEUE_SERVER_H

#include "daemon/daemon.h"
#include "simplequeue/server/served_queue.h"
#include "simplequeue/server/queue_creation.h"
#include "simplequeue/queue/put_request.h"
#include "simplequeue/queue/queues.h"

#define REPLY_BYTES_MAX (16u << 20) /* messages in one reply: more are left for the next, but one is given */
#define RESERVE_ITEMS_MAX (REPLY_BYTES_MAX / 64) /* in one reply, so that what frames them is bounded too */
#define LEASE_DEFAULT 30000
#define LEASE_MAX (24 * 3600 * 1000)
#define WAIT_MAX (10 * 60 * 1000)
#define DELAY_MAX (INT64_C(366) * 24 * 3600 * 1000)
#define REASON_MAX 1024
#define PAUSE_MAX DELAY_MAX
#define EMPTY_ITEMS_MAX 10000 /* dropped in one record, so that the loop comes round in between */

struct queue_server {
    struct daemon *daemon;
    struct queues *queues;
    size_t max_message;
    size_t max_items;
    struct bytes mget_separator, mput_separator;
    struct long_polls polls;
    struct queue_creation creation;
    struct overflow *overflow; /* NULL: full queues refuse */
    size_t pending;            /* replies that wait for a commit */
    bool drained;              /* told */
    bool recovered;            /* all queues are there */
    bool storage_failed;       /* told */
    struct records records;    /* of the put at hand; used again */
    struct pending *spare;     /* some that waited before */
    size_t n_spare;
    struct buf frames; /* of the reserve at hand; used again */
    struct stats_counter *duplicates, *refused;
    void *loop; /* main.c's own: the timer */
};

struct queue_now server_now(void);
struct queue_now server_now_of(const struct http_request *req); /* when what asks began: see http_now */
/* Something with a deadline was made: sees that the timer is early enough. */
void server_arm(struct queue_server *server);
/* Tells the daemon that nothing is under way any more, once, when it drains. */
void server_check_drained(struct queue_server *server);

extern const struct http_route server_routes[];
void server_extra_stats(void *ctx, bool json, struct buf *out);
void server_reset_stats(void *ctx);
void server_register_queue(
    struct queue_server *server, struct named_queue *q);   /* served_queue_open calls it */
void server_register_numbers(struct queue_server *server); /* those of the daemon; the queues must be open */

/* A reply that waits for a commit. */
struct pending {
    struct queue_server *server;
    struct http_request *req; /* NULL once the client is gone */
    struct named_queue *q;
    struct buf body;        /* GET, MGET: what was taken; its memory is used again */
    struct pending *spare;  /* the next of those that can be used again */
    const char *verb;       /* "acked": the member of the reply */
    struct room_ask ask;    /* a put that waits for room, */
    http_handler *handler;  /* and what is called again for whoever waits before he has begun */
    struct waiter *waiter;  /* an ack that rides a reserve: what comes next */
    uint64_t count, before; /* EMPTY: how many so far; ids below which all go */
};
struct pending *pending_new(struct queue_server *server, struct http_request *req, struct named_queue *q);
void pending_free(struct pending *p);
void pending_free_spare(struct queue_server *server);

/* queue=, or the default. False when the problem was answered. */
bool param_queue(struct http_request *req, char name[NAME_LEN_MAX + 1]);
/* Whether what only looks may be answered: also when storage failed. False when the problem was answered. */
bool server_may_inspect(const struct queue_server *server, struct http_request *req);
/* items=, at least 1 and no more than --max-mget. */
bool param_items(struct queue_server *server, struct http_request *req, size_t fallback, size_t *items);
/* separator=, or the option's; never empty. */
bool param_separator(struct http_request *req, struct bytes fallback, struct bytes *out);

/* The queue of that name, made when there is none and it would take the put. NULL when the problem was answered, or when the
 * request waits for its queue: then `handler` is called once more, so it has changed nothing before. */
struct named_queue *obtain_queue(struct queue_server *server, struct http_request *req, const char *name,
    const struct first_put *put, http_handler *handler);
void add_queue_id(struct http_request *req, const struct named_queue *q);
/* How a result other than QUEUE_OK is answered. */
struct refusal {
    int status;
    const char *code, *hint;
};
const struct refusal *refusal_of(enum queue_result result);
/* Answers what a result other than QUEUE_OK is. `mark` only matters for a conflict. */
void reply_refused(
    struct queue_server *server, struct http_request *req, enum queue_result result, uint64_t mark);
void reply_held(struct http_request *req, struct named_queue *q);
/* 409 stale-epoch; `latest` is 0 when none is known. */
void reply_stale(struct http_request *req, uint64_t latest);

http_handler http_put, http_mput, http_get, http_mget, http_dump, http_reserve;
http_handler http_producer;
http_handler http_ack, http_nack, http_bury, http_touch, http_release, http_dead, http_kick;
http_handler http_pause, http_empty, http_exit;

#endif
