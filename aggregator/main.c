/* aggregator: wires the followers of streams, the aggregate and its HTTP face to the event loop. */
#include "app.h"
#include "cursor_keeper.h"
#include "http_client.h"
#include "json_fields.h"
#include "log.h"
#include "loop_notify.h"

#include <event2/event.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sysexits.h>

#define POLL_SECONDS 1
#define TICKS_A_FLUSH 4
#define TICK_MOST (250 * USEC_PER_MSEC)
#define TICK_LEAST (5 * USEC_PER_MSEC)

static const struct option_row rows[] = {
    {.name = "data_dir",
        .type = OPTION_STRING,
        .min = 1,
        .max = 4096,
        .help = "where slices and rejects are kept"},
    {.name = "archive",
        .type = OPTION_STRING,
        .min = 1,
        .max = 4096,
        .help = "the archive that the compactor makes of sealed slices; without it nothing is cleared"},
    {.name = "pubsub_url",
        .type = OPTION_STRING,
        .help = "where streams come from; the file's [pubsub] unless given"},
    {.name = "streams",
        .type = OPTION_STRING,
        .fallback = "clicks",
        .help = "what to count, separated by commas"},
    {.name = "cursor",
        .type = OPTION_STRING,
        .fallback = "aggregator",
        .min = 1,
        .max = NAME_MAX_BYTES,
        .help = "name of the cursor that pubsub keeps on each stream: another for each aggregator"},
    {.name = "flush_interval",
        .type = OPTION_DURATION,
        .fallback = "2s",
        .min = 10,
        .max = 3600000,
        .unit = "ms",
        .help = "how often counts are written to the slice"},
    {.name = "max_memory",
        .type = OPTION_SIZE,
        .fallback = "256M",
        .min = 4 << 20,
        .max = INT64_C(1) << 40,
        .unit = "bytes",
        .help = "counts not yet written; a stream waits at the bound"},
    {.name = "max_line",
        .type = OPTION_SIZE,
        .fallback = "1M",
        .min = 64,
        .max = 64 << 20,
        .unit = "bytes",
        .help = "a longer line is rejected"},
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
    struct http_client *client;
    struct cursor_keeper *keeper;
    struct event *tick, *poll;
    bool polling, drained;
    int64_t polled_at;              /* unix seconds */
    char health[512];               /* what was said last */
    struct aggregate_numbers shown; /* what the metrics have */
    struct stats_counter *events, *skipped, *rejected, *rows, *collisions, *holes;
    struct stats_histogram *flush_seconds;
};

/* ---- what is known of the streams ---- */

int64_t app_complete_until(struct app *app)
{
    uint64_t offsets[APP_MAX_STREAMS];
    for (size_t i = 0; i < app->n_streams; i++)
        offsets[i] = aggregate_cursor(app->aggregate, i)->offset;
    return completeness_until(app->completeness, offsets);
}

uint64_t app_lag(const struct app *app, size_t stream)
{
    uint64_t end = completeness_end(app->completeness, stream);
    uint64_t offset = aggregate_cursor(app->aggregate, stream)->offset;
    return end > offset ? end - offset : 0;
}

static uint64_t number_at(const struct json_doc *doc, const char *pointer)
{
    struct json_value v = json_doc_at(doc, pointer);
    uint64_t n = 0;
    if (v.type == JSON_STRING && !bytes_to_u64(v.v.string, &n))
        n = 0;
    else if (v.type == JSON_I64 && v.v.i64 > 0)
        n = (uint64_t)v.v.i64;
    return n;
}

/* False when the stream listed is not the one that is counted. */
static bool read_end(struct app *app, const struct json_doc *doc, size_t at, uint64_t *ends)
{
    char pointer[64];
    snprintf(pointer, sizeof(pointer), "/streams/%zu/name", at);
    struct json_value name = json_doc_at(doc, pointer);
    for (size_t i = 0; i < app->n_streams && name.type == JSON_STRING; i++) {
        if (!bytes_equal_str(name.v.string, app->streams[i]))
            continue;
        const char *id = aggregate_cursor(app->aggregate, i)->id;
        snprintf(pointer, sizeof(pointer), "/streams/%zu/id", at);
        struct json_value told = json_doc_at(doc, pointer);
        if (id[0] && !(told.type == JSON_STRING && bytes_equal_str(told.v.string, id)))
            return false;
        snprintf(pointer, sizeof(pointer), "/streams/%zu/end", at);
        ends[i] = number_at(doc, pointer);
    }
    return true;
}

static void take_streams(struct wiring *w, struct bytes body)
{
    uint64_t ends[APP_MAX_STREAMS] = {0};
    struct json_doc *doc = json_doc_parse(body);
    if (!doc)
        return;
    bool ok = json_doc_at(doc, "/streams").type == JSON_ARRAY;
    for (size_t i = 0; ok && i < json_doc_length(doc, "/streams"); i++)
        ok = read_end(&w->app, doc, i, ends);
    if (ok)
        completeness_told(w->app.completeness, w->polled_at, ends);
    json_doc_free(&doc);
    app_complete_until(&w->app);
}

static void on_streams(enum http_client_result result, const struct http_reply_view *reply, void *arg)
{
    struct wiring *w = arg;
    w->polling = false;
    if (result == HTTP_CLIENT_OK && reply->status == 200)
        take_streams(w, reply->body);
}

static void on_poll(evutil_socket_t fd, short what, void *arg)
{
    struct wiring *w = arg;
    (void)fd, (void)what;
    cursor_keeper_tick(w->keeper);
    if (w->polling)
        return;
    w->polling = true;
    w->polled_at = clock_wall() / USEC_PER_SEC;
    struct http_call_spec spec = {
        .method = "GET", .target = "/streams", .may_resend = true, .arg = w, .on_done = on_streams};
    http_client_request(w->client, &spec);
}

/* ---- health ---- */

static void say_not_ready(struct wiring *w, const char *text)
{
    if (strcmp(w->health, text) == 0)
        return;
    snprintf(w->health, sizeof(w->health), "%s", text);
    daemon_set_not_ready(w->app.daemon, "%s", w->health);
}

static void say_ready(struct wiring *w)
{
    if (w->health[0] || !daemon_is_ready(w->app.daemon))
        daemon_set_ready(w->app.daemon);
    w->health[0] = '\0';
}

/* The first stream that is refused, or (until there are answers) not caught up; in words. */
static bool describe_streams(struct wiring *w, char *out, size_t size)
{
    struct app *app = &w->app;
    for (size_t i = 0; i < app->n_streams; i++) {
        bool refused;
        const char *trouble = follower_trouble(app->followers[i], &refused);
        bool is_behind = !app->answers && !follower_is_caught_up(app->followers[i]);
        if (!refused && !is_behind)
            continue;
        snprintf(out, size, "%s stream %s%s%s", refused ? "refusing" : "catching up with", app->streams[i],
            trouble ? ": " : "", trouble ? trouble : "");
        return true;
    }
    return false;
}

static void update_health(struct wiring *w)
{
    struct app *app = &w->app;
    char text[512];
    bool caught_up = true, latched;
    for (size_t i = 0; i < app->n_streams; i++)
        caught_up = caught_up && follower_is_caught_up(app->followers[i]);
    app->answers = app->answers || caught_up;
    const char *failure = aggregate_failure(app->aggregate, &latched);
    if (failure)
        say_not_ready(w, failure);
    else if (describe_streams(w, text, sizeof(text)))
        say_not_ready(w, text);
    else
        say_ready(w);
}

/* ---- metrics ---- */

static void update_metrics(struct wiring *w)
{
    struct aggregate_numbers n;
    aggregate_numbers(w->app.aggregate, &n);
    stats_add(w->events, n.slice.events - w->shown.slice.events);
    stats_add(w->skipped, n.slice.skipped - w->shown.slice.skipped);
    stats_add(w->rejected, n.slice.rejected - w->shown.slice.rejected);
    stats_add(w->rows, n.rows_flushed - w->shown.rows_flushed);
    stats_add(w->collisions, n.collisions - w->shown.collisions);
    stats_add(w->holes, n.holes - w->shown.holes);
    if (n.flushes != w->shown.flushes)
        stats_observe(w->flush_seconds, n.last_flush);
    w->shown = n;
}

static double lag_bytes(void *ctx)
{
    struct app *app = ctx;
    uint64_t lag = 0;
    for (size_t i = 0; i < app->n_streams; i++)
        lag += app_lag(app, i);
    return (double)lag;
}

static double memory_bytes(void *ctx)
{
    struct aggregate_numbers n;
    aggregate_numbers(((struct app *)ctx)->aggregate, &n);
    return (double)n.memory;
}

static double complete_until(void *ctx)
{
    return (double)app_complete_until(ctx);
}

static void register_metrics(struct wiring *w)
{
    struct stats *s = daemon_stats(w->app.daemon);
    w->events =
        stats_counter(s, "events_counted_total", NULL, "events counted since the start of the process");
    w->skipped = stats_counter(s, "lines_skipped_total", NULL, "lines that are no events");
    w->rejected = stats_counter(s, "lines_rejected_total", NULL, "lines that went to the rejects file");
    w->rows = stats_counter(s, "rows_flushed_total", NULL, "rows written to the slice");
    w->collisions = stats_counter(s, "lookup_collisions_total", NULL, "meetings of two texts with one hash");
    w->holes = stats_counter(s, "holes_crossed_total", NULL, "holes in streams that were crossed");
    w->flush_seconds =
        stats_histogram(s, "flush_seconds", NULL, "from the swap to the committed transaction");
    stats_gauge(s, "lag_bytes", NULL, "published and not yet counted, as last asked", lag_bytes, &w->app);
    stats_gauge(s, "unwritten_bytes", NULL, "memory of counts not yet in the slice", memory_bytes, &w->app);
    stats_gauge(s, "complete_until_seconds", NULL, "all that was published before is counted", complete_until,
        &w->app);
}

/* ---- the loop's turns ---- */

static void check_drained(struct wiring *w)
{
    struct app *app = &w->app;
    bool latched;
    aggregate_failure(app->aggregate, &latched);
    if (w->drained || !daemon_is_draining(app->daemon))
        return;
    aggregate_flush(app->aggregate, clock_monotonic());
    if (!latched && !aggregate_is_clean(app->aggregate))
        return;
    w->drained = true;
    daemon_drained(app->daemon);
}

static void after_change(struct wiring *w)
{
    for (size_t i = 0; i < w->app.n_streams; i++) {
        if (w->app.followers[i])
            follower_resume(w->app.followers[i]);
    }
    update_health(w);
    update_metrics(w);
    check_drained(w);
}

static void on_written(void *arg)
{
    struct wiring *w = arg;
    if (!w->app.aggregate)
        return;
    aggregate_poll(w->app.aggregate, clock_monotonic());
    app_try_seal(&w->app);
    after_change(w);
}

static void on_tick(evutil_socket_t fd, short what, void *arg)
{
    struct wiring *w = arg;
    (void)fd, (void)what;
    aggregate_tick(w->app.aggregate, clock_monotonic());
    after_change(w);
}

static void on_stream(void *arg)
{
    update_health(arg);
}

/* ---- settings ---- */

static bool has_key_bound(const struct counters *c)
{
    for (size_t i = 0; i < c->n_totals; i++) {
        if (c->totals[i].max_keys > 0)
            return true;
    }
    for (size_t i = 0; i < c->n_subtotals; i++) {
        if (c->subtotals[i].max_keys > 0)
            return true;
    }
    return false;
}

static int read_counters(struct options *o, struct counters **out, struct config_error *error)
{
    const struct config *config = options_config(o);
    if (!config) {
        snprintf(error->text, sizeof(error->text),
            "nothing to count: --config must name a file with [input] and [total ...] sections");
        return -1;
    }
    if (counters_read(config, out, error) != 0)
        return -1;
    if (!has_key_bound(*out))
        return 0;
    counters_free(out);
    snprintf(error->text, sizeof(error->text), "%s: this version does not bound keys: remove max_keys",
        config->path);
    return -1;
}

/* Splits the names in place; the app keeps the copy. */
static int read_streams(struct app *app, const struct options *o, struct config_error *error)
{
    char *save = NULL;
    app->stream_names = mem_strdup(options_string(o, "streams"));
    for (char *s = strtok_r(app->stream_names, ", ", &save); s; s = strtok_r(NULL, ", ", &save)) {
        bool again = false;
        for (size_t i = 0; i < app->n_streams; i++)
            again = again || strcmp(app->streams[i], s) == 0;
        if (again || !bytes_is_name(bytes_str(s)) || app->n_streams == APP_MAX_STREAMS) {
            snprintf(error->text, sizeof(error->text), "streams (%s): %s is %s", options_source(o, "streams"),
                s, again ? "there twice" : "no name of a stream, or one too many");
            return -1;
        }
        app->streams[app->n_streams++] = s;
    }
    if (app->n_streams > 0)
        return 0;
    snprintf(error->text, sizeof(error->text), "streams (%s): names no stream", options_source(o, "streams"));
    return -1;
}

static int check(struct options *o, struct config_error *error)
{
    struct counters *counters = NULL;
    struct app app = {0};
    if (!options_string(o, "data_dir")) {
        snprintf(error->text, sizeof(error->text), "data_dir is not set: slices need a place");
        return -1;
    }
    int result = read_streams(&app, o, error);
    if (result == 0 && !bytes_is_name(bytes_str(options_string(o, "cursor")))) {
        snprintf(error->text, sizeof(error->text), "cursor (%s): %s is no name", options_source(o, "cursor"),
            options_string(o, "cursor"));
        result = -1;
    }
    if (result == 0)
        result = read_counters(o, &counters, error);
    if (counters)
        counters_free(&counters);
    free(app.stream_names);
    return result;
}

/* ---- life ---- */

static void free_event(struct event **e)
{
    if (*e)
        event_free(*e);
    *e = NULL;
}

static void stop(void *ctx)
{
    struct wiring *w = ctx;
    struct app *app = &w->app;
    for (size_t i = 0; i < app->n_streams; i++)
        follower_free(&app->followers[i]);
    if (w->client)
        http_client_free(&w->client);
    cursor_keeper_free(&w->keeper);
    stats_remove_gauges(daemon_stats(app->daemon), app);
    free_event(&w->tick);
    free_event(&w->poll);
    aggregate_close(&app->aggregate);
    if (w->notify)
        loop_notify_free(&w->notify);
    completeness_free(&app->completeness);
    if (app->counters)
        counters_free(&app->counters);
    free(app->stream_names);
    free(w);
}

static int open_aggregate(struct wiring *w, const struct options *o, struct config_error *error)
{
    struct app *app = &w->app;
    char text[SLICE_ERROR_TEXT];
    struct aggregate_config c = {.dir = options_string(o, "data_dir"),
        .archive = options_string(o, "archive"),
        .counters = app->counters,
        .streams = app->streams,
        .n_streams = app->n_streams,
        .flush_interval = options_int(o, "flush_interval") * USEC_PER_MSEC,
        .max_memory = (size_t)options_int(o, "max_memory"),
        .notify = loop_notify_wake,
        .notify_arg = w->notify};
    if (daemon_own_directory(c.dir, error) != 0)
        return EX_CONFIG;
    enum slice_result r = aggregate_open(&c, clock_wall(), &app->aggregate, text);
    if (r == SLICE_OK)
        return 0;
    snprintf(error->text, sizeof(error->text), "%s: %.440s", slice_strerror(r), text);
    return r == SLICE_FULL ? EX_TEMPFAIL : EX_CONFIG;
}

static int open_client(struct wiring *w, struct options *o, struct config_error *error)
{
    const char *url = options_string(o, "pubsub_url");
    url = url ? url : options_peer_url(o, "pubsub", 8081);
    struct http_client_config c = {
        .base = daemon_base(w->app.daemon), .url = url, .max_connections = (int)w->app.n_streams + 2};
    w->client = http_client_new(&c);
    if (w->client)
        return 0;
    snprintf(error->text, sizeof(error->text), "pubsub_url: %s is no address", url);
    return EX_CONFIG;
}

static struct event *every(struct wiring *w, usec_t interval, event_callback_fn fn)
{
    struct timeval tv = {(time_t)(interval / USEC_PER_SEC), (suseconds_t)(interval % USEC_PER_SEC)};
    struct event *e = event_new(daemon_base(w->app.daemon), -1, EV_PERSIST, fn, w);
    evtimer_add(e, &tv);
    return e;
}

static void begin(struct wiring *w, const struct options *o)
{
    struct app *app = &w->app;
    usec_t tick = options_int(o, "flush_interval") * USEC_PER_MSEC / TICKS_A_FLUSH;
    tick = tick > TICK_MOST ? TICK_MOST : tick < TICK_LEAST ? TICK_LEAST : tick;
    say_not_ready(w, "catching up with the streams");
    w->keeper = cursor_keeper_new(w->client, app->aggregate, app->n_streams, options_string(o, "cursor"));
    w->tick = every(w, tick, on_tick);
    w->poll = every(w, POLL_SECONDS * USEC_PER_SEC, on_poll);
    on_poll(-1, 0, w);
    for (size_t i = 0; i < app->n_streams; i++) {
        struct follower_config c = {.base = daemon_base(app->daemon),
            .client = w->client,
            .aggregate = app->aggregate,
            .stream = i,
            .max_line = (size_t)options_int(o, "max_line"),
            .changed = on_stream,
            .arg = w};
        app->followers[i] = follower_new(&c);
    }
}

static int open_parts(struct wiring *w, struct options *o, struct config_error *error)
{
    struct app *app = &w->app;
    if (read_streams(app, o, error) != 0 || read_counters(o, &app->counters, error) != 0)
        return EX_CONFIG;
    app->completeness = completeness_new(app->n_streams);
    int status = open_client(w, o, error);
    return status == 0 ? open_aggregate(w, o, error) : status;
}

static int start(struct daemon *d, void **ctx, struct config_error *error)
{
    struct wiring *w = mem_zalloc(sizeof(*w));
    w->app.daemon = d;
    w->app.max_answer = (size_t)options_int(daemon_options(d), "max_answer");
    w->notify = loop_notify_new(daemon_base(d), on_written, w);
    int status = open_parts(w, daemon_options(d), error);
    if (status != 0) {
        stop(w);
        return status;
    }
    aggregate_numbers(w->app.aggregate, &w->shown);
    register_metrics(w);
    begin(w, daemon_options(d));
    *ctx = w;
    return 0;
}

static void drain(void *ctx)
{
    struct wiring *w = ctx;
    for (size_t i = 0; i < w->app.n_streams; i++)
        follower_stop(w->app.followers[i]);
    check_drained(w);
}

int main(int argc, char **argv)
{
    static const struct daemon_spec spec = {
        .name = "aggregator",
        .summary = "counts the events of streams by the hour, exactly",
        .options = rows,
        .default_port = 8082,
        .routes = app_routes,
        .check = check,
        .start = start,
        .drain = drain,
        .stop = stop,
        .extra_stats = app_extra_stats,
    };
    return daemon_main(&spec, argc, argv);
}
