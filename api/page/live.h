/* live: GET /v1/live passes the lines of a stream to a web page, as Server-Sent Events. GET /v1/live/rate passes the number of
 * its lines, once a second.
 *
 * pubsub writes the events (its /sub with Accept: text/event-stream, and its /rate). This module passes the bytes on
 * unchanged. Each client has a connection of its own to pubsub, so nothing is polled, and a restart of pubsub ends the
 * replies instead of making a count wrong.
 *
 * 1. At most LIVE_AHEAD bytes wait for a slow client. Above this number pubsub is not read, so pubsub's rules for slow
 *    subscribers apply.
 * 2. At most LIVE_CLIENTS_MAX clients. Others get 503.
 * 3. When pubsub ends the stream or fails, the reply ends, and the client connects again with Last-Event-ID. */
#ifndef MILLRACE_API_LIVE_H
#define MILLRACE_API_LIVE_H

#include "http/client/http_client.h"
#include "http/server/http_server.h"

#define LIVE_AHEAD ((size_t)256 << 10)
#define LIVE_CLIENTS_MAX 128

struct live;

/* `pubsub` is borrowed. It must allow LIVE_CLIENTS_MAX connections. */
struct live *live_new(struct http_client *pubsub);
/* Ends all replies. Their clients connect again. */
void live_drain(struct live *l);
void live_free(struct live **l);
/* Answers GET /v1/live?stream=NAME[&from=OFFSET|latest|@TIME][&last=N]. */
void live_reply(struct live *l, struct http_request *req);
/* Answers GET /v1/live/rate[?stream=NAME]. */
void live_reply_rate(struct live *l, struct http_request *req);

#endif
