#include "pubsub/server/http_endpoints.h"
#include "pubsub/server/http_subscriber.h"

#include <event2/event.h>
#include <inttypes.h>
#include <time.h>

/* In a drain a response ends once its client has taken what was sent, and is broken off after these seconds. */
#define DRAIN_PATIENCE_SECONDS 2
/* A half-closed client gets its response all the same. But after this time, while reads wait for descriptors, it counts as
 * gone: it may hold the one that they need. */
#define BEGINNING_PATIENCE USEC_PER_SEC

static const char *state_of(const struct http_subscriber *h)
{
    if (!h->begun)
        return "beginning";
    if (h->ending)
        return "ending";
    if (h->gap_waits || http_stream_pending(h->req) > SUBSCRIBER_LOW)
        return "blocked";
    return h->sent < journal_committed_end(stream_journal(h->stream)) ? "behind" : "waiting";
}

static const char *const form_names[] = {
    [SUB_RAW] = "raw", [SUB_LINES] = "lines", [SUB_EVENTS] = "events", [SUB_PARTS] = "multipart"};

static void add_json(const struct http_subscriber *h, struct buf *out)
{
    struct journal *j = stream_journal(h->stream);
    buf_append_str(out, "{\"client\":");
    buf_append_json(out, bytes_str(http_peer(h->req)));
    buf_printf(out,
        ",\"stream\":\"%s\",\"form\":\"%s\",\"state\":\"%s\",\"connected\":%" PRId64 ",\"offset\":\"%" PRIu64
        "\",\"lag_bytes\":%" PRIu64 ",\"unsent_bytes\":%zu}",
        stream_name(h->stream), form_names[h->form], state_of(h), (int64_t)(h->connected / USEC_PER_SEC),
        h->sent, h->begun ? journal_bytes_between(j, h->sent, journal_committed_end(j)) : 0,
        http_stream_pending(h->req));
}

/* bitly's line, with more behind it. */
static void add_text(const struct http_subscriber *h, struct buf *out)
{
    char connected[32];
    struct tm tm;
    time_t t = (time_t)(h->connected / USEC_PER_SEC);
    gmtime_r(&t, &tm);
    strftime(connected, sizeof(connected), "%Y-%m-%d %H:%M:%S", &tm);
    buf_printf(out, "%s connected at %s. output buffer size:%zu state:%s stream:%s offset:%" PRIu64 "\n",
        http_peer(h->req), connected, http_stream_pending(h->req), state_of(h), stream_name(h->stream),
        h->sent);
}

void http_clients(struct http_request *req, void *ctx)
{
    struct pubsub_server *server = ctx;
    struct bytes format = BYTES_LITERAL("text");
    struct buf out = {0};
    (void)http_param(req, "format", &format);
    bool json = bytes_equal_str(format, "json");
    if (!json && !bytes_equal_str(format, "text")) {
        http_problem(req, 400, "bad-parameter", NULL, "format must be text or json");
        return;
    }
    if (json)
        buf_append_str(&out, "{\"clients\":[");
    else if (!server->subscribers)
        buf_append_str(&out, "no /sub connections\n");
    for (const struct http_subscriber *h = server->subscribers; h; h = h->next) {
        if (json && h != server->subscribers)
            buf_append_str(&out, ",\n");
        (json ? add_json : add_text)(h, &out);
    }
    if (json)
        buf_append_str(&out, "]}\n");
    http_reply(req, 200, json ? "application/json" : NULL, buf_bytes(&out));
    buf_free(&out);
}

void http_clients_heartbeat(struct pubsub_server *server)
{
    usec_t now = clock_monotonic();
    for (struct http_subscriber *h = server->subscribers; h; h = h->next) {
        bool is_quiet = h->form == SUB_EVENTS && h->begun && !h->framing.in_line && !h->ending &&
                        now - h->wrote >= server->heartbeat && http_stream_pending(h->req) == 0;
        if (!is_quiet)
            continue;
        struct buf text = {0};
        framing_add_heartbeat(&text);
        http_stream_write(h->req, buf_bytes(&text));
        buf_free(&text);
        h->wrote = now;
    }
}

void http_clients_notice_gone(struct pubsub_server *server)
{
    usec_t now = clock_monotonic(), lacked = journal_set_last_shortage(streams_set(server->streams));
    if (!lacked || now - lacked >= BEGINNING_PATIENCE)
        return;
    for (struct http_subscriber *h = server->subscribers; h; h = h->next)
        if (!h->begun && now - h->wrote >= BEGINNING_PATIENCE)
            http_set_long_poll(h->req);
}

static void break_off(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    struct pubsub_server *server = arg;
    while (server->subscribers) {
        struct http_subscriber *h = server->subscribers;
        http_stream_abort(h->req);
        http_subscriber_forget(h);
    }
}

static void end_response(struct http_subscriber *h)
{
    if (h->begun) {
        http_subscriber_end(h);
        return;
    }
    if (h->form == SUB_EVENTS)
        server_retry_events(h->req);
    else
        http_problem(h->req, 503, "not-ready", NULL, "stopping");
    http_subscriber_forget(h);
}

void http_clients_end(struct pubsub_server *server)
{
    struct http_subscriber *next;
    for (struct http_subscriber *h = server->subscribers; h; h = next) {
        next = h->next;
        if (!h->ending)
            end_response(h);
    }
    if (!server->subscribers)
        return;
    struct timeval patience = {DRAIN_PATIENCE_SECONDS, 0};
    server->drain_limit = evtimer_new(daemon_base(server->daemon), break_off, server);
    evtimer_add(server->drain_limit, &patience);
}
