/* app: what the handlers of one pubsub daemon share.
 *
 *     http.c          /pub, /producer, /streams
 *     http_stats.c    what /stats and /metrics say
 *     http_sub.c      /sub: one client ...
 *     http_framing.c  ... in the form it asked for
 *     http_clients.c  all clients of /sub together: /clients, heartbeats, the end
 *     http_cursors.c  /cursors
 *     main.c          starts and stops; settings.c, opening.c
 *
 * 1. `streams` and `cursors` are used by the loop only once `recovered` is set.
 * 2. Every publish, every change of a cursor and every subscriber in flight is counted, so that a drain knows when it
 *    is done: the first two get their replies, subscribers the end of their response after the last whole window.
 */
#ifndef MILLRACE_PUBSUB_APP_H
#define MILLRACE_PUBSUB_APP_H

#include "pubsub/stream/cursors.h"
#include "daemon/daemon.h"
#include "base/random_id.h"
#include "pubsub/stream/streams.h"
#include "pubsub/stream/subscriber.h"

#define APP_DEFAULT_STREAM "default" /* of bitly's clients, who name none */

struct http_subscriber;
struct event;

struct app {
    struct daemon *daemon;
    char
        life[RANDOM_ID_SIZE]; /* of this process and no other, also not of one with a copy of the directory */
    struct streams *streams;
    struct cursors *cursors;
    size_t max_line;
    usec_t heartbeat;
    bool recovered, draining, drained;
    bool cursors_failed;                 /* that was said */
    size_t in_flight;                    /* publishes and changes of cursors */
    struct http_subscriber *subscribers; /* a list */
    size_t n_subscribers;
    struct event *drain_limit; /* ends those who do not take what they were sent */
    struct stats_counter *lines, *bytes, *duplicates, *refused, *sent_bytes, *sent_lines, *sent_streams;
    struct stats_counter *passed, *cursors_gone;
    struct {
        uint64_t lines, sent_lines;
    } reset; /* what bitly's numbers begin at */
};

extern const struct http_route app_routes[];

/* http_stats.c */
void app_register_stats(struct app *app);
/* To be told of every stream, once: of those that are there, and of each that comes. */
void app_streams_came(struct app *app);
void app_stream_came(struct app *app, struct stream *s);
void app_append_stream(struct buf *out, struct stream *s); /* members of JSON */
void app_extra_stats(void *ctx, bool json, struct buf *out);
void app_stats_headers(void *ctx, struct http_request *req); /* bitly's X-PUBSUB-... */
void app_reset_stats(void *ctx);

/* http.c */
/* Tells the daemon once nothing is in flight any more. */
void app_check_drained(struct app *app);
bool app_is_up(const struct app *app); /* has recovered, and does not stop */
/* True when it was answered that nothing can be done yet, or any more. */
bool app_is_not_up(struct app *app, struct http_request *req);
/* Whether the client is an EventSource: a request for /sub that accepts text/event-stream. */
bool app_wants_events(const struct http_request *req);
/* Replies to an EventSource instead of a 503: an empty event stream that makes it reconnect after a second. It would take any
 * status but 200 as final. */
void app_retry_events(struct http_request *req);
/* Finds the stream that the request names, or answers why not and returns NULL. `fallback` is the name when the
 * request has none; NULL: it must have one. `make` lets an unknown one be made where the settings allow it. */
struct stream *app_request_stream(struct app *app, struct http_request *req, const char *fallback, bool make);
/* Lets go of what the settings say, in every stream, and of memory that no subscriber needs. */
void app_retain(struct app *app);

/* Tells which stream of which life of which pubsub answers: two answers that say the same were given by the same stream, by whatever
 * address it was asked. */
void app_add_place(const struct app *app, struct http_request *req, const struct stream *s);

/* http_sub.c */
http_handler app_sub;
/* Of clients that take little, what waits for them in large windows. To be called now and then. */
void app_take_back(struct app *app);
/* What is wrong with a cursor, answered; counted when it is gone. */
void app_refuse_cursor(struct app *app, struct http_request *req, struct stream *s,
    enum subscriber_refusal why, const struct journal_edges *edges);
/* id= names the stream a cursor is of. False when it is another, which is answered. */
bool app_right_stream(struct http_request *req, struct stream *s, struct bytes id);
/* from=; `fallback` when it is missing. False when it was answered that it is nothing. */
bool app_read_from(struct http_request *req, const char *fallback, struct stream_from *from);

/* http_clients.c */
http_handler app_clients;
void app_heartbeats(struct app *app);
/* Where descriptors lack, lets those go whose client has left while their response could not begin. To be called now and then. */
void app_notice_gone(struct app *app);
void app_end_subscribers(struct app *app);

/* http_cursors.c */
http_handler app_cursors;
void app_cursor_came(void *app, const struct named_cursor *c);
void app_cursor_goes(void *app, const struct named_cursor *c);

#endif
