/* live: GET /v1/live passes the lines of a stream to a web page, as Server-Sent Events. GET /v1/live/rate passes the
 * number of new lines, once per second.
 *
 * pubsub writes the events (its /sub with Accept: text/event-stream, and its /rate). This module passes the bytes on
 * unchanged, or only the events that satisfy a condition (live_filter.h). Each client has its own connection to pubsub, so pubsub is not polled. A restart of pubsub ends the
 * replies, so a count is never wrong.
 *
 * 1. At most LIVE_AHEAD bytes wait for a slow client, and LINE_QUEUE_MAX bytes for the filter. Above this limit the module stops reading from pubsub, and
 *    pubsub treats the connection as a slow subscriber.
 * 2. At most LIVE_CLIENTS_MAX clients are connected. Further clients get a 503.
 * 3. Events are filtered in time slices (stream/line_scheduler.h), so that costly conditions do not delay queries.
 * 4. When pubsub ends the stream or fails, the reply ends, and the client connects again with Last-Event-ID. */
#ifndef MILLRACE_API_LIVE_H
#define MILLRACE_API_LIVE_H

#include "http/client/http_client.h"
#include "http/server/http_server.h"

#define LIVE_AHEAD ((size_t)256 << 10)
#define LIVE_CLIENTS_MAX 128

struct event_base;
struct live;

/* `base` and `pubsub` are borrowed. `pubsub` must allow LIVE_CLIENTS_MAX connections. */
struct live *live_new(struct event_base *base, struct http_client *pubsub);
/* Ends all replies, so that the clients connect again. */
void live_drain(struct live *l);
void live_free(struct live **l);
/* Answers GET /v1/live?stream=NAME[&from=OFFSET|latest|@TIME][&last=N][&if=CONDITION]. */
void live_reply(struct live *l, struct http_request *req);
/* Answers GET /v1/live/rate[?stream=NAME]. */
void live_reply_rate(struct live *l, struct http_request *req);

#endif
