/* http_handlers: the HTTP endpoints, and their functions that main.c calls. A handler's ctx is the struct queue_server. */
#ifndef SIMPLEQUEUE_HTTP_HANDLERS_H
#define SIMPLEQUEUE_HTTP_HANDLERS_H

#include "daemon/daemon.h"
#include "simplequeue/server/queue_server.h"

extern const struct http_route queue_routes[]; /* http.c */

http_handler http_put, http_mput, http_get, http_mget, http_reserve;
http_handler http_ack, http_nack, http_bury, http_touch, http_release, http_kick;
http_handler http_dump, http_dead, http_producer; /* these also answer after storage has failed */
http_handler http_pause, http_empty, http_exit;

/* http_reserve.c */
/* Called when messages may have become ready or loaded: answers waiting reserves in order. */
void reserve_serve(struct named_queue *q);
/* Called for a new queue: moves the reserves that wait for its messages to its line. */
void reserve_queue_opened(struct queue_server *server, struct named_queue *q);

/* http_stats.c */
void stats_extra(void *ctx, bool json, struct buf *out);
void stats_reset(void *ctx);
/* Register the metrics of the daemon and of a queue. */
void stats_register(struct queue_server *server);
void stats_register_queue(struct queue_server *server, struct named_queue *q);

#endif
