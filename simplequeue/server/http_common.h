/* http_common: parameters and replies that the handlers share. */
#ifndef SIMPLEQUEUE_HTTP_COMMON_H
#define SIMPLEQUEUE_HTTP_COMMON_H

#include "daemon/daemon.h"
#include "simplequeue/server/queue_server.h"

/* Each returns false when the parameter was wrong and the problem has been answered. */

/* queue=, or the default queue. */
bool param_queue(struct http_request *req, char name[NAME_LEN_MAX + 1]);
/* The queue of that name; NULL if it does not exist. */
bool param_existing_queue(struct queue_server *server, struct http_request *req, struct named_queue **q);
/* reader=, or "", which all readers without a name share. */
bool param_reader(struct http_request *req, char reader[NAME_LEN_MAX + 1]);
/* items=, at least 1, cut to --max-mget. */
bool param_items(struct queue_server *server, struct http_request *req, size_t fallback, size_t *items);
/* separator=, or the fallback; never empty. */
bool param_separator(struct http_request *req, struct bytes fallback, struct bytes *out);

/* The existing or new queue. NULL: the refusal was answered, or the request waits and `retry` runs its handler again, so the handler
 * must not have changed anything before. */
struct named_queue *obtain_queue(struct queue_server *server, struct http_request *req, const char *name,
    const struct first_put *put, wait_fn *retry);
/* For a `retry`: runs the handler again, or answers the refusal. */
bool retry_request(struct wait *w, enum wait_event event, http_handler *handler);

void add_queue_id(struct http_request *req, const struct named_queue *q);
/* Answers a result other than QUEUE_OK. `mark` is the producer's, of a conflict. */
void reply_refused(
    struct queue_server *server, struct http_request *req, enum queue_result result, uint64_t mark);

/* A reply that waits for a commit, which may outlive its client. */
struct pending {
    struct queue_server *server;
    struct http_request *req; /* NULL once the client has disconnected */
    struct named_queue *q;
    struct buf body;         /* GET, MGET: the messages taken; its memory is used again */
    const char *verb;        /* the member, "acked", or header of the reply that says how many */
    struct reserve *reserve; /* an ack that came with a reserve: to be answered next */
    uint64_t count, before;  /* EMPTY: messages dropped so far; drops the ids below */
    struct pending *spare;   /* the next unused one */
};
struct pending *pending_new(struct queue_server *server, struct http_request *req, struct named_queue *q);
void pending_free(struct pending *p);
/* Answers an operation that was refused before anything was appended, and frees. */
void pending_refuse(struct pending *p, enum queue_result result, uint64_t mark);
void pending_free_spare(struct queue_server *server);

#endif
