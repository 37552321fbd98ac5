/* aggregator: connects the streams' followers, the aggregate and the HTTP endpoints to the event loop. */
#include "aggregator/aggregator_app.h"
#include "aggregator/files/file_input.h"
#include "aggregator/files/recount.h"
#include "aggregator/minute_refill.h"
#include "aggregator/since.h"
#include "aggregator/slice_scrub.h"
#include "http/client/http_client.h"
#include "base/log.h"
#include "base/rfc3339.h"
#include "daemon/daemon_directory.h"
#include "daemon/loop_notify.h"
#include "stream/cursor_keeper.h"
#include "stream/stream_program.h"
#include "config/peers.h"
#include "daemon/loop_timer.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sysexits.h>

#define PIECE ((size_t)128 << 10) /* bytes of a stream that the loop counts per turn */
/* From this age of complete_until (seconds) on, /health names the producer that holds completeness back. */
#define COMPLETE_AGE_MAX 120.0

#define TICKS_A_FLUSH 4
#define TICK_MAX (250 * USEC_PER_MSEC)
#define TICK_MIN (5 * USEC_PER_MSEC)

struct wiring {
    struct app app;
    struct loop_notify *notify;
    struct http_client *client;
    struct cursor_keeper *keeper;
    struct minute_refill *refill;
    struct slice_scrub *scrub; /* NULL: sealed slices are not re-read */
    char cursor_key[RANDOM_ID_SIZE];
    usec_t log_lines_at; /* rejected lines are not logged again before this time */
    struct loop_timer *tick, *keep;
    bool drained;
    /* Recovery runs in a thread of its own. During recovery the daemon answers that it is not ready. */
    struct aggregate_config config;
    pthread_t thread;
    bool is_opening;       /* the thread was started and is not joined yet */
    atomic_bool recovered; /* the thread has set the members below */
    struct aggregate *aggregate;
    struct error error; /* set if `aggregate` is NULL */
    /* The totals on /metrics count from the start of the process and never decrease. */
    struct aggregate_numbers shown;
    struct stats_counter *events, *skipped, *rejected, *rows, *collisions, *holes;
    struct stats_histogram *flush_seconds;
    struct stats_counter **over_max_keys; /* NULL: the counter is not limited */
};
static_assert(offsetof(struct wiring, app) == 0, "handlers receive the address of `app`");

static void update_metrics(struct wiring *w)
{
    struct aggregate_numbers n;
    aggregate_numbers(w->app.aggregate, &n);
    stats_add(w->events, n.counted.events - w->shown.counted.events);
    stats_add(w->skipped, n.counted.skipped - w->shown.counted.skipped);
    stats_add(w->rejected, n.counted.rejected - w->shown.counted.rejected);
    stats_add(w->rows, n.rows_flushed - w->shown.rows_flushed);
    stats_add(w->collisions, n.collisions - w->shown.collisions);
    stats_add(w->holes, n.holes - w->shown.holes);
    if (n.flushes != w->shown.flushes)
        stats_observe(w->flush_seconds, n.last_flush);
    for (size_t i = 0; i < w->app.counters->n_totals + w->app.counters->n_subtotals; i++)
        if (w->over_max_keys[i])
            stats_add(w->over_max_keys[i],
                aggregate_over_max_keys(w->app.aggregate, i) - stats_read(w->over_max_keys[i]));
    w->shown = n;
}

static double lag_bytes(void *ctx)
{
    struct app *app = ctx;
    uint64_t lag = 0;
    for (size_t i = 0; i < app->streams.n; i++)
        lag += count_watermark_lag(app->watermark, i);
    return (double)lag;
}

static double memory_bytes(void *ctx)
{
    struct aggregate_numbers n;
    aggregate_numbers(((struct app *)ctx)->aggregate, &n);
    return (double)n.memory;
}

STATS_READ(sealed_slices, aggregate_sealed(((struct app *)ctx)->aggregate)->n)
STATS_READ(complete_until, count_watermark_until(((struct app *)ctx)->watermark))
STATS_READ(quarters_since, aggregate_quarters_since(((struct app *)ctx)->aggregate))

/* Returns the age of `time`, or the time since counting began if `time` is unknown. */
static double age_of(const struct app *app, int64_t time)
{
    double age =
        (double)(daemon_trusted_time(app->daemon) - (time ? time * USEC_PER_SEC : app->began)) / USEC_PER_SEC;
    return age > 0 ? age : 0;
}

static double newest_event_age(void *ctx)
{
    struct aggregate_numbers n;
    aggregate_numbers(((struct app *)ctx)->aggregate, &n);
    return age_of(ctx, n.newest_event);
}

STATS_READ(complete_age, age_of(ctx, count_watermark_until(((struct app *)ctx)->watermark)))
STATS_READ(minutes_bytes, minute_ring_bytes(((struct app *)ctx)->minutes))

static void register_metrics(struct wiring *w)
{
    struct app *app = &w->app;
    struct stats *s = daemon_stats(app->daemon);
    aggregate_numbers(app->aggregate, &w->shown);
    w->events =
        stats_counter(s, "events_counted_total", NULL, "events counted since the start of the process");
    w->skipped = stats_counter(s, "lines_skipped_total", NULL, "lines skipped because of skip_if");
    w->rejected = stats_counter(s, "lines_rejected_total", NULL, "lines written to the rejects file");
    w->rows = stats_counter(s, "rows_flushed_total", NULL, "rows written to the slice");
    w->collisions =
        stats_counter(s, "lookup_collisions_total", NULL, "lookups in which two texts have the same hash");
    w->holes = stats_counter(s, "holes_crossed_total", NULL, "holes crossed in streams");
    w->flush_seconds = stats_histogram(
        s, "flush_seconds", NULL, "time from the swap of a batch to its committed transaction");
    const struct counters *c = app->counters;
    w->over_max_keys = mem_zalloc((c->n_totals + c->n_subtotals) * sizeof *w->over_max_keys);
    for (size_t i = 0; i < c->n_totals + c->n_subtotals; i++) {
        char label[64];
        snprintf(label, sizeof label, "counter=\"%s\"", counters_at(c, i)->ns);
        if (counters_at(c, i)->max_keys > 0)
            w->over_max_keys[i] = stats_counter(s, "over_max_keys_total", label,
                "events counted as (other) because of the counter's max_keys");
    }
    stats_gauge(
        s, "lag_bytes", NULL, "bytes published but not counted, as of the latest poll", lag_bytes, app);
    stats_gauge(s, "unwritten_bytes", NULL, "memory of counts not yet in the slice", memory_bytes, app);
    if (app->minutes)
        stats_gauge(s, "minutes_bytes", NULL, "memory of the counts by minute", minutes_bytes, app);
    stats_gauge(s, "sealed_slices", NULL, "sealed slices not yet cleared", sealed_slices, app);
    stats_gauge(s, "complete_until_seconds", NULL, "every event accepted before this time is counted",
        complete_until, app);
    stats_gauge(s, "quarters_since_seconds", NULL,
        "start of the counts by quarter hour; 0: all counts are by hour", quarters_since, app);
    stats_gauge(s, "complete_age_seconds", NULL,
        "age of complete_until_seconds; before complete_until is known, time since counting began",
        complete_age, app);
    stats_gauge(s, "newest_event_age_seconds", NULL,
        "age of the latest event counted; before the first event, time since counting began",
        newest_event_age, app);
}

static void health_set_not_ready(
    struct app *app, enum notice_state state, const char *remedy, const char *text)
{
    if (strcmp(app->health, text) == 0)
        return;
    snprintf(app->health, sizeof app->health, "%.*s", (int)sizeof app->health - 1, text);
    daemon_set_not_ready(app->daemon, state, remedy, app->health);
}

/* Reports the first stream that was refused. Until all streams have caught up once, otherwise reports a stream that
 * has not caught up. */
static bool report_streams(struct app *app)
{
    char text[512];
    for (size_t i = 0; i < app->streams.n; i++) {
        bool refused;
        const char *trouble = follower_trouble(app->followers[i], &refused);
        bool is_behind = !app->answers && !follower_is_caught_up(app->followers[i]);
        if (!refused && !is_behind)
            continue;
        snprintf(text, sizeof text, "%s stream %s%s%s", refused ? "refusing" : "catching up with",
            app->streams.names[i], trouble ? ": " : "", trouble ? trouble : "");
        health_set_not_ready(app, refused ? NOTICE_REFUSING : NOTICE_RECOVERING,
            refused   ? "do what the reason says; see millrace help recovery"
            : trouble ? PEER_REMEDY
                      : DAEMON_WAIT,
            text);
        return true;
    }
    return false;
}

static void on_reject(const struct rejects_entry *entry, void *arg)
{
    line_watch_reject(((struct wiring *)arg)->app.watch, entry);
}

/* Appends the configured fields that no event has, and a NUL that the length does not include. */
static void append_absent_fields(const struct aggregate *a, struct buf *out)
{
    const char *field;
    for (size_t i = 0; (field = aggregate_absent_field(a, i)); i++)
        buf_printf(out, "%s%s", i ? ", " : "", field);
}

/* If lines from the future were rejected, appends this host's clock and a sender's time, because either clock may be
 * wrong. Returns the remedy for the rejected lines. */
static const char *append_clocks(const struct app *app, struct buf *out)
{
    char here[RFC3339_TEXT], there[RFC3339_TEXT];
    const struct line_watch_reason *r;
    size_t i = 0;
    while ((r = line_watch_reason(app->watch, i)) && !strstr(r->text, "in the future"))
        i++;
    if (!r || aggregate_time_beyond(app->aggregate) <= 0)
        return "correct [input] or the sender; then millrace rejects --put-back";
    buf_printf(out, "; this host's clock says %s; events say %s",
        rfc3339_write(clock_wall() / USEC_PER_SEC, here),
        rfc3339_write(aggregate_time_beyond(app->aggregate), there));
    return "if this host's clock is wrong: timedatectl set-ntp true, then millrace rejects --put-back; else "
           "correct the sender";
}

/* Shows on /health the producer STREAM/PRODUCER that holds completeness back. */
static void report_held(struct app *app)
{
    const char *held_by = count_watermark_held_by(app->watermark), *slash = strchr(held_by, '/');
    bool is_held = slash && complete_age(app) >= COMPLETE_AGE_MAX;
    char *options = daemon_tool_options(app->daemon, peer_url(daemon_options(app->daemon), "pubsub"));
    char *remedy =
        mem_printf("start that producer's host, or exclude the producer: millrace producers --leave-out=%s "
                   "--stream=%.*s%s; see millrace help counting",
            slash ? slash + 1 : "", slash ? (int)(slash - held_by) : 0, held_by, options);
    free(options);
    char *text = is_held ? mem_printf("producer %s holds completeness back", held_by) : NULL;
    daemon_set_notice(app->daemon, "held", NOTICE_WARNING, remedy, text);
    free(remedy);
    free(text);
}

/* Shows on /health the rejected lines once they are half of all lines, and absent fields. Logs both once per minute. */
static void report_lines(struct wiring *w)
{
    struct app *app = &w->app;
    usec_t now = clock_monotonic();
    app_watch_lines(app);
    struct slice_tally sum = line_watch_sum(app->watch);
    struct buf rejects = {0}, absent = {0};
    line_watch_describe(app->watch, &rejects);
    const char *remedy = append_clocks(app, &rejects);
    append_absent_fields(app->aggregate, &absent);
    bool are_most = rejects.len > 0 && sum.rejected >= sum.events;
    char *fields = absent.len > 0
                       ? mem_printf("no event of %d has the configured field %s", COUNTERS_SAMPLE, absent.ptr)
                       : NULL;
    daemon_set_notice(app->daemon, "rejects", NOTICE_WARNING, remedy, are_most ? rejects.ptr : NULL);
    daemon_set_notice(app->daemon, "fields", NOTICE_WARNING,
        "correct the field's name in the configuration, or the sender; or name the field in `optional` of "
        "[input]",
        fields);
    free(fields);
    report_held(app);
    if (now >= w->log_lines_at && (rejects.len > 0 || absent.len > 0)) {
        if (rejects.len > 0)
            log_warn("lines are rejected", LOG_S("summary", rejects.ptr));
        if (absent.len > 0)
            log_warn("no event has a configured field", LOG_S("field", absent.ptr),
                LOG_I("events", COUNTERS_SAMPLE));
        w->log_lines_at = now + LINE_WATCH_SECONDS * USEC_PER_SEC;
    }
    buf_free(&rejects);
    buf_free(&absent);
}

/* Reports that the aggregator is not ready if its storage fails, a stream is refused, or a stream has not caught up
 * since the start. */
static void health_update(struct app *app)
{
    bool caught_up = true;
    for (size_t i = 0; i < app->streams.n; i++)
        caught_up = caught_up && follower_is_caught_up(app->followers[i]);
    app->answers = app->answers || caught_up;
    const struct error *failure = aggregate_failure(app->aggregate);
    if (failure) {
        bool passes = failure->code == SLICE_FULL;
        health_set_not_ready(app, passes ? NOTICE_REFUSING : NOTICE_FAILING,
            passes ? DAEMON_FREE_DISK : DAEMON_REPAIR_DISK, failure->text);
    } else if (!report_streams(app)) {
        if (app->health[0] || !daemon_is_ready(app->daemon))
            daemon_set_ready(app->daemon);
        app->health[0] = '\0';
    }
    /* With --daemon, the parent process exits even if a stream has a problem, because the daemon retries the stream in
     * the background. */
    for (size_t i = 0; i < app->streams.n; i++)
        if (follower_trouble(app->followers[i], NULL))
            daemon_notify_parent();
}

/* Ends the process if it drains and all counts are committed. Before recovery is complete, there are no counts. */
static void check_drained(struct wiring *w)
{
    struct app *app = &w->app;
    if (w->drained || !daemon_is_draining(app->daemon))
        return;
    if (app->aggregate) {
        aggregate_flush(app->aggregate, clock_monotonic());
        const struct error *failure = aggregate_failure(app->aggregate);
        if ((!failure || failure->code == SLICE_FULL) && !aggregate_is_clean(app->aggregate))
            return;
    }
    w->drained = true;
    daemon_drained(app->daemon);
}

static void after_change(struct wiring *w)
{
    for (size_t i = 0; i < w->app.streams.n; i++)
        follower_resume(w->app.followers[i]);
    health_update(&w->app);
    update_metrics(w);
    check_drained(w);
}

static void on_tick(void *arg)
{
    struct wiring *w = arg;
    aggregate_tick(w->app.aggregate, clock_monotonic());
    app_watch_lines(&w->app);
    if (w->refill)
        minute_refill_tick(w->refill);
    after_change(w);
}

static void on_keep(void *arg)
{
    struct wiring *w = arg;
    cursor_keeper_tick(w->keeper);
    slice_scrub_tick(w->scrub);
    report_lines(w);
}

/* Moves the cursor at pubsub as soon as a stream begins, so that retention does not delete uncounted lines. */
static void on_stream(void *arg)
{
    struct wiring *w = arg;
    health_update(&w->app);
    cursor_keeper_tick(w->keeper);
}

static void *recover(void *arg)
{
    struct wiring *w = arg;
    aggregate_open(&w->config, clock_wall(), &w->aggregate, &w->error);
    atomic_store(&w->recovered, true);
    loop_notify_wake(w->notify);
    return NULL;
}

static void join_recovery(struct wiring *w)
{
    pthread_join(w->thread, NULL);
    w->is_opening = false;
    w->app.aggregate = w->aggregate;
}

static struct kept_position committed_position(void *arg, size_t stream)
{
    const struct app *app = arg;
    const struct slice_cursor *c = aggregate_committed(app->aggregate, stream);
    return (struct kept_position){.stream = c->stream,
        .id = c->id,
        .offset = c->offset,
        .place = follower_place(app->followers[stream])};
}

static void begin_counting(struct wiring *w)
{
    struct app *app = &w->app;
    const struct options *o = daemon_options(app->daemon);
    usec_t tick = w->config.flush_interval / TICKS_A_FLUSH;
    app->began = daemon_trusted_time(app->daemon);
    register_metrics(w);
    since_read(app->aggregate, w->config.archive, app->counters, &app->since);
    app->watermark = count_watermark_new(app->aggregate, app->streams.names, app->streams.n);
    health_set_not_ready(app, NOTICE_RECOVERING, DAEMON_WAIT, "catching up with the streams");
    w->keeper = cursor_keeper_new(&(struct cursor_keeper_config){.client = w->client,
        .name = options_string(o, "cursor"),
        .key = w->cursor_key,
        .n_streams = app->streams.n,
        .position = committed_position,
        .arg = app});
    if (app->minutes)
        w->refill = minute_refill_new(&(struct minute_refill_config){.base = daemon_base(app->daemon),
            .client = w->client,
            .aggregate = app->aggregate,
            .ring = app->minutes,
            .n_streams = app->streams.n,
            .max_line = (size_t)options_int(o, "max_line"),
            .now = app->began / USEC_PER_SEC});
    for (size_t i = 0; i < app->streams.n; i++)
        app->followers[i] = follower_new(&(struct follower_config){.daemon = app->daemon,
            .client = w->client,
            .aggregate = app->aggregate,
            .watermark = app->watermark,
            .stream = i,
            .max_line = (size_t)options_int(o, "max_line"),
            .changed = on_stream,
            .arg = w});
    w->tick = loop_timer_every(daemon_base(w->app.daemon),
        tick > TICK_MAX   ? TICK_MAX
        : tick < TICK_MIN ? TICK_MIN
                          : tick,
        on_tick, w);
    w->keep = loop_timer_every(daemon_base(w->app.daemon), USEC_PER_SEC, on_keep, w);
    w->scrub = slice_scrub_new(app);
}

/* Runs when recovery is complete, the storage thread has completed a job, or a large read is complete. */
static void on_notify(void *arg)
{
    struct wiring *w = arg;
    struct daemon *d = w->app.daemon;
    if (w->is_opening && atomic_load(&w->recovered)) {
        join_recovery(w);
        if (!w->aggregate) {
            daemon_give_up(d, w->error.code == SLICE_FULL ? EX_TEMPFAIL : EX_CONFIG, "cannot open the slices",
                w->error.code == SLICE_DIFFERENT ? "correct the configuration as the reason says" : "",
                w->error.text);
        } else if (!daemon_is_draining(d)) {
            begin_counting(w);
        }
    } else if (w->tick) {
        http_reads_finish(&w->app);
        aggregate_poll(w->app.aggregate, clock_monotonic());
        app_answer_waiters(&w->app);
        /* Large reads begin before aggregate_tick, because a merge would delay the flush that a read may need. */
        http_reads_next(&w->app);
        aggregate_tick(w->app.aggregate, clock_monotonic());
        after_change(w);
    }
}

static void stop(void *ctx)
{
    struct wiring *w = ctx;
    struct app *app = &w->app;
    if (w->is_opening)
        join_recovery(w);
    for (size_t i = 0; i < app->streams.n; i++)
        follower_free(&app->followers[i]);
    if (w->refill)
        minute_refill_stop(w->refill);
    if (w->client)
        http_client_free(&w->client);
    minute_refill_free(&w->refill);
    cursor_keeper_free(&w->keeper);
    stats_remove_gauges(daemon_stats(app->daemon), app);
    loop_timer_free(&w->tick);
    loop_timer_free(&w->keep);
    count_watermark_free(&app->watermark);
    http_reads_stop(&app->reads);
    slice_scrub_free(&w->scrub);
    aggregate_close(&app->aggregate);
    minute_ring_free(&app->minutes);
    line_watch_free(&app->watch);
    loop_notify_free(&w->notify);
    free(w->over_max_keys);
    if (app->counters)
        counters_free(&app->counters);
    counted_since_free(&app->since);
    stream_names_free(&app->streams);
    free(w);
}

static int open_parts(struct wiring *w, struct options *o, struct error *error)
{
    struct app *app = &w->app;
    if (settings_read_streams(o, &app->streams, error) != 0 ||
        settings_read_counters(o, &app->counters, error) != 0)
        return EX_CONFIG;
    w->client = daemon_client_new(app->daemon, options_text(o, "pubsub_token_file"),
        &(struct http_client_config){
            .url = peer_url(o, "pubsub"), .max_connections = (int)app->streams.n + 3, .read_size = PIECE},
        error);
    if (!w->client)
        return EX_CONFIG;
    if (options_int(o, "minutes_memory") > 0)
        app->minutes = minute_ring_new((size_t)options_int(o, "minutes_memory"));
    w->config = (struct aggregate_config){.dir = options_string(o, "data_dir"),
        .archive = options_string(o, "archive"),
        .counters = app->counters,
        .streams = app->streams.names,
        .n_streams = app->streams.n,
        .flush_interval = options_int(o, "flush_interval") * USEC_PER_MSEC,
        .max_memory = (size_t)options_int(o, "max_memory"),
        .lateness = stats_delay_histogram(daemon_stats(app->daemon), "event_lateness_seconds", NULL,
            "time from an event's own time until it is counted"),
        .minutes = app->minutes,
        .max_inputs = 1, /* the input for rejects that were put back */
        .rejects_limits = settings_rejects_limits(o),
        .notify = loop_notify_wake,
        .notify_arg = w->notify,
        .on_reject = on_reject,
        .reject_arg = w};
    if (daemon_lock_directory(w->config.dir, error) != 0 ||
        cursor_key_read(w->config.dir, w->cursor_key, error) != 0)
        return daemon_start_status(errno);
    health_set_not_ready(app, NOTICE_RECOVERING, DAEMON_WAIT, "opening the slices");
    if (http_reads_start(&app->reads, loop_notify_wake, w->notify) == 0)
        w->is_opening = pthread_create(&w->thread, NULL, recover, w) == 0;
    if (w->is_opening)
        return 0;
    return error_set(error, EX_TEMPFAIL, "cannot start a thread");
}

static int start(struct daemon *d, void **ctx, struct error *error)
{
    struct wiring *w = mem_zalloc(sizeof *w);
    w->app.daemon = d;
    w->app.watch = line_watch_new(clock_monotonic());
    w->app.max_answer = (size_t)options_int(daemon_options(d), "max_answer");
    w->notify = loop_notify_new(daemon_base(d), on_notify, w);
    int status = open_parts(w, daemon_options(d), error);
    if (status != 0) {
        stop(w);
        return status;
    }
    *ctx = w;
    return 0;
}

static void drain(void *ctx)
{
    struct wiring *w = ctx;
    for (size_t i = 0; i < w->app.streams.n; i++)
        if (w->app.followers[i])
            follower_stop(w->app.followers[i]);
    if (w->refill)
        minute_refill_stop(w->refill);
    if (w->app.aggregate)
        aggregate_keep_untils(w->app.aggregate);
    check_drained(w);
}

static bool count_and_exit(struct options *o, int *status)
{
    return file_input_run(o, status) || recount_run(o, status);
}

int main(int argc, char **argv)
{
    static const struct daemon_spec spec = {
        .name = "aggregator",
        .summary = "counts the events of streams by the hour, exactly",
        .operands = "[--input FILE...]",
        .options = settings_rows,
        .sections = "input",
        .default_port = PORT_AGGREGATOR,
        .routes = app_routes,
        .check = settings_check,
        .instead = count_and_exit,
        .start = start,
        .drain = drain,
        .stop = stop,
        .extra_stats = app_extra_stats,
    };
    return daemon_main(&spec, argc, argv);
}
