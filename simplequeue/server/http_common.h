/* http_common: declares the HTTP handlers, further functions of the http_* files, and functions for common parameters
 * and replies. The ctx of a handler is the struct queue_server. */
#ifndef SIMPLEQUEUE_HTTP_COMMON_H
#define SIMPLEQUEUE_HTTP_COMMON_H

#include "daemon/daemon.h"
#include "simplequeue/server/queue_server.h"

http_handler http_put, http_mput, http_get, http_mget, http_reserve;
http_handler http_ack, http_nack, http_bury, http_touch, http_release, http_kick, http_follow, http_unfollow;
/* The next five handlers also answer after the storage has failed. */
http_handler http_dump, http_dead, http_producer, http_producers, http_erase;
http_handler http_pause, http_empty, http_exit;
http_handler http_discard; /* DELETE /dead */

/* http_reserve.c */
/* Answers waiting reserves in order. Called when messages may have become ready or loaded. */
void reserve_serve(struct named_queue *q);
/* Called for a new queue. Moves reserves that already wait for this queue to the queue's line. */
void reserve_queue_opened(struct queue_server *server, struct named_queue *q);

/* http_stats.c */
void stats_extra(void *ctx, bool json, struct buf *out);
void stats_reset(void *ctx);
/* stats_register registers the metrics of the daemon, stats_register_queue those of a queue. */
void stats_register(struct queue_server *server);
void stats_register_queue(struct queue_server *server, struct named_queue *q);

/* If the parameter is wrong, each param_* function replies with the error and returns false. */

/* Reads queue=. Default: the queue `default`. */
bool param_queue(struct http_request *req, char name[NAME_LEN_MAX + 1]);
/* Reads queue=, and stores the queue with this name in *q, or NULL if the queue does not exist. */
bool param_existing_queue(struct queue_server *server, struct http_request *req, struct named_queue **q);
/* Reads reader=. Default: "", the name of all readers without a name. */
bool param_reader(struct http_request *req, char reader[NAME_LEN_MAX + 1]);
/* Reads the optional destination=, a name of at most QUEUE_DESTINATION_MAX bytes. *destination points into the
 * request. */
bool param_destination(struct http_request *req, struct bytes *destination);
/* Reads items=, at least 1. A value above --max-mget becomes --max-mget. */
bool param_items(struct queue_server *server, struct http_request *req, size_t fallback, size_t *items);
/* Reads separator=. Default: the fallback. */
bool param_separator(struct http_request *req, struct bytes fallback, bool may_be_empty, struct bytes *out);

/* Makes the request wait for the creation of its queue. The handler is then called again, or the request is refused. A
 * handler must therefore call await_queue before it changes anything. */
void await_queue(struct queue_server *server, struct http_request *req, const char *name,
    const struct first_put *put, http_handler *handler);
/* The wait_fn of requests that change nothing before they wait. Calls w->handler again, or replies with the refusal. */
bool retry_request(struct wait *w, enum wait_event event);

/* Checks whether an inspection is possible. Inspections work even after the storage has failed, so their routes do not
 * require that the daemon is ready. If a check fails, replies with the error and returns false. */
bool may_inspect(const struct queue_server *server, struct http_request *req);

void add_queue_id(struct http_request *req, const struct named_queue *q);
/* Replies with the error for a result other than QUEUE_OK. For QUEUE_CONFLICT, `mark` is the producer's mark. */
void reply_refused(
    struct queue_server *server, struct http_request *req, enum queue_result result, uint64_t mark);

/* Replies with the reason QUEUE_HELD, QUEUE_FOLLOWED or QUEUE_FOLLOW_ENDED, and with the name of the reader that has
 * leases or follows. `q` is NULL if the queue does not exist. */
void refuse_reader(struct http_request *req, const struct named_queue *q, enum queue_result why);
/* If the queue has a follower, refuses the request and returns true. */
bool refuse_followed(struct http_request *req, const struct named_queue *q);
/* Returns the id before which messages were settled for the destination, or 0 if `destination` is empty. */
uint64_t settled_below(const struct named_queue *q, struct bytes destination);
/* Returns true if `follow`, which must not be 0, is the number of the queue's present follow. */
bool is_present_follow(const struct named_queue *q, uint64_t follow);

/* A reply that waits for a commit. The client may disconnect in the meantime. */
struct pending {
    struct queue_server *server;
    struct http_request *req; /* NULL once the client has disconnected */
    struct named_queue *q;
    struct buf body;         /* GET, MGET: the messages taken */
    const char *verb;        /* JSON member (such as "acked") or header with the count or the id */
    struct reserve *reserve; /* the reserve that continues after its ack */
    uint64_t count, before;  /* EMPTY: number of deleted messages; only ids below `before` are deleted */
    uint64_t follow;         /* UNFOLLOW: number of the follow to end; 0: any. FOLLOW: 1 if the name is new */
    uint64_t settle;         /* UNFOLLOW: the sent messages before this id are removed first */
    char destination[QUEUE_DESTINATION_MAX + 1]; /* UNFOLLOW: of these messages */
};
struct pending *pending_new(struct queue_server *server, struct http_request *req, struct named_queue *q);
void pending_free(struct pending *p);
/* Replies with the error of an operation that was refused before it began, and frees `p`. */
void pending_refuse(struct pending *p, enum queue_result result, uint64_t mark);

#endif
