/* http_stats: what /streams, /stats and /metrics say. */
#ifndef MILLRACE_PUBSUB_HTTP_STATS_H
#define MILLRACE_PUBSUB_HTTP_STATS_H

#include "pubsub/server/pubsub_server.h"

void http_stats_register(struct pubsub_server *server);
/* Adds a stream's gauges; once for each stream. */
void http_stats_add_stream(struct pubsub_server *server, struct stream *s);
void http_stats_append_stream(struct buf *out, struct stream *s); /* members of a JSON object */
/* Of daemon_spec; ctx is the server. */
void http_stats_extra(void *ctx, bool json, struct buf *out);
void http_stats_headers(void *ctx, struct http_request *req); /* bitly's X-PUBSUB-... */
void http_stats_reset(void *ctx);

#endif
