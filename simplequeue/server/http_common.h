/* http_common: declares the HTTP handlers, the functions in their files that main.c calls, and functions for common
 * parameters and replies. The ctx of a handler is the struct queue_server. */
#ifndef SIMPLEQUEUE_HTTP_COMMON_H
#define SIMPLEQUEUE_HTTP_COMMON_H

#include "daemon/daemon.h"
#include "simplequeue/server/queue_server.h"

http_handler http_put, http_mput, http_get, http_mget, http_reserve;
http_handler http_ack, http_nack, http_bury, http_touch, http_release, http_kick, http_follow, http_unfollow;
http_handler http_dump, http_dead, http_producer, http_producers,
    http_erase; /* these also answer after storage has failed */
http_handler http_pause, http_empty, http_exit;
http_handler http_discard; /* DELETE /dead */

/* http_reserve.c */
/* Called when messages may have become ready or may have been loaded. Answers waiting reserves in order. */
void reserve_serve(struct named_queue *q);
/* Called for a new queue. Reserves may already wait for its messages. Moves these to the queue's line. */
void reserve_queue_opened(struct queue_server *server, struct named_queue *q);

/* http_stats.c */
void stats_extra(void *ctx, bool json, struct buf *out);
void stats_reset(void *ctx);
/* These functions register the metrics of the daemon and of a queue. */
void stats_register(struct queue_server *server);
void stats_register_queue(struct queue_server *server, struct named_queue *q);

/* If the parameter is wrong, each of these functions replies with the error and returns false. */

/* queue=; default: the default queue. */
bool param_queue(struct http_request *req, char name[NAME_LEN_MAX + 1]);
/* queue=. Stores the queue with this name, or NULL if it does not exist. */
bool param_existing_queue(struct queue_server *server, struct http_request *req, struct named_queue **q);
/* reader=; default: "", which stands for all readers without a name. */
bool param_reader(struct http_request *req, char reader[NAME_LEN_MAX + 1]);
/* Optional, of at most QUEUE_DESTINATION_MAX bytes. Borrowed from the request. */
bool param_destination(struct http_request *req, struct bytes *destination);
/* items=; at least 1. If it exceeds --max-mget, --max-mget applies. */
bool param_items(struct queue_server *server, struct http_request *req, size_t fallback, size_t *items);
/* separator=; must not be empty; default: the fallback. */
bool param_separator(struct http_request *req, struct bytes fallback, bool may_be_empty, struct bytes *out);

/* For a queue that does not exist: the request waits for its creation, and the handler is called again, or the request is
 * refused. So a handler must call this function before it changes anything. */
void await_queue(struct queue_server *server, struct http_request *req, const char *name,
    const struct first_put *put, http_handler *handler);
/* The wait_fn of requests that have changed nothing before they wait. Calls w->handler again, or replies with the
 * refusal. */
bool retry_request(struct wait *w, enum wait_event event);

/* Inspections must work even after the storage has failed, so their routes do not require that the daemon is ready.
 * This function makes the other checks. If one fails, it replies with the error and returns false. */
bool may_inspect(const struct queue_server *server, struct http_request *req);

void add_queue_id(struct http_request *req, const struct named_queue *q);
/* Replies with the error for a result other than QUEUE_OK. For QUEUE_CONFLICT, `mark` is the producer's mark. */
void reply_refused(
    struct queue_server *server, struct http_request *req, enum queue_result result, uint64_t mark);

/* Replies with QUEUE_HELD, QUEUE_FOLLOWED or QUEUE_FOLLOW_ENDED and the name of the reader that has the queue. `q` is NULL if
 * the queue does not exist. */
void refuse_reader(struct http_request *req, const struct named_queue *q, enum queue_result why);
/* If the queue has a follower, refuses the request and returns true. */
bool refuse_followed(struct http_request *req, const struct named_queue *q);
/* The id below which messages were settled for the destination; 0 without a destination. */
uint64_t settled_below(const struct named_queue *q, struct bytes destination);
/* `follow` is not 0. */
bool is_present_follow(const struct named_queue *q, uint64_t follow);

/* A reply that waits for a commit. The client may disconnect in the meantime. */
struct pending {
    struct queue_server *server;
    struct http_request *req; /* NULL once the client has disconnected */
    struct named_queue *q;
    struct buf body;         /* GET, MGET: the messages taken */
    const char *verb;        /* name of the JSON member ("acked") or header with the count or the id */
    struct reserve *reserve; /* the reserve that continues after its ack */
    uint64_t count, before;  /* EMPTY: messages deleted so far; only ids below `before` are deleted */
    uint64_t follow;         /* UNFOLLOW: the number to end; 0: any. FOLLOW: 1 if the name is new */
};
struct pending *pending_new(struct queue_server *server, struct http_request *req, struct named_queue *q);
void pending_free(struct pending *p);
/* Replies with the error of an operation that was refused at once, and frees `p`. */
void pending_refuse(struct pending *p, enum queue_result result, uint64_t mark);

#endif
