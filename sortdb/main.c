/* sortdb: wires the reloader, the generation in force and its HTTP face to the event loop. */
#include "app.h"
#include "log.h"
#include "loop_notify.h"
#include "peers.h"

#include <event2/event.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sysexits.h>

#define LOOK_SECONDS 1

static const struct option_row rows[] = {
    {.name = "archive",
        .type = OPTION_STRING,
        .min = 1,
        .max = 4096,
        .help = "a directory of the compactor's: its generation in force is served"},
    {.name = "db_file",
        .type = OPTION_STRING,
        .min = 1,
        .max = 4096,
        .help = "one file, sorted by LC_ALL=C sort"},
    {.name = "field_separator",
        .type = OPTION_STRING,
        .fallback = "tab",
        .min = 1,
        .max = 5,
        .help = "of db_file: one character, or its name: tab, comma, pipe, space"},
    {.name = "memory_lock", .type = OPTION_BOOL, .fallback = "false", .help = "keep the files in memory"},
    {.name = "max_answer",
        .type = OPTION_SIZE,
        .fallback = "32M",
        .min = 1,
        .max = 1 << 30,
        .unit = "bytes",
        .help = "a longer answer is cut and names where to go on"},
    {0},
};

struct wiring {
    struct app app; /* first: handlers get it as their ctx */
    struct loop_notify *notify;
    struct event *look;
    char health[GENERATION_ERROR_TEXT]; /* what was said last; "" when ready */
    struct stats_counter *reloads, *failed_reloads;
};

/* ---- health: reads go on whatever it says ---- */

static void describe_health(const struct app *app, char *text, size_t size)
{
    char error[GENERATION_ERROR_TEXT];
    text[0] = '\0';
    if (app->trouble[0])
        snprintf(text, size, "reload failed: %.900s", app->trouble);
    else if (!generation_is_whole(app->generation, error) || !generation_is_untouched(app->generation, error))
        snprintf(text, size, "%s", error);
}

static void update_health(struct wiring *w)
{
    char text[GENERATION_ERROR_TEXT];
    if (!w->app.generation)
        return;
    describe_health(&w->app, text, sizeof(text));
    if (daemon_is_ready(w->app.daemon) == (text[0] == '\0') && strcmp(text, w->health) == 0)
        return;
    memcpy(w->health, text, sizeof(text));
    if (text[0])
        daemon_set_not_ready(w->app.daemon, "%s", text);
    else
        daemon_set_ready(w->app.daemon);
}

static void on_look(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what;
    update_health(arg);
}

/* ---- reloads ---- */

static void take_good(struct wiring *w, struct reloader_outcome *o)
{
    struct generation_info info = generation_info(o->generation);
    generation_unref(&w->app.generation);
    w->app.generation = o->generation;
    w->app.trouble[0] = '\0';
    stats_add(w->reloads, 1);
    log_info("serving", LOG_U("generation", info.number), LOG_U("through", info.through),
        LOG_U("shards", info.shards), LOG_U("records", info.records), LOG_U("bytes", info.bytes));
}

static void take_bad(struct wiring *w, const struct reloader_outcome *o)
{
    stats_add(w->failed_reloads, 1);
    memcpy(w->app.trouble, o->error, sizeof(w->app.trouble));
    log_error(w->app.generation ? "reload failed, the old files are still served" : "cannot serve",
        LOG_S("reason", o->error));
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
        take_good(w, &o);
    else
        take_bad(w, &o);
    update_health(w);
    app_answer_calls(&w->app, o.ticket, o.result == GENERATION_OK ? NULL : o.error);
}

static void hangup(void *ctx)
{
    struct wiring *w = ctx;
    reloader_request(w->app.reloader);
}

/* ---- settings ---- */

static bool read_separator(const char *text, char *out)
{
    static const struct {
        const char *name;
        char separator;
    } names[] = {{"tab", '\t'}, {"\\t", '\t'}, {"comma", ','}, {"space", ' '}, {"pipe", '|'}};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (strcmp(text, names[i].name) == 0) {
            *out = names[i].separator;
            return true;
        }
    }
    *out = text[0];
    return text[0] != '\0' && text[1] == '\0' && text[0] != '\n';
}

static int read_source(const struct options *o, struct generation_source *s, struct config_error *error)
{
    const char *separator = options_string(o, "field_separator");
    *s = (struct generation_source){.archive = options_string(o, "archive"),
        .db_file = options_string(o, "db_file"),
        .lock_memory = options_bool(o, "memory_lock")};
    if (!s->archive == !s->db_file) {
        snprintf(error->text, sizeof(error->text), "%s: one of archive and db_file says what to serve",
            s->archive ? "both archive and db_file are set" : "neither archive nor db_file is set");
        return -1;
    }
    if (!read_separator(separator, &s->separator)) {
        snprintf(error->text, sizeof(error->text), "field_separator (%s): %s is not one character",
            options_source(o, "field_separator"), separator);
        return -1;
    }
    if (s->archive && options_is_set(o, "field_separator") && s->separator != ',') {
        snprintf(error->text, sizeof(error->text), "field_separator (%s): an archive's is always a comma",
            options_source(o, "field_separator"));
        return -1;
    }
    return 0;
}

static int check(struct options *o, struct config_error *error)
{
    struct generation_source source;
    return read_source(o, &source, error);
}

/* ---- metrics ---- */

static double served(const void *ctx, uint64_t (*number)(struct generation_info info))
{
    const struct app *app = ctx;
    return app->generation ? (double)number(generation_info(app->generation)) : 0;
}

static uint64_t number_of(struct generation_info info)
{
    return info.number;
}

static uint64_t records_of(struct generation_info info)
{
    return info.records;
}

static uint64_t bytes_of_info(struct generation_info info)
{
    return info.bytes;
}

static double read_generation(void *ctx)
{
    return served(ctx, number_of);
}

static double read_records(void *ctx)
{
    return served(ctx, records_of);
}

static double read_bytes(void *ctx)
{
    return served(ctx, bytes_of_info);
}

static void register_metrics(struct wiring *w)
{
    struct app *app = &w->app;
    struct stats *s = daemon_stats(app->daemon);
    app->get_hits = stats_counter(s, "get_hits_total", NULL, "keys asked by get and mget that are there");
    app->get_misses = stats_counter(s, "get_misses_total", NULL, "keys asked by get and mget that are not");
    app->fwmatch_hits = stats_counter(s, "fwmatch_hits_total", NULL, "prefixes that some key has");
    app->fwmatch_misses = stats_counter(s, "fwmatch_misses_total", NULL, "prefixes that no key has");
    w->reloads = stats_counter(s, "reloads_total", NULL, "generations taken, the first included");
    w->failed_reloads = stats_counter(s, "reload_failures_total", NULL, "generations refused");
    stats_gauge(s, "served_generation", NULL, "the generation served", read_generation, app);
    stats_gauge(s, "served_records", NULL, "records served", read_records, app);
    stats_gauge(s, "served_bytes", NULL, "bytes of the files served", read_bytes, app);
}

/* ---- life ---- */

static int start(struct daemon *d, void **ctx, struct config_error *error)
{
    struct reloader_config config = {.notify = loop_notify_wake};
    if (read_source(daemon_options(d), &config.source, error) != 0)
        return EX_CONFIG;
    struct wiring *w = mem_zalloc(sizeof(*w));
    w->app.daemon = d;
    w->app.max_answer = (size_t)options_int(daemon_options(d), "max_answer");
    TAILQ_INIT(&w->app.calls);
    register_metrics(w);
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
        .summary = "serves sorted files: the archive of counts, or any one",
        .options = rows,
        .default_port = PORT_SORTDB,
        .routes = app_routes,
        .check = check,
        .start = start,
        .hangup = hangup,
        .stop = stop,
        .extra_stats = app_extra_stats,
    };
    return daemon_main(&spec, argc, argv);
}
