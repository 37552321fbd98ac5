/* http_common: the HTTP handlers, the functions that main.c calls in their files, and their common parameters and
 * replies. A handler's ctx is the struct queue_server. */
#ifndef SIMPLEQUEUE_HTTP_COMMON_H
#define SIMPLEQUEUE_HTTP_COMMON_H

#include "daemon/daemon.h"
#include "simplequeue/server/queue_server.h"

http_handler http_put, http_mput, http_get, http_mget, http_reserve;
http_handler http_ack, http_nack, http_bury, http_touch, http_release, http_kick;
http_handler http_dump, http_dead, http_producer; /* these also answer after storage has failed */
http_handler http_pause, http_empty, http_exit;

/* http_reserve.c */
/* Called when messages may have become ready or loaded: answers waiting reserves in order. */
void reserve_serve(struct named_queue *q);
/* Called for a new queue: moves the reserves that wait for the queue's messages to the queue's line. */
void reserve_queue_opened(struct queue_server *server, struct named_queue *q);

/* http_stats.c */
void stats_extra(void *ctx, bool json, struct buf *out);
void stats_reset(void *ctx);
/* Register the metrics of the daemon and of a queue. */
void stats_register(struct queue_server *server);
void stats_register_queue(struct queue_server *server, struct named_queue *q);

/* Each of these functions returns false after it has answered that the parameter is wrong. */

/* queue=; default: the default queue. */
bool param_queue(struct http_request *req, char name[NAME_LEN_MAX + 1]);
/* The queue of that name; NULL if it does not exist. */
bool param_existing_queue(struct queue_server *server, struct http_request *req, struct named_queue **q);
/* reader=; default: "", the name of all readers without a name. */
bool param_reader(struct http_request *req, char reader[NAME_LEN_MAX + 1]);
/* items=, at least 1, reduced to --max-mget. */
bool param_items(struct queue_server *server, struct http_request *req, size_t fallback, size_t *items);
/* separator=; default: the fallback. Not empty. */
bool param_separator(struct http_request *req, struct bytes fallback, struct bytes *out);

/* Returns the queue. NULL: a refusal was sent, or the request waits for the creation, and its handler will run again.
 * So the handler calls this function before it changes anything. */
struct named_queue *obtain_queue(struct queue_server *server, struct http_request *req, const char *name,
    const struct first_put *put, http_handler *handler);
/* The wait_fn of requests that change nothing before they wait: runs w->handler again, or answers the refusal. */
bool retry_request(struct wait *w, enum wait_event event);

void add_queue_id(struct http_request *req, const struct named_queue *q);
/* Answers a result other than QUEUE_OK. `mark` is the producer's mark if the result is a conflict. */
void reply_refused(
    struct queue_server *server, struct http_request *req, enum queue_result result, uint64_t mark);

/* A reply that waits for a commit. It may outlive its client. */
struct pending {
    struct queue_server *server;
    struct http_request *req; /* NULL once the client has disconnected */
    struct named_queue *q;
    struct buf body;         /* GET, MGET: the messages taken; its memory is reused */
    const char *verb;        /* the member ("acked") or header of the reply that has the count or the id */
    struct reserve *reserve; /* the reserve to continue after its ack */
    uint64_t count, before;  /* EMPTY: messages deleted so far; only ids below `before` are deleted */
    struct pending *spare;   /* the next unused struct */
};
struct pending *pending_new(struct queue_server *server, struct http_request *req, struct named_queue *q);
void pending_free(struct pending *p);
/* Answers an operation that was refused at once, and frees `p`. */
void pending_refuse(struct pending *p, enum queue_result result, uint64_t mark);
void pending_free_spare(struct queue_server *server);

#endif
