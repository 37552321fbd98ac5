/* spamfilter: connects the store of marks and the HTTP server to the event loop. */
#include "base/io.h"
#include "base/log.h"
#include "config/peers.h"
#include "daemon/daemon_directory.h"
#include "daemon/loop_notify.h"
#include "spamfilter/mark_feed.h"

#include <assert.h>
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sysexits.h>

#define LOG_RATE 10 /* lines a second about URLs */
#define TICK_MAX USEC_PER_SEC

struct wiring {
    struct spamfilter server;
    struct mark_feed *feed; /* NULL: no stream */
    struct loop_notify *notify;
};
static_assert(offsetof(struct wiring, server) == 0, "handlers get the address of its first member");

static void on_store(void *arg)
{
    struct wiring *w = arg;
    if (w->server.store)
        mark_store_poll(w->server.store);
}

static void on_tick(void *ctx)
{
    struct wiring *w = ctx;
    mark_store_tick(w->server.store, clock_monotonic());
    mark_feed_tick(w->feed);
    const char *failure = mark_store_failure(w->server.store);
    if (failure)
        daemon_set_notice(w->server.daemon, "storage", NOTICE_ALARM, DAEMON_REPAIR_DISK, failure);
}

static struct marks *marks_of(void *ctx)
{
    struct spamfilter *server = ctx;
    return mark_store_marks(server->store);
}

STATS_READ(elements, filter_stats(marks_of(ctx)->filter).members)
STATS_READ(false_positive_rate, filter_stats(marks_of(ctx)->filter).rate)
STATS_READ(exceptions, HASH_COUNT(marks_of(ctx)->exceptions.oldest))

static void register_stats(struct spamfilter *server)
{
    static const struct stats_row rows[] = {
        {"elements", "marks in the filter", elements},
        {"false_positive_rate",
            "estimated rate of false positives for each host or path that a check looks up",
            false_positive_rate},
        {"exceptions", "hosts, paths and URLs that are exempt from marks", exceptions},
        {0},
    };
    struct stats *s = daemon_stats(server->daemon);
    server->checks = stats_counter(s, "checks_total", NULL, "checked URLs");
    server->marked = stats_counter(s, "marked_total", NULL, "checked URLs that are marked");
    server->exact = stats_counter(s, "exact_total", NULL, "matches that the exact table confirms");
    server->allowed = stats_counter(s, "allowed_total", NULL, "checked URLs that an exception exempts");
    server->shadowed =
        stats_counter(s, "shadow_total", NULL, "checked URLs that would be marked without shadow mode");
    for (size_t i = 0; i < MARK_ACTIONS; i++) {
        char labels[32];
        snprintf(labels, sizeof labels, "action=\"%s\"", mark_actions[i]);
        server->updates[i] =
            stats_counter(s, "updates_total", labels, "updates that changed marks or exceptions");
    }
    stats_gauges(s, rows, NULL, server);
}

static int open_store(struct wiring *w, struct options *o, struct error *error)
{
    struct mark_store_config config = {.sync_every = options_int(o, "sync_every") * USEC_PER_MSEC,
        .notify = loop_notify_defer,
        .notify_arg = w->notify};
    if (spamfilter_read_settings(o, &config.marks, error) != 0)
        return EX_CONFIG;
    if (daemon_lock_directory(config.marks.dir, error) != 0)
        return daemon_start_status(errno);
    w->server.marks = config.marks;
    char *lists = mark_load_path(&config.marks, "");
    int made = io_make_dirs(lists);
    free(lists);
    if (made != 0) {
        error_errno(error, FILTER_FAILED, config.marks.dir);
        return EX_TEMPFAIL;
    }
    w->server.store = mark_store_open(&config, error);
    if (w->server.store)
        return 0;
    if (error->code != FILTER_DAMAGED)
        return EX_TEMPFAIL;
    error_set(error, FILTER_DAMAGED,
        "%s; restore the directory from a backup, or delete it and add the marks again", error->text);
    return EX_CONFIG;
}

static int start(struct daemon *d, void **ctx, struct error *error)
{
    struct options *o = daemon_options(d);
    struct wiring *w = mem_zalloc(sizeof *w);
    *ctx = w;
    w->server.daemon = d;
    w->server.is_shadow = options_bool(o, "shadow");
    rate_limit_init(&w->server.log_limit, LOG_RATE);
    w->notify = loop_notify_new(daemon_base(d), on_store, w);
    int status = open_store(w, o, error);
    if (status != 0)
        return status;
    register_stats(&w->server);
    w->server.guard = disk_guard_new(&(struct disk_guard_config){
        .daemon = d, .dir = options_string(o, "data_dir"), .what = "updates of marks"});
    if (options_text(o, "stream") && !(w->feed = mark_feed_new(&w->server, error)))
        return EX_CONFIG;
    usec_t every = options_int(o, "sync_every") * USEC_PER_MSEC;
    daemon_set_tick(d, every < TICK_MAX ? every : TICK_MAX, on_tick);
    struct filter_stats s = filter_stats(marks_of(w)->filter);
    log_info(
        "marks opened", LOG_U("elements", s.members), LOG_U("layers", s.layers), LOG_U("bytes", s.bytes));
    daemon_set_ready(d);
    return 0;
}

static void stop(void *ctx)
{
    struct wiring *w = ctx;
    mark_feed_stop(w->feed);
    mark_store_close(&w->server.store);
    mark_feed_free(&w->feed);
    disk_guard_free(&w->server.guard);
    loop_notify_free(&w->notify);
    url_form_free(&w->server.form);
    free(w);
}

int main(int argc, char **argv)
{
    static const struct daemon_spec spec = {
        .name = "spamfilter",
        .summary = "answers whether a link, its host or its path is marked",
        .options = spamfilter_settings,
        .is_service = true,
        .default_port = PORT_SPAMFILTER,
        .routes = spamfilter_routes,
        .check = spamfilter_check_settings,
        .start = start,
        .stop = stop,
        .extra_stats = spamfilter_extra_stats,
    };
    return daemon_main(&spec, argc, argv);
}
