/* http_endpoints: pubsub's HTTP handlers, and what main.c calls of them about once a second. ctx is the server. */
#ifndef MILLRACE_PUBSUB_HTTP_ENDPOINTS_H
#define MILLRACE_PUBSUB_HTTP_ENDPOINTS_H

#include "pubsub/server/pubsub_server.h"

/* http_publish.c */
http_handler http_publish, http_producer, http_streams;

/* http_sub.c */
http_handler http_sub;
/* Takes back what waits for slow clients in large windows; they get it again in small ones. */
void http_sub_rewind_slow(struct pubsub_server *server);

/* http_clients.c */
http_handler http_clients;
void http_clients_heartbeat(struct pubsub_server *server);
/* While reads wait for descriptors: frees requests that have not begun and whose clients have left. */
void http_clients_notice_gone(struct pubsub_server *server);
/* Ends every subscriber's response, for a drain. */
void http_clients_end(struct pubsub_server *server);

/* http_cursors.c */
http_handler http_cursors;
void http_cursors_add_gauges(void *server, const struct named_cursor *c);
void http_cursors_remove_gauges(void *server, const struct named_cursor *c);

#endif
