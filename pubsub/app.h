/* app: what the handlers of one pubsub daemon share. http.c answers everything but /sub, which is http_sub.c's;
 * main.c starts and stops.
 *
 * 1. `streams` is used by the loop only once `recovered` is set.
 * 2. Every publish and every subscriber in flight is counted, so that a drain knows when it is done: publishes
 *    get their replies, subscribers the end of their response after the last whole window.
 */
#ifndef MILLRACE_PUBSUB_APP_H
#define MILLRACE_PUBSUB_APP_H

#include "daemon.h"
#include "streams.h"
#include "subscriber.h"

struct http_subscriber;
struct event;

struct app {
    struct daemon *daemon;
    struct streams *streams;
    size_t max_line;
    bool recovered, draining, drained;
    size_t publishes_in_flight;
    struct http_subscriber *subscribers; /* a list */
    struct event *drain_limit;           /* ends those who do not take what they were sent */
    struct stats_counter *lines, *bytes, *duplicates, *refused, *sent_bytes, *sent_streams;
};

extern const struct http_route app_routes[];

void app_register_stats(struct app *app);
void app_extra_stats(void *ctx, bool json, struct buf *out);
/* Storage has failed: /health says so from here on, reads go on. */
void app_storage_failed(struct app *app, struct stream *s);
/* Tells the daemon once nothing is in flight any more. */
void app_check_drained(struct app *app);
/* Finds the stream that the request names, or answers why not and returns NULL. `make` lets an unknown one be made
 * where the settings allow it. */
struct stream *app_request_stream(struct app *app, struct http_request *req, bool make);

/* http_sub.c */
http_handler app_sub;
void app_end_subscribers(struct app *app);

#endif
