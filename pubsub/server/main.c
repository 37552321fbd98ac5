/* pubsub: wires streams, cursors, the tap and their HTTP face to the event loop. */
#include "pubsub/server/pubsub_app.h"
#include "pubsub/stream/limits.h"
#include "base/log.h"
#include "daemon/loop_notify.h"
#include "pubsub/stream/stream_recovery.h"
#include "config/peers.h"
#include "daemon/scrubber.h"
#include "pubsub/stream/pubsub_settings.h"
#include "pubsub/server/nng_publish.h"
#include "pubsub/stream/window.h"

#include <event2/event.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sysexits.h>

#define TICK_MAX USEC_PER_SEC

struct wiring {
    struct app app; /* first: handlers get it as their ctx */
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
    app_retain(&w->app);
    cursors_tick(w->app.cursors);
    app_heartbeats(&w->app);
    app_notice_gone(&w->app);
    app_take_back(&w->app);
    window_trim();
    if (w->nng)
        nng_publish_tick(w->nng);
}

/* Half a heartbeat, so that none is more than half too late; but at most TICK_MAX. */
static void start_tick(struct wiring *w)
{
    usec_t interval = w->app.heartbeat / 2 < TICK_MAX ? w->app.heartbeat / 2 : TICK_MAX;
    struct timeval tv = {(time_t)(interval / USEC_PER_SEC), (suseconds_t)(interval % USEC_PER_SEC)};
    w->tick = event_new(daemon_base(w->app.daemon), -1, EV_PERSIST, on_tick, w);
    evtimer_add(w->tick, &tv);
    on_tick(-1, 0, w);
}

static void report_streams(const struct app *app)
{
    for (size_t i = 0; i < streams_count(app->streams); i++) {
        struct stream *s = streams_at(app->streams, i);
        struct journal *j = stream_journal(s);
        if (journal_cut_bytes(j))
            log_warn("cut the tail of a stream that was being written", LOG_S("stream", stream_name(s)),
                LOG_U("bytes", journal_cut_bytes(j)));
        log_info("stream recovered", LOG_S("stream", stream_name(s)), LOG_S("id", journal_id(j)),
            LOG_U("end", journal_committed_end(j)));
    }
    if (cursors_dropped(app->cursors))
        log_warn("cursors of streams that are gone, or others now, were dropped",
            LOG_U("cursors", cursors_dropped(app->cursors)));
}

static bool open_nng_publish(struct wiring *w)
{
    struct config_error error;
    const char *urls = options_string(daemon_options(w->app.daemon), NNG_PUBLISH_SETTING);
    if (!urls)
        return true;
    w->nng = nng_publish_open(w->app.streams, urls, daemon_stats(w->app.daemon), &error);
    if (!w->nng)
        log_error("cannot publish over nng", LOG_S("error", error.text));
    return w->nng != NULL;
}

static void begin(struct wiring *w)
{
    w->app.recovered = true;
    report_streams(&w->app);
    app_streams_came(&w->app);
    cursors_tell_all(w->app.cursors);
    start_tick(w);
    w->scrubber = scrubber_start(w->app.daemon, streams_set(w->app.streams));
    if (!w->app.draining)
        daemon_set_ready(w->app.daemon);
}

static void take_opened(void *arg)
{
    struct wiring *w = arg;
    char error[STREAM_RECOVERY_ERROR_TEXT];
    if (!w->recovery)
        return;
    enum streams_result r = stream_recovery_finish(&w->recovery, &w->app.cursors, error);
    if (r != STREAMS_OK) {
        log_error("cannot recover the streams", LOG_S("error", error));
        daemon_fail(w->app.daemon, r == STREAMS_NO_SPACE || r == STREAMS_LACK ? EX_TEMPFAIL : EX_CONFIG);
    } else if (!open_nng_publish(w)) {
        daemon_fail(w->app.daemon, EX_CONFIG);
    } else {
        begin(w);
    }
}

static void on_opened(void *arg)
{
    struct wiring *w = arg;
    daemon_post(w->app.daemon, take_opened, w);
}

static void on_journals(void *arg)
{
    struct wiring *w = arg;
    if (!w->app.recovered)
        return;
    journal_set_poll(streams_set(w->app.streams));
    cursors_poll(w->app.cursors);
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
        .cursors = {.streams = w->app.streams,
            .dir = options_string(o, "data_dir"),
            .max = (size_t)options_int(o, "max_cursors"),
            .notify = loop_notify_wake,
            .notify_arg = w->notify,
            .came = app_cursor_came,
            .goes = app_cursor_goes,
            .arg = &w->app},
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
    w->app.daemon = d;
    random_id(w->app.life);
    w->app.max_line = (size_t)options_int(o, "max_line");
    w->app.heartbeat = options_int(o, "heartbeat") * USEC_PER_MSEC;
    if (limits_read(o, settings_rows, &w->limits, error) != 0)
        return EX_CONFIG;
    w->notify = loop_notify_new(daemon_base(d), on_journals, w);
    w->app.streams = new_streams(w, o);
    app_register_stats(&w->app);
    daemon_set_not_ready(d, "recovering the streams");
    w->recovery = start_recovery(w, o);
    if (w->recovery)
        return 0;
    snprintf(error->text, sizeof(error->text), "cannot start a thread");
    return EX_TEMPFAIL;
}

static void drain(void *ctx)
{
    struct app *app = ctx;
    app->draining = true;
    app_end_subscribers(app);
    app_check_drained(app);
}

static void stop(void *ctx)
{
    struct wiring *w = ctx;
    char error[STREAM_RECOVERY_ERROR_TEXT];
    if (!w)
        return;
    if (w->recovery)
        stream_recovery_finish(&w->recovery, &w->app.cursors, error);
    w->app.drained = true; /* the loop has ended: nobody is to be told */
    if (w->tick)
        event_free(w->tick);
    nng_publish_close(&w->nng);
    scrubber_stop(&w->scrubber);
    cursors_close(&w->app.cursors);
    streams_free(&w->app.streams);
    limits_free(&w->limits);
    loop_notify_free(&w->notify);
    if (w->app.drain_limit)
        event_free(w->app.drain_limit);
    free(w);
}

int main(int argc, char **argv)
{
    static const struct daemon_spec spec = {
        .name = "pubsub",
        .summary = "named streams of lines: published once, read by anyone from any point",
        .options = settings_rows,
        .sections = "stream",
        .default_port = PORT_PUBSUB,
        .routes = app_routes,
        .check = settings_check,
        .start = start,
        .drain = drain,
        .stop = stop,
        .extra_stats = app_extra_stats,
        .stats_headers = app_stats_headers,
        .reset_stats = app_reset_stats,
    };
    return daemon_main(&spec, argc, argv);
}
