/* pubsub_server: the endpoints of pubsub, the state that the endpoints share, and common replies.
 *
 * 1. The event loop uses `streams`, `cursors` and `untils` only after `recovered` is set.
 * 2. A drain ends when all publishes and changes of cursors are answered and all responses of subscribers have ended.
 *    Each response ends after a whole line. */
#ifndef MILLRACE_PUBSUB_SERVER_H
#define MILLRACE_PUBSUB_SERVER_H

#include "base/random_id.h"
#include "daemon/daemon.h"
#include "daemon/disk_guard.h"
#include "pubsub/stream/cursors.h"
#include "pubsub/stream/streams.h"
#include "pubsub/stream/subscriber.h"
#include "pubsub/stream/untils.h"

#define DEFAULT_STREAM "default" /* for bitly's clients, which do not name a stream */

struct http_subscriber;
struct rate_client;
struct event;

struct pubsub_server {
    struct daemon *daemon;
    char life[RANDOM_ID_SIZE]; /* random id of this process; never stored, so no copy has the same id */
    struct disk_guard *guard;
    struct streams *streams;
    struct cursors *cursors;
    struct untils *untils;
    size_t max_line;
    usec_t heartbeat;
    usec_t producer_timeout; /* as in untils_config */
    bool auto_create;
    bool recovered, draining, drained;
    bool cursors_failed; /* true once the failure of the cursors' storage is logged */
    size_t in_flight;    /* publishes and changes of cursors */
    LIST_HEAD(, http_subscriber) subscribers;
    size_t n_subscribers;
    struct stated *stated; /* statements since the last tick, by stream (http_sub.c) */
    LIST_HEAD(, rate_client) rate_clients;
    struct loop_timer *drain_limit; /* timer that aborts the remaining responses of a drain */
    size_t n_refusing;              /* number of streams that refuse publishes */
    struct stats_counter *lines, *bytes, *duplicates, *refused, *sent_bytes, *sent_lines, *sent_streams;
    struct stats_counter *passed, *cursors_gone;
    struct {
        uint64_t lines, sent_lines;
    } reset; /* the counters at the last reset of bitly's statistics */
};

/* The endpoints; ctx is the server. */
http_handler http_publish, http_producer, http_producers, http_streams; /* http_publish.c */
http_handler http_sub, http_clients;                                    /* http_sub.c */
http_handler http_rate;                                                 /* http_rate.c */
http_handler http_cursors;                                              /* http_cursors.c */
http_handler http_erase;                                                /* http_erase.c */

/* Makes streams that have room again accept publishes. */
void http_publish_resume(struct pubsub_server *server);

/* Reports journals that have failed. Call http_publish_tick about once per second. */
void http_publish_tick(struct pubsub_server *server);
/* http_sub.c. Call http_sub_tick about once per second. http_sub_tick writes heartbeats, rewinds slow subscribers,
 * and ends requests whose clients have disconnected while the first read waits for a descriptor. */
void http_sub_tick(struct pubsub_server *server);
/* Frees the statements of the last tick. */
void http_sub_forget_statements(struct pubsub_server *server);
/* Ends the responses of all subscribers, for a drain. */
void http_sub_end_all(struct pubsub_server *server);
/* http_rate.c. Ends the responses of all /rate clients, for a drain. */
void http_rate_end_all(struct pubsub_server *server);

/* http_stats.c */
void http_stats_register(struct pubsub_server *server);
/* Adds the gauges of a stream. Call http_stats_add_stream once for each stream. */
void http_stats_add_stream(struct pubsub_server *server, struct stream *s);
/* Callbacks of cursors_config. */
void http_stats_add_cursor(void *server, const struct named_cursor *c);
void http_stats_remove_cursor(void *server, const struct named_cursor *c);
/* Callbacks of untils_config. */
void http_stats_add_until(void *server, const struct until *u);
void http_stats_remove_until(void *server, const struct until *u);
void http_stats_append_stream(struct buf *out, struct stream *s); /* appends members of a JSON object */
/* Callbacks of daemon_spec. */
void http_stats_extra(void *ctx, bool json, struct buf *out);
void http_stats_headers(void *ctx, struct http_request *req); /* bitly's X-PUBSUB-... */
void http_stats_reset(void *ctx);

/* Reports the end of a drain to the daemon, once the drain has ended. */
void server_check_drained(struct pubsub_server *server);
bool server_is_up(const struct pubsub_server *server); /* true if pubsub is recovered and not stopping */
/* If the server is not up, replies 503 and returns true. */
bool server_refuse_if_down(struct pubsub_server *server, struct http_request *req);

/* True if the client is an EventSource: its request is for /sub or /rate and accepts text/event-stream. */
bool server_wants_events(const struct http_request *req);
/* Replies with an empty event stream, which makes an EventSource reconnect after a second. After a 503, an
 * EventSource would not reconnect. */
void server_retry_events(struct http_request *req);
#define SERVER_RETRY BYTES_LITERAL("retry: 1000\n\n")

/* Finds the stream that the request names, or the stream `fallback` if stream= is missing. If `fallback` is NULL,
 * stream= is required. If `make` is true and auto_create is on, creates a missing stream. On failure, replies with
 * the error and returns NULL. */
struct stream *server_find_stream(
    struct pubsub_server *server, struct http_request *req, const char *fallback, bool make);
/* Stores the era of the trusted time, which changes at each start and each jump of the wall clock. A time of an
 * earlier era is invalid, because the clock may have been ahead. */
#define SERVER_ERA_TEXT (RANDOM_ID_SIZE + 21)
void server_era(const struct pubsub_server *server, char out[SERVER_ERA_TEXT]);
/* Adds X-Millrace-Stream-Place, X-Millrace-Time and X-Millrace-Era. Two replies with the same place are from the same
 * stream (stream/stream_client.h). */
void server_add_place(const struct pubsub_server *server, struct http_request *req, const struct stream *s);
/* Checks id=STREAM or id=STREAM.OPENING. STREAM is the id of the cursor's stream. OPENING is the opening (run of
 * pubsub) in which the byte before the offset in `from` was stored (journal/opening.h). `from` may be NULL. If the
 * stream has another id or history, replies with the error and returns false. */
bool server_check_stream_id(
    struct http_request *req, struct stream *s, struct bytes id, const struct stream_from *from);
/* Adds X-Millrace-Opening and X-Millrace-Opening-Before: the openings in which the byte at `offset` and the byte before
 * `offset` were stored. */
void server_add_openings(struct http_request *req, struct stream *s, uint64_t offset);
/* Reads from=, or `fallback` if the parameter is missing. If the value is invalid, replies with the error and returns
 * false. */
bool server_read_from(struct http_request *req, const char *fallback, struct stream_from *from);
/* Replies to a request whose cursor is refused. If the bytes at the cursor are deleted or lost, counts the request in
 * cursors_gone_total. */
void server_refuse_cursor(struct pubsub_server *server, struct http_request *req, struct stream *s,
    enum subscriber_refusal why, const struct journal_edges *edges);

#endif
