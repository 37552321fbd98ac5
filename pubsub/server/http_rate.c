#include "daemon/loop_timer.h"
#include "pubsub/server/pubsub_server.h"

#include <inttypes.h>
#include <stdlib.h>

/* /rate: how many lines are committed each second, as Server-Sent Events.
 *
 * 1. The numbers come from the counters of the streams, so the cost of an event does not depend on the rate.
 * 2. A line counts once, when its publish is committed. Repeated publishes and erasures count no lines.
 * 3. The events of a response add up to the lines committed since the response began.
 * 4. The setting write_timeout closes the connection of a client that does not read, so only a few events wait for a
 *    client. */

#define RATE_SECONDS 1

struct rate_client {
    struct pubsub_server *server;
    LIST_ENTRY(rate_client) link;
    struct http_request *req;
    const struct stream *stream; /* NULL: all streams together */
    struct loop_timer *timer;
    uint64_t lines; /* number of lines at the last event */
    usec_t at;      /* time of the last event, by the monotonic clock */
};

static uint64_t lines_of(const struct rate_client *c)
{
    if (c->stream)
        return stream_numbers(c->stream).lines;
    uint64_t sum = 0;
    for (size_t i = 0; i < streams_count(c->server->streams); i++)
        sum += stream_numbers(streams_at(c->server->streams, i)).lines;
    return sum;
}

/* Frees the client of a response that has ended. */
static void forget(struct rate_client *c)
{
    LIST_REMOVE(c, link);
    loop_timer_free(&c->timer);
    free(c);
}

static void client_gone(struct http_request *req, void *arg)
{
    (void)req;
    forget(arg);
}

static void write_event(void *arg)
{
    struct rate_client *c = arg;
    struct buf text = {0};
    uint64_t lines = lines_of(c);
    usec_t now = clock_monotonic();
    buf_printf(&text, "data: {\"time\":%.3f,\"seconds\":%.3f,\"lines\":%" PRIu64 "}\n\n",
        (double)clock_wall() / USEC_PER_SEC, (double)(now - c->at) / USEC_PER_SEC, lines - c->lines);
    http_stream_write(c->req, buf_bytes(&text));
    c->lines = lines;
    c->at = now;
    buf_free(&text);
}

void http_rate(struct http_request *req, void *ctx)
{
    struct pubsub_server *server = ctx;
    struct bytes name;
    struct stream *s = NULL;
    if (server_wants_events(req) && !server_is_up(server)) {
        server_retry_events(req);
        return;
    }
    if (http_param(req, "stream", &name) ? !(s = server_find_stream(server, req, NULL, false))
                                         : server_refuse_if_down(server, req))
        return;
    struct rate_client *c = mem_zalloc(sizeof *c);
    *c = (struct rate_client){.server = server, .req = req, .stream = s, .at = clock_monotonic()};
    c->lines = lines_of(c);
    c->timer = loop_timer_every(daemon_base(server->daemon), RATE_SECONDS * USEC_PER_SEC, write_event, c);
    LIST_INSERT_HEAD(&server->rate_clients, c, link);
    http_on_gone(req, client_gone, c);
    http_set_long_poll(req);
    http_add_header_text(req, "Access-Control-Allow-Origin", "*");
    http_stream_start_endless(req, "text/event-stream");
    http_stream_write(req, SERVER_RETRY);
}

void http_rate_end_all(struct pubsub_server *server)
{
    struct rate_client *c;
    while ((c = LIST_FIRST(&server->rate_clients))) {
        http_stream_end(c->req);
        forget(c);
    }
}
