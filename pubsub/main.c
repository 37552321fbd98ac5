#include "app.h"
#include "cursor_file.h"
#include "limits.h"
#include "log.h"
#include "loop_notify.h"
#include "nng_listen.h"
#include "peers.h"
#include "scrubber.h"
#include "tap.h"

#include <event2/event.h>
#include <pthread.h>
#include <stdlib.h>

#define TICK_MOST USEC_PER_SEC

/* The whole daemon. Recovery runs in a thread of its own and owns `streams` until recovery_over runs in the loop. */
struct pubsub {
    struct app app; /* first: it is the handlers' context */
    struct loop_notify *notify;
    struct limits *limits;
    struct event *tick;
    struct scrubber *scrubber;
    struct tap *tap;           /* NULL: none */
    struct tap_numbers tapped; /* as the counters have it */
    struct stats_counter *tap_messages, *tap_bytes, *tap_dropped, *tap_gaps;
    pthread_t recovery;
    bool recovery_started, recovery_joined;
    enum streams_result recovered;
    char error[512];
};

static const struct option_row option_rows[] = {
    {.name = "data_dir", .type = OPTION_STRING, .help = "where the streams are kept (required)"},
    {.name = "sync",
        .type = OPTION_SYNC,
        .fallback = "0",
        .max = 60000,
        .unit = "ms",
        .help = "sync each commit (0), at most every so many ms, or never"},
    {.name = "streams",
        .type = OPTION_STRING,
        .help = "streams to make at the start, separated by spaces or commas"},
    {.name = "auto_create", .type = OPTION_BOOL, .fallback = "true", .help = "a publish may make its stream"},
    {.name = "max_streams",
        .type = OPTION_INT,
        .fallback = "1024",
        .min = 1,
        .max = 65536,
        .help = "streams at most"},
    {.name = "max_producers",
        .type = OPTION_INT,
        .fallback = "4096",
        .min = 1,
        .max = 1000000,
        .help = "producers with a mark, a stream"},
    {.name = "max_line",
        .type = OPTION_SIZE,
        .fallback = "1M",
        .min = 1,
        .max = 16 << 20,
        .unit = "bytes",
        .help = "the longest line"},
    {.name = "segment_bytes",
        .type = OPTION_SIZE,
        .fallback = "64M",
        .min = 64 << 10,
        .max = INT64_C(16) << 30,
        .unit = "bytes",
        .help = "size of a stream's files"},
    {.name = "retain_bytes",
        .type = OPTION_SIZE,
        .fallback = "0",
        .min = 0,
        .max = INT64_C(1) << 50,
        .unit = "bytes",
        .help = "of a stream's files more is let go, the oldest first; 0: never"},
    {.name = "retain_age",
        .type = OPTION_DURATION,
        .fallback = "0",
        .min = 0,
        .max = INT64_C(100) * 365 * 86400 * 1000,
        .unit = "s",
        .help = "lines older than this are let go; 0: never"},
    {.name = "disk_limit",
        .type = OPTION_SIZE,
        .fallback = "0",
        .min = 0,
        .max = INT64_C(1) << 50,
        .unit = "bytes",
        .help = "with more files a stream takes no lines (503); 0: the disk's own limit"},
    {.name = "max_cursors",
        .type = OPTION_INT,
        .fallback = "256",
        .min = 1,
        .max = CURSOR_FILE_MOST,
        .help = "named cursors at most"},
    SCRUBBER_SETTING,
    {.name = "heartbeat",
        .type = OPTION_DURATION,
        .fallback = "15s",
        .min = 100,
        .max = 3600000,
        .unit = "s",
        .help = "an event stream with no lines for so long gets a comment"},
    {.name = TAP_SETTING,
        .type = OPTION_STRING,
        .help = "repeats streams on nng's PUB, a lossy live tap: ipc://PATH or tcp://ADDRESS:PORT, several "
                "separated by commas"},
    {.name = NULL},
};

/* The next name of the list, or BYTES_NONE at its end. */
static struct bytes next_name(const char **list)
{
    static const char separators[] = " ,\t";
    const char *p = *list + strspn(*list, separators);
    size_t len = strcspn(p, separators);
    *list = p + len;
    return len ? bytes_of(p, len) : BYTES_NONE;
}

static int check(struct options *o, struct config_error *error)
{
    const char *dir = options_string(o, "data_dir");
    if (!dir || !*dir) {
        snprintf(error->text, sizeof(error->text),
            "data_dir is not set: pubsub keeps its streams there (--data-dir=DIR)");
        return -1;
    }
    const char *list = options_string(o, "streams");
    for (struct bytes name; list && (name = next_name(&list)).len;) {
        if (bytes_is_name(name))
            continue;
        snprintf(error->text, sizeof(error->text), "%s: streams: \"%.*s\" is no name: [A-Za-z0-9_.-]{1,64}",
            options_source(o, "streams"), (int)name.len, name.ptr);
        return -1;
    }
    const char *urls = options_string(o, TAP_SETTING);
    bool token = options_string(o, "auth_token_file") != NULL;
    if (urls && nng_listen_check(TAP_SETTING, urls, token, error) != 0)
        return -1;
    struct limits *limits = NULL;
    int result = limits_read(o, option_rows, &limits, error);
    limits_free(&limits);
    return result;
}

/* ---- recovery ---- */

static enum streams_result make_named(struct pubsub *p)
{
    const char *list = options_string(daemon_options(p->app.daemon), "streams");
    enum streams_result r = STREAMS_OK;
    for (struct bytes name; r == STREAMS_OK && list && (name = next_name(&list)).len;) {
        struct stream *s;
        char *text = bytes_dup(name);
        r = streams_make(p->app.streams, text, &s, p->error, sizeof(p->error));
        if (r == STREAMS_TOO_MANY)
            snprintf(p->error, sizeof(p->error), "streams: %s would be one more than max_streams", text);
        free(text);
    }
    return r;
}

static void report_streams(struct pubsub *p)
{
    for (size_t i = 0; i < streams_count(p->app.streams); i++) {
        struct stream *s = streams_at(p->app.streams, i);
        struct journal *j = stream_journal(s);
        if (journal_cut_bytes(j))
            log_warn("cut the tail of a stream that was being written", LOG_S("stream", stream_name(s)),
                LOG_U("bytes", journal_cut_bytes(j)));
        log_info("stream recovered", LOG_S("stream", stream_name(s)), LOG_S("id", journal_id(j)),
            LOG_U("end", journal_committed_end(j)));
    }
    if (cursors_dropped(p->app.cursors))
        log_warn("cursors of streams that are gone, or others now, were dropped",
            LOG_U("cursors", cursors_dropped(p->app.cursors)));
}

static void join_recovery(struct pubsub *p)
{
    if (!p->recovery_started || p->recovery_joined)
        return;
    pthread_join(p->recovery, NULL);
    p->recovery_joined = true;
}

static void count_tapped(struct pubsub *p)
{
    struct tap_numbers now = tap_numbers(p->tap);
    stats_add(p->tap_messages, now.messages - p->tapped.messages);
    stats_add(p->tap_bytes, now.bytes - p->tapped.bytes);
    stats_add(p->tap_dropped, now.dropped - p->tapped.dropped);
    stats_add(p->tap_gaps, now.gaps - p->tapped.gaps);
    p->tapped = now;
}

static double tap_peers(void *ctx)
{
    return (double)tap_numbers(ctx).peers;
}

static bool open_tap(struct pubsub *p)
{
    struct stats *s = daemon_stats(p->app.daemon);
    struct config_error error;
    const char *urls = options_string(daemon_options(p->app.daemon), TAP_SETTING);
    if (!urls)
        return true;
    p->tap = tap_open(p->app.streams, urls, &error);
    if (!p->tap) {
        log_error("cannot publish over nng", LOG_S("error", error.text));
        return false;
    }
    p->tap_messages =
        stats_counter(s, "tap_messages_total", NULL, "Messages given to nng while it had peers");
    p->tap_bytes = stats_counter(s, "tap_bytes_total", NULL, "Bytes of lines in them");
    p->tap_dropped = stats_counter(
        s, "tap_dropped_total", NULL, "Messages that nng dropped for a peer that did not keep up, at least");
    p->tap_gaps =
        stats_counter(s, "tap_gaps_total", NULL, "Runs of lines that were gone before the tap had read them");
    stats_gauge(s, "tap_peers", NULL, "Connections to the nng tap", tap_peers, p->tap);
    return true;
}

static void on_tick(evutil_socket_t fd, short what, void *arg)
{
    struct pubsub *p = arg;
    (void)fd;
    (void)what;
    app_retain(&p->app);
    cursors_tick(p->app.cursors);
    app_heartbeats(&p->app);
    if (p->tap) {
        tap_tick(p->tap);
        count_tapped(p);
    }
}

/* Half a heartbeat, so that none is more than half too late; but at most TICK_MOST. */
static void start_tick(struct pubsub *p)
{
    usec_t interval = p->app.heartbeat / 2 < TICK_MOST ? p->app.heartbeat / 2 : TICK_MOST;
    struct timeval tv = {(time_t)(interval / USEC_PER_SEC), (suseconds_t)(interval % USEC_PER_SEC)};
    p->tick = event_new(daemon_base(p->app.daemon), -1, EV_PERSIST, on_tick, p);
    evtimer_add(p->tick, &tv);
    on_tick(-1, 0, p);
}

static void recovery_over(void *arg)
{
    struct pubsub *p = arg;
    join_recovery(p);
    if (p->recovered != STREAMS_OK) {
        log_error("cannot recover the streams", LOG_S("error", p->error));
        daemon_fail(p->app.daemon, 78);
        return;
    }
    if (!open_tap(p)) {
        daemon_fail(p->app.daemon, 78);
        return;
    }
    p->app.recovered = true;
    report_streams(p);
    cursors_tell_all(p->app.cursors);
    start_tick(p);
    p->scrubber = scrubber_start(p->app.daemon, streams_set(p->app.streams));
    journal_set_poll(streams_set(p->app.streams));
    if (!p->app.draining)
        daemon_set_ready(p->app.daemon);
}

static enum streams_result open_cursors(struct pubsub *p)
{
    struct options *o = daemon_options(p->app.daemon);
    struct cursors_config config = {
        .streams = p->app.streams,
        .dir = options_string(o, "data_dir"),
        .most = (size_t)options_int(o, "max_cursors"),
        .notify = loop_notify_wake,
        .notify_arg = p->notify,
        .came = app_cursor_came,
        .goes = app_cursor_goes,
        .arg = &p->app,
    };
    return cursors_open(&config, &p->app.cursors, p->error, sizeof(p->error)) ? STREAMS_OK : STREAMS_STORAGE;
}

static void *recover(void *arg)
{
    struct pubsub *p = arg;
    p->recovered = streams_recover(p->app.streams, p->error, sizeof(p->error));
    if (p->recovered == STREAMS_OK)
        p->recovered = make_named(p);
    if (p->recovered == STREAMS_OK)
        p->recovered = open_cursors(p);
    daemon_post(p->app.daemon, recovery_over, p);
    return NULL;
}

/* ---- life ---- */

static void poll_journals(void *arg)
{
    struct pubsub *p = arg;
    if (!p->app.recovered)
        return;
    journal_set_poll(streams_set(p->app.streams));
    cursors_poll(p->app.cursors);
}

static struct streams *new_streams(struct pubsub *p, const struct options *o)
{
    struct streams_config config = {
        .dir = options_string(o, "data_dir"),
        .auto_create = options_bool(o, "auto_create"),
        .max_streams = (size_t)options_int(o, "max_streams"),
        .max_producers = (size_t)options_int(o, "max_producers"),
        .segment_bytes = (uint64_t)options_int(o, "segment_bytes"),
        .limits = limits_of,
        .limits_arg = p->limits,
        .set = {.sync_ms = options_sync(o, "sync"), .notify = loop_notify_this_turn, .notify_arg = p->notify},
    };
    return streams_new(&config);
}

static int start(struct daemon *d, void **ctx, struct config_error *error)
{
    struct options *o = daemon_options(d);
    if (daemon_own_directory(options_string(o, "data_dir"), error) != 0)
        return 78;
    struct pubsub *p = mem_zalloc(sizeof(*p));
    *ctx = p;
    p->app.daemon = d;
    p->app.max_line = (size_t)options_int(o, "max_line");
    p->app.heartbeat = options_int(o, "heartbeat") * USEC_PER_MSEC;
    if (limits_read(o, option_rows, &p->limits, error) != 0)
        return 78;
    p->notify = loop_notify_new(daemon_base(d), poll_journals, p);
    p->app.streams = new_streams(p, o);
    app_register_stats(&p->app);
    daemon_set_not_ready(d, "recovering the streams");
    if (pthread_create(&p->recovery, NULL, recover, p) != 0) {
        snprintf(error->text, sizeof(error->text), "cannot start a thread");
        return 75;
    }
    p->recovery_started = true;
    return 0;
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
    struct pubsub *p = ctx;
    if (!p)
        return;
    join_recovery(p);
    p->app.drained = true; /* the loop has ended: nobody is to be told */
    if (p->tick)
        event_free(p->tick);
    if (p->tap)
        stats_remove_gauges(daemon_stats(p->app.daemon), p->tap);
    tap_close(&p->tap);
    scrubber_stop(&p->scrubber);
    cursors_close(&p->app.cursors);
    streams_free(&p->app.streams);
    limits_free(&p->limits);
    loop_notify_free(&p->notify);
    if (p->app.drain_limit)
        event_free(p->app.drain_limit);
    free(p);
}

int main(int argc, char **argv)
{
    static const struct daemon_spec spec = {
        .name = "pubsub",
        .summary = "named streams of lines: published once, read by anyone from any point",
        .options = option_rows,
        .default_port = PORT_PUBSUB,
        .routes = app_routes,
        .check = check,
        .start = start,
        .drain = drain,
        .stop = stop,
        .extra_stats = app_extra_stats,
        .stats_headers = app_stats_headers,
        .reset_stats = app_reset_stats,
    };
    return daemon_main(&spec, argc, argv);
}
