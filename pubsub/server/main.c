/* pubsub: wires streams, cursors, the nng socket and the HTTP endpoints to the event loop. */
#include "base/log.h"
#include "config/peers.h"
#include "daemon/loop_notify.h"
#include "daemon/scrubber.h"
#include "pubsub/server/http_endpoints.h"
#include "pubsub/server/http_stats.h"
#include "pubsub/server/nng_publish.h"
#include "pubsub/stream/limits.h"
#include "pubsub/stream/pubsub_settings.h"
#include "pubsub/stream/stream_recovery.h"
#include "pubsub/stream/window.h"

#include <event2/event.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sysexits.h>

#define TICK_MAX USEC_PER_SEC

struct wiring {
    struct pubsub_server server; /* first: handlers get it as their ctx */
    struct loop_notify *notify;
    struct limits *limits;
    struct stream_recovery *recovery; /* until streams and cursors are open */
    struct event *tick;
    struct scrubber *scrubber;
    struct nng_publish *nng; /* NULL: none */
};

static void on_tick(evutil_socket_t fd, short what, void *arg)
{
    struct wiring *w = arg;
    (void)fd, (void)what;
    for (size_t i = 0; i < streams_count(w->server.streams); i++) {
        struct stream *s = streams_at(w->server.streams, i);
        stream_retain(s, cursors_hold(w->server.cursors, s, NULL), clock_wall());
        stream_tidy(s, clock_monotonic());
    }
    cursors_tick(w->server.cursors);
    http_clients_heartbeat(&w->server);
    http_clients_notice_gone(&w->server);
    http_sub_rewind_slow(&w->server);
    window_trim();
    if (w->nng)
        nng_publish_tick(w->nng);
}

/* Half a heartbeat, so that a heartbeat is at most half of it late; at most TICK_MAX. */
static void start_tick(struct wiring *w)
{
    usec_t interval = w->server.heartbeat / 2 < TICK_MAX ? w->server.heartbeat / 2 : TICK_MAX;
    struct timeval tv = {(time_t)(interval / USEC_PER_SEC), (suseconds_t)(interval % USEC_PER_SEC)};
    w->tick = event_new(daemon_base(w->server.daemon), -1, EV_PERSIST, on_tick, w);
    evtimer_add(w->tick, &tv);
    on_tick(-1, 0, w);
}

static void report_streams(const struct pubsub_server *server)
{
    for (size_t i = 0; i < streams_count(server->streams); i++) {
        struct stream *s = streams_at(server->streams, i);
        struct journal *j = stream_journal(s);
        if (journal_cut_bytes(j))
            log_warn("cut the incomplete tail of a stream", LOG_S("stream", stream_name(s)),
                LOG_U("bytes", journal_cut_bytes(j)));
        log_info("stream recovered", LOG_S("stream", stream_name(s)), LOG_S("id", journal_id(j)),
            LOG_U("end", journal_committed_end(j)));
    }
    if (cursors_dropped(server->cursors))
        log_warn("dropped cursors of streams that are gone or have another id",
            LOG_U("cursors", cursors_dropped(server->cursors)));
}

static bool open_nng_publish(struct wiring *w)
{
    struct config_error error;
    const char *urls = options_string(daemon_options(w->server.daemon), NNG_PUBLISH_SETTING);
    if (!urls)
        return true;
    w->nng = nng_publish_open(w->server.streams, urls, daemon_stats(w->server.daemon), &error);
    if (!w->nng)
        log_error("cannot publish over nng", LOG_S("error", error.text));
    return w->nng != NULL;
}

static void begin(struct wiring *w)
{
    w->server.recovered = true;
    report_streams(&w->server);
    for (size_t i = 0; i < streams_count(w->server.streams); i++)
        http_stats_add_stream(&w->server, streams_at(w->server.streams, i));
    cursors_announce(w->server.cursors);
    start_tick(w);
    w->scrubber = scrubber_start(w->server.daemon, streams_set(w->server.streams));
    if (!w->server.draining)
        daemon_set_ready(w->server.daemon);
}

static void take_opened(void *arg)
{
    struct wiring *w = arg;
    char error[STREAM_RECOVERY_ERROR_TEXT];
    if (!w->recovery)
        return;
    enum streams_result r = stream_recovery_finish(&w->recovery, &w->server.cursors, error);
    if (r != STREAMS_OK) {
        log_error("cannot recover the streams", LOG_S("error", error));
        daemon_fail(w->server.daemon,
            r == STREAMS_NO_SPACE || r == STREAMS_OUT_OF_DESCRIPTORS ? EX_TEMPFAIL : EX_CONFIG);
    } else if (!open_nng_publish(w)) {
        daemon_fail(w->server.daemon, EX_CONFIG);
    } else {
        begin(w);
    }
}

static void on_opened(void *arg)
{
    struct wiring *w = arg;
    daemon_post(w->server.daemon, take_opened, w);
}

static void on_journals(void *arg)
{
    struct wiring *w = arg;
    if (!w->server.recovered)
        return;
    journal_set_poll(streams_set(w->server.streams));
    cursors_poll(w->server.cursors);
}

static struct streams *new_streams(struct wiring *w, const struct options *o)
{
    struct streams_config config = {
        .dir = options_string(o, "data_dir"),
        .auto_create = options_bool(o, "auto_create"),
        .max_streams = (size_t)options_int(o, "max_streams"),
        .max_producers = (size_t)options_int(o, "max_producers"),
        .segment_bytes = (uint64_t)options_int(o, "segment_bytes"),
        .limits = limits_of,
        .limits_arg = w->limits,
        .set = {.sync_ms = options_sync(o, "sync"), .notify = loop_notify_defer, .notify_arg = w->notify},
    };
    return streams_new(&config);
}

static struct stream_recovery *start_recovery(struct wiring *w, const struct options *o)
{
    const struct stream_recovery_config config = {
        .cursors = {.streams = w->server.streams,
            .dir = options_string(o, "data_dir"),
            .max = (size_t)options_int(o, "max_cursors"),
            .notify = loop_notify_wake,
            .notify_arg = w->notify,
            .made = http_cursors_add_gauges,
            .removed = http_cursors_remove_gauges,
            .arg = &w->server},
        .names = options_string(o, "streams"),
        .done = on_opened,
        .arg = w,
    };
    return stream_recovery_start(&config);
}

static int start(struct daemon *d, void **ctx, struct config_error *error)
{
    struct options *o = daemon_options(d);
    if (daemon_lock_directory(options_string(o, "data_dir"), error) != 0)
        return daemon_start_status(errno);
    struct wiring *w = mem_zalloc(sizeof(*w));
    *ctx = w;
    w->server.daemon = d;
    random_id(w->server.life);
    w->server.max_line = (size_t)options_int(o, "max_line");
    w->server.heartbeat = options_int(o, "heartbeat") * USEC_PER_MSEC;
    if (limits_read(o, settings_rows, &w->limits, error) != 0)
        return EX_CONFIG;
    w->notify = loop_notify_new(daemon_base(d), on_journals, w);
    w->server.streams = new_streams(w, o);
    http_stats_register(&w->server);
    daemon_set_not_ready(d, "recovering the streams");
    w->recovery = start_recovery(w, o);
    if (w->recovery)
        return 0;
    snprintf(error->text, sizeof(error->text), "cannot start a thread");
    return EX_TEMPFAIL;
}

static void drain(void *ctx)
{
    struct pubsub_server *server = ctx;
    server->draining = true;
    http_clients_end(server);
    server_check_drained(server);
}

static void stop(void *ctx)
{
    struct wiring *w = ctx;
    char error[STREAM_RECOVERY_ERROR_TEXT];
    if (!w)
        return;
    if (w->recovery)
        stream_recovery_finish(&w->recovery, &w->server.cursors, error);
    w->server.drained = true; /* the loop has ended */
    if (w->tick)
        event_free(w->tick);
    nng_publish_close(&w->nng);
    scrubber_stop(&w->scrubber);
    cursors_close(&w->server.cursors);
    streams_free(&w->server.streams);
    limits_free(&w->limits);
    loop_notify_free(&w->notify);
    if (w->server.drain_limit)
        event_free(w->server.drain_limit);
    free(w);
}

static bool retry_events_if_wanted(struct http_request *req, void *ctx)
{
    (void)ctx;
    if (!server_wants_events(req))
        return false;
    server_retry_events(req);
    return true;
}

static const struct http_route routes[] = {
    {.path = "/pub",
        .methods = HTTP_POST_,
        .flags = HTTP_ROUTE_IDENTITY_BODY,
        .handler = http_publish,
        .params = "stream producer mark next",
        .help = "POST lines to stream= (default); producer=, mark=, next="},
    {.path = "/sub",
        .methods = HTTP_GET_,
        .on_overload = retry_events_if_wanted,
        .handler = http_sub,
        .params = "stream from id follow multipart",
        .help = "the bytes of stream= from=earliest|latest|OFFSET|@UNIXTIME; id=, follow=0, multipart=; "
                "Accept: text/event-stream"},
    {.path = "/cursors",
        .methods = HTTP_GET_ | HTTP_POST_ | HTTP_DELETE_,
        .handler = http_cursors,
        .params = "stream name from id backwards",
        .help = "named cursors; POST stream=, name=, from= makes or moves one (backwards=1), DELETE"},
    {.path = "/clients",
        .methods = HTTP_GET_,
        .handler = http_clients,
        .params = "format",
        .help = "subscribers; ?format=json"},
    {.path = "/producer",
        .methods = HTTP_GET_,
        .handler = http_producer,
        .params = "stream producer",
        .help = "the mark of producer= in stream="},
    {.path = "/streams",
        .methods = HTTP_GET_,
        .handler = http_streams,
        .params = "",
        .help = "every stream, as JSON"},
    {.path = NULL},
};

int main(int argc, char **argv)
{
    static const struct daemon_spec spec = {
        .name = "pubsub",
        .summary = "named streams of lines, read by any number of clients from any offset",
        .options = settings_rows,
        .sections = "stream",
        .default_port = PORT_PUBSUB,
        .routes = routes,
        .check = settings_check,
        .start = start,
        .drain = drain,
        .stop = stop,
        .extra_stats = http_stats_extra,
        .stats_headers = http_stats_headers,
        .reset_stats = http_stats_reset,
    };
    return daemon_main(&spec, argc, argv);
}
