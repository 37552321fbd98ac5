/* sortdb: wires reloader, generation and HTTP to the event loop. */
#include "sortdb/sortdb_app.h"
#include "sortdb/sortdb_health.h"
#include "base/log.h"
#include "daemon/loop_notify.h"
#include "sortdb/sortdb_metrics.h"
#include "config/peers.h"
#include "sortdb/sortdb_settings.h"

#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <sysexits.h>

#define LOOK_SECONDS 1

struct wiring {
    struct app app; /* first: handlers get it as their ctx */
    struct loop_notify *notify;
    struct event *look;
};

static void on_look(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what;
    health_update(arg);
}

static void serve_generation(struct wiring *w, struct reloader_outcome *o)
{
    struct generation_info info = generation_info(o->generation);
    generation_unref(&w->app.generation);
    w->app.generation = o->generation;
    w->app.reload_error[0] = '\0';
    stats_add(w->app.reloads, 1);
    log_info("serving", LOG_U("generation", info.number), LOG_U("through", info.through),
        LOG_U("shards", info.shards), LOG_U("records", info.records), LOG_U("bytes", info.bytes));
}

static void reject_generation(struct wiring *w, const struct reloader_outcome *o)
{
    stats_add(w->app.failed_reloads, 1);
    memcpy(w->app.reload_error, o->error, sizeof(w->app.reload_error));
    log_error(w->app.generation ? "reload failed; the old files keep serving" : "cannot serve",
        LOG_S("error", o->error));
    if (!w->app.generation)
        daemon_fail(w->app.daemon, o->result == GENERATION_FAILED ? EX_TEMPFAIL : EX_CONFIG);
}

static void on_opened(void *arg)
{
    struct wiring *w = arg;
    struct reloader_outcome o;
    if (!w->app.reloader || !reloader_take(w->app.reloader, &o))
        return;
    if (o.result == GENERATION_OK)
        serve_generation(w, &o);
    else
        reject_generation(w, &o);
    health_update(&w->app);
    app_answer_calls(&w->app, o.ticket, o.result == GENERATION_OK ? NULL : o.error);
}

static void hangup(void *ctx)
{
    struct wiring *w = ctx;
    reloader_request(w->app.reloader);
}

static int start(struct daemon *d, void **ctx, struct config_error *error)
{
    struct reloader_config config = {.notify = loop_notify_wake};
    if (settings_read_source(daemon_options(d), &config.source, error) != 0)
        return EX_CONFIG;
    struct wiring *w = mem_zalloc(sizeof(*w));
    w->app.daemon = d;
    w->app.max_answer = (size_t)options_int(daemon_options(d), "max_answer");
    TAILQ_INIT(&w->app.calls);
    metrics_register(&w->app);
    daemon_set_not_ready(d, "opening the files");
    w->notify = loop_notify_new(daemon_base(d), on_opened, w);
    config.notify_arg = w->notify;
    w->app.reloader = reloader_new(&config);
    reloader_request(w->app.reloader);
    w->look = event_new(daemon_base(d), -1, EV_PERSIST, on_look, w);
    evtimer_add(w->look, &(struct timeval){.tv_sec = LOOK_SECONDS});
    *ctx = w;
    return 0;
}

static void stop(void *ctx)
{
    struct wiring *w = ctx;
    stats_remove_gauges(daemon_stats(w->app.daemon), &w->app);
    event_free(w->look);
    reloader_free(&w->app.reloader);
    loop_notify_free(&w->notify);
    generation_unref(&w->app.generation);
    buf_free(&w->app.scratch);
    free(w);
}

int main(int argc, char **argv)
{
    static const struct daemon_spec spec = {
        .name = "sortdb",
        .summary = "serves sorted files: the archive, or any file sorted by LC_ALL=C sort",
        .options = settings_rows,
        .default_port = PORT_SORTDB,
        .routes = app_routes,
        .check = settings_check,
        .start = start,
        .hangup = hangup,
        .stop = stop,
        .extra_stats = app_extra_stats,
    };
    return daemon_main(&spec, argc, argv);
}
