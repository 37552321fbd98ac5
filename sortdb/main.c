/* sortdb: connects reloader, generation and HTTP server to the event loop. */
#include "sortdb/sortdb_app.h"
#include "base/log.h"
#include "daemon/loop_notify.h"
#include "config/peers.h"
#include "daemon/loop_timer.h"
#include "sortdb/sortdb_settings.h"

#include <assert.h>
#include <stddef.h>
#include <stdlib.h>
#include <sysexits.h>

#define LOOK_SECONDS 1

struct wiring {
    struct app app;
    struct loop_notify *notify;
    struct loop_timer *look;
};
static_assert(offsetof(struct wiring, app) == 0, "handlers get the address of its first member");

/* Makes /health show a failed reload, or a truncated or modified file. sortdb continues to answer reads even if /health
 * shows an error. */
static void update_health(struct app *app)
{
    struct error now = app->reload_error;
    if (!app->generation)
        return;
    if (now.code != 0)
        error_set(&now, now.code, "reload failed: %s", now.text);
    else if (generation_is_whole(app->generation, GENERATION_NO_SHARD, &now) &&
             generation_is_untouched(app->generation, &now))
        generation_has_sound_sets(app->generation, &now);
    const char *text = now.code != 0 ? now.text : "";
    daemon_set_ready(app->daemon);
    if (strcmp(text, app->health.text) == 0)
        return;
    error_set(&app->health, now.code, "%s", text);
    daemon_set_damaged(app->daemon, archive_remedy(text), now.code != 0 ? text : NULL);
}

/* Checks for truncated and modified files. */
static void on_look(void *arg)
{
    update_health(arg);
}

static void on_opened(void *arg)
{
    struct wiring *w = arg;
    struct app *app = &w->app;
    struct reloader_outcome o;
    if (!app->reloader || !reloader_take(app->reloader, &o))
        return;
    bool has_served = app->generation != NULL;
    if (o.generation) {
        struct generation_info info = generation_info(o.generation);
        stats_add(app->reloads, 1);
        log_info("serving", LOG_U("generation", info.number), LOG_U("through", info.through),
            LOG_U("shards", info.shards), LOG_U("records", info.records), LOG_U("bytes", info.bytes));
    } else if (o.error.code != SORTED_FILE_OK) {
        stats_add(app->failed_reloads, 1);
        if (has_served)
            log_error("reload failed; sortdb still serves the old files", LOG_S("error", o.error.text));
        else
            daemon_give_up(app->daemon, o.error.code == SORTED_FILE_FAILED ? EX_TEMPFAIL : EX_CONFIG,
                "cannot serve", archive_repair(o.error.text), o.error.text);
    }
    app_publish(app, &o);
    update_health(app);
    app_answer_calls(app);
}

static struct generation_info served(void *ctx)
{
    struct generation *g = app_generation(ctx);
    struct generation_info info = g ? generation_info(g) : (struct generation_info){0};
    generation_unref(&g);
    return info;
}

STATS_READ(served_generation, served(ctx).number)
STATS_READ(served_records, served(ctx).records)
STATS_READ(served_bytes, served(ctx).bytes)

static void hangup(void *ctx)
{
    struct wiring *w = ctx;
    reloader_request(w->app.reloader);
}

static int start(struct daemon *d, void **ctx, struct error *error)
{
    static const struct stats_row rows[] = {
        {"served_generation", "number of the current generation", served_generation},
        {"served_records", "records served", served_records},
        {"served_bytes", "size of the current files", served_bytes},
        {0},
    };
    struct stats *s = daemon_stats(d);
    struct reloader_config config = {.notify = loop_notify_wake};
    if (settings_read_source(daemon_options(d), &config.source, error) != 0)
        return EX_CONFIG;
    struct wiring *w = mem_zalloc(sizeof *w);
    w->app.daemon = d;
    w->app.max_answer = (size_t)options_int(daemon_options(d), "max_answer");
    pthread_mutex_init(&w->app.lock, NULL);
    server_begin(&w->app.main, &w->app, daemon_base(d));
    w->app.n_workers = (size_t)options_int(daemon_options(d), "threads") - 1;
    w->app.workers = mem_zalloc((w->app.n_workers + 1) * sizeof *w->app.workers);
    w->app.get_hits = stats_counter(s, "get_hits_total", NULL, "keys found by get and mget");
    w->app.get_misses = stats_counter(s, "get_misses_total", NULL, "keys not found by get and mget");
    w->app.fwmatch_hits = stats_counter(s, "fwmatch_hits_total", NULL, "fwmatch requests with records");
    w->app.fwmatch_misses =
        stats_counter(s, "fwmatch_misses_total", NULL, "fwmatch requests without records");
    w->app.reloads = stats_counter(s, "reloads_total", NULL, "generations opened, including the first");
    w->app.failed_reloads =
        stats_counter(s, "reload_failures_total", NULL, "generations that failed to open");
    stats_gauges(s, rows, NULL, &w->app);
    daemon_set_not_ready(d, NOTICE_RECOVERING, DAEMON_WAIT, "opening the files");
    w->notify = loop_notify_new(daemon_base(d), on_opened, w);
    config.notify_arg = w->notify;
    w->app.reloader = reloader_new(&config);
    reloader_request(w->app.reloader);
    w->look = loop_timer_every(daemon_base(d), LOOK_SECONDS * USEC_PER_SEC, on_look, w);
    *ctx = w;
    return 0;
}

static void *begin_worker(void *ctx, size_t worker, struct event_base *base)
{
    struct app *app = ctx;
    server_begin(&app->workers[worker], app, base);
    return &app->workers[worker];
}

static void end_worker(void *ctx)
{
    server_end(ctx);
}

static void stop(void *ctx)
{
    struct wiring *w = ctx;
    stats_remove_gauges(daemon_stats(w->app.daemon), &w->app);
    loop_timer_free(&w->look);
    reloader_free(&w->app.reloader);
    server_end(&w->app.main);
    loop_notify_free(&w->notify);
    generation_unref(&w->app.generation);
    pthread_mutex_destroy(&w->app.lock);
    free(w->app.workers);
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
        .worker = begin_worker,
        .worker_end = end_worker,
        .hangup = hangup,
        .stop = stop,
        .extra_stats = app_extra_stats,
    };
    return daemon_main(&spec, argc, argv);
}
