#include "pubsub/server/pubsub_server.h"

#include <inttypes.h>
#include <stdio.h>

void http_stats_append_stream(struct buf *out, struct stream *s)
{
    struct stream_numbers n = stream_numbers(s);
    buf_printf(out,
        "\"id\":\"%s\",\"earliest\":\"%" PRIu64 "\",\"end\":\"%" PRIu64 "\",\"lines_published\":%" PRIu64
        ",\"subscribers\":%zu,\"disk_bytes\":%" PRIu64 ",\"last_time\":%" PRId64 ".%06" PRId64,
        journal_id(stream_journal(s)), n.earliest, n.end, n.lines, n.subscribers, n.disk_bytes,
        (int64_t)(n.last_time / USEC_PER_SEC), (int64_t)(n.last_time % USEC_PER_SEC));
}

/* The five numbers of bitly's pubsub. millrace's pubsub does not disconnect slow clients; kicked_clients counts
 * subscribers whose next bytes retention has deleted. */
static const struct {
    const char *member, *text, *header;
} bitly_names[] = {
    {"current_connections", "Active connections", "X-PUBSUB-ACTIVE-CONNECTIONS"},
    {"total_connections", "Total connections", "X-PUBSUB-TOTAL-CONNECTIONS"},
    {"messages_received", "Messages received", "X-PUBSUB-MESSAGES-RECEIVED"},
    {"messages_sent", "Messages sent", "X-PUBSUB-MESSAGES-SENT"},
    {"kicked_clients", "Kicked clients", "X-PUBSUB-KICKED-CLIENTS"},
};
#define N_BITLY_NAMES (sizeof bitly_names / sizeof bitly_names[0])

static void bitly_numbers(const struct pubsub_server *server, uint64_t n[N_BITLY_NAMES])
{
    n[0] = server->n_subscribers;
    n[1] = stats_read(server->sent_streams);
    n[2] = stats_read(server->lines) - server->reset.lines;
    n[3] = stats_read(server->sent_lines) - server->reset.sent_lines;
    n[4] = stats_read(server->passed);
}

/* As in bitly's pubsub, ?reset=1 resets only messages_received and messages_sent. */
void http_stats_reset(void *ctx)
{
    struct pubsub_server *server = ctx;
    server->reset.lines = stats_read(server->lines);
    server->reset.sent_lines = stats_read(server->sent_lines);
}

void http_stats_headers(void *ctx, struct http_request *req)
{
    uint64_t n[N_BITLY_NAMES];
    bitly_numbers(ctx, n);
    for (size_t i = 0; i < N_BITLY_NAMES; i++)
        http_add_header(req, bitly_names[i].header, "%" PRIu64, n[i]);
}

void http_stats_extra(void *ctx, bool json, struct buf *out)
{
    struct pubsub_server *server = ctx;
    uint64_t n[N_BITLY_NAMES];
    bitly_numbers(server, n);
    for (size_t i = 0; i < N_BITLY_NAMES; i++)
        buf_printf(out, json ? ",\"%s\":%" PRIu64 : "%s: %" PRIu64 "\n",
            json ? bitly_names[i].member : bitly_names[i].text, n[i]);
    if (json)
        buf_append_str(out, ",\"streams\":{");
    for (size_t i = 0; server->recovered && i < streams_count(server->streams); i++) {
        struct stream *s = streams_at(server->streams, i);
        if (json) {
            buf_printf(out, "%s\"%s\":{", i ? "," : "", stream_name(s));
            http_stats_append_stream(out, s);
            buf_append_char(out, '}');
        } else {
            struct stream_numbers numbers = stream_numbers(s);
            buf_printf(out,
                "stream %s: earliest %" PRIu64 ", end %" PRIu64 ", lines published %" PRIu64
                ", subscribers %zu\n",
                stream_name(s), numbers.earliest, numbers.end, numbers.lines, numbers.subscribers);
        }
    }
    if (json)
        buf_append_char(out, '}');
}

void http_stats_register(struct pubsub_server *server)
{
    struct stats *st = daemon_stats(server->daemon);
    server->lines = stats_counter(st, "published_lines_total", NULL, "Lines committed");
    server->bytes = stats_counter(st, "published_bytes_total", NULL, "Bytes of committed lines");
    server->duplicates = stats_counter(
        st, "publish_duplicates_total", NULL, "Publishes that repeated stored lines and stored nothing");
    server->refused = stats_counter(st, "publish_refused_total", NULL, "Publishes refused");
    server->sent_bytes = stats_counter(st, "sent_bytes_total", NULL, "Bytes of lines sent to subscribers");
    server->sent_lines = stats_counter(st, "sent_lines_total", NULL, "Lines sent to subscribers");
    server->passed = stats_counter(st, "subscribers_passed_total", NULL,
        "Subscribers that ended because retention deleted their next bytes");
    server->cursors_gone = stats_counter(
        st, "cursors_gone_total", NULL, "Requests with an offset or a cursor at deleted or lost bytes");
    server->sent_streams =
        stats_counter(st, "subscriptions_total", NULL, "Responses to subscribers that have begun");
}

STATS_READ(disk_bytes, journal_disk_bytes(stream_journal(ctx)))
STATS_READ(cut_bytes, journal_cut_bytes(stream_journal(ctx)))
STATS_READ(disk_limit, stream_numbers(ctx).disk_limit)
STATS_READ(is_full, stream_numbers(ctx).refusing)
STATS_READ(subscribers, stream_numbers(ctx).subscribers)
STATS_READ(lag_bytes, cursors_lag(ctx).bytes)

static double lag_lines(void *ctx)
{
    struct lag lag = cursors_lag(ctx);
    return lag.known ? (double)lag.lines : -1;
}

static double lag_seconds(void *ctx)
{
    struct lag lag = cursors_lag(ctx);
    return lag.known ? (double)lag.age / (double)USEC_PER_SEC : -1;
}

static const struct stats_row stream_gauges[] = {
    {"stream_disk_bytes", "Bytes of a stream's files", disk_bytes},
    {"stream_disk_limit_bytes", "The disk_limit of a stream; 0: unlimited", disk_limit},
    {"stream_cut_bytes", "Bytes that the last start removed from the end of the stream's files", cut_bytes},
    {"stream_full", "1 while the stream refuses publishes because space is short", is_full},
    {"stream_subscribers", "Subscribers of a stream", subscribers},
    {0},
};
static const struct stats_row cursor_gauges[] = {
    {"cursor_lag_bytes", "Bytes between a named cursor and the end of its stream", lag_bytes},
    {"cursor_lag_lines", "Lines between a named cursor and the end of its stream; -1: not measured yet",
        lag_lines},
    {"cursor_lag_seconds", "Age of the line at a named cursor; -1: not measured yet", lag_seconds},
    {0},
};

static double until_age(void *ctx)
{
    const struct until *u = ctx;
    usec_t now = daemon_trusted_time(((struct pubsub_server *)u->arg)->daemon);
    return u->time > 0 ? (double)(now - u->time) / (double)USEC_PER_SEC : -1;
}

void http_stats_add_until(void *server, const struct until *u)
{
    char labels[2 * NAME_LEN_MAX + 32];
    snprintf(labels, sizeof labels, "stream=\"%s\",producer=\"%s\"", stream_name(u->stream), u->producer);
    stats_gauge(daemon_stats(((struct pubsub_server *)server)->daemon), "producer_until_age_seconds", labels,
        "Age of the time up to which a producer is complete; -1: not known", until_age,
        (void *)(uintptr_t)u); /* only read */
}

void http_stats_remove_until(void *server, const struct until *u)
{
    stats_remove_gauges(daemon_stats(((struct pubsub_server *)server)->daemon), u);
}

void http_stats_add_stream(struct pubsub_server *server, struct stream *s)
{
    char labels[NAME_LEN_MAX + 16];
    snprintf(labels, sizeof labels, "stream=\"%s\"", stream_name(s));
    stats_gauges(daemon_stats(server->daemon), stream_gauges, labels, s);
}

void http_stats_add_cursor(void *server, const struct named_cursor *c)
{
    char labels[2 * NAME_LEN_MAX + 32];
    snprintf(labels, sizeof labels, "stream=\"%s\",cursor=\"%s\"", stream_name(c->stream), c->name);
    stats_gauges(daemon_stats(((struct pubsub_server *)server)->daemon), cursor_gauges, labels,
        (void *)(uintptr_t)c); /* only read */
}

void http_stats_remove_cursor(void *server, const struct named_cursor *c)
{
    stats_remove_gauges(daemon_stats(((struct pubsub_server *)server)->daemon), c);
}
