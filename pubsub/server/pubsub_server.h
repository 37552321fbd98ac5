/* pubsub_server: the state that the endpoints of one pubsub daemon share, and the answers that several of them give.
 *
 * 1. The event loop uses `streams` and `cursors` only once `recovered` is set.
 * 2. A drain ends when nothing is in flight: publishes and changes of cursors get their replies, subscribers the end of
 *    their response behind the last whole line that they were sent.
 */
#ifndef MILLRACE_PUBSUB_SERVER_H
#define MILLRACE_PUBSUB_SERVER_H

#include "base/random_id.h"
#include "daemon/daemon.h"
#include "pubsub/stream/cursors.h"
#include "pubsub/stream/streams.h"
#include "pubsub/stream/subscriber.h"

#define DEFAULT_STREAM "default" /* for clients of bitly's, which name none */

struct http_subscriber;
struct event;

#define OPENINGS_SENT_MAX 64

struct pubsub_server {
    struct daemon *daemon;
    char life[RANDOM_ID_SIZE]; /* names this process; a copy of its data directory gets another */
    struct streams *streams;
    struct cursors *cursors;
    size_t max_line;
    usec_t heartbeat;
    bool recovered, draining, drained;
    bool cursors_failed;                 /* logged */
    size_t in_flight;                    /* publishes and changes of cursors */
    struct http_subscriber *subscribers; /* a list */
    size_t n_subscribers;
    struct event *drain_limit; /* breaks off the responses that are left */
    struct stats_counter *lines, *bytes, *duplicates, *refused, *sent_bytes, *sent_lines, *sent_streams;
    struct stats_counter *passed, *cursors_gone;
    struct {
        uint64_t lines, sent_lines;
    } reset; /* where bitly's numbers begin */
};

/* Tells the daemon when a drain is over. */
void server_check_drained(struct pubsub_server *server);
bool server_is_up(const struct pubsub_server *server); /* recovered and not stopping */
/* True when the server is not up; the request is answered then. */
bool server_refuse_if_down(struct pubsub_server *server, struct http_request *req);

/* Whether the client is an EventSource: a request for /sub that accepts text/event-stream. */
bool server_wants_events(const struct http_request *req);
/* Replies to an EventSource instead of a 503: an empty event stream that makes it reconnect after a second. It would take any
 * status but 200 as final. */
void server_retry_events(struct http_request *req);

/* The stream that the request names; `fallback` when it names none, NULL: it must. `make` allows making it, if the settings
 * do. NULL: answered. */
struct stream *server_find_stream(
    struct pubsub_server *server, struct http_request *req, const char *fallback, bool make);
/* Adds X-Millrace-Stream-Place: the same for two answers only if the same stream gave both (stream/stream_place.h). */
void server_add_place(const struct pubsub_server *server, struct http_request *req, const struct stream *s);
/* id=STREAM or id=STREAM.OPENING names the stream of a cursor, and the opening that wrote the byte before its offset `from`
 * (journal/journal_openings.h; NULL: no offset). False if the stream has another id or history; answered. */
bool server_check_stream_id(
    struct http_request *req, struct stream *s, struct bytes id, const struct stream_from *from);
/* Adds X-Millrace-Openings: "FIRST:ID, ...", from the opening that wrote the byte before `offset` to the present one. */
void server_add_openings(struct http_request *req, const struct stream *s, uint64_t offset);
/* from=, or `fallback`. False when it is not valid; answered. */
bool server_read_from(struct http_request *req, const char *fallback, struct stream_from *from);
/* Answers a cursor that cannot be read from; counts one whose bytes are gone. */
void server_refuse_cursor(struct pubsub_server *server, struct http_request *req, struct stream *s,
    enum subscriber_refusal why, const struct journal_edges *edges);

#endif
