/* simplequeue: wires the queues to the event loop and to HTTP. */
#include "app.h"
#include "clock.h"
#include "log.h"
#include "loop_notify.h"
#include "nng_ingest.h"
#include "peers.h"
#include "scrubber.h"

#include <errno.h>
#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>

static const struct option_row rows[] = {
    {.name = "data_dir",
        .type = OPTION_STRING,
        .help = "where queues are kept; without it they are in memory only"},
    {.name = "restored",
        .type = OPTION_BOOL,
        .flags = OPTION_COMMAND_LINE,
        .fallback = "false",
        .help = "data_dir is a copy, made to be used beside or instead of its original: give its queues new "
                "ids, and "
                "exit"},
    {.name = "sync",
        .type = OPTION_SYNC,
        .fallback = "0",
        .unit = "ms",
        .help = "sync before the reply: 0 each commit, N at most once in so many ms, never"},
    {.name = "segment_bytes",
        .type = OPTION_SIZE,
        .fallback = "64M",
        .min = 1 << 16,
        .max = INT64_C(1) << 32,
        .unit = "bytes",
        .help = "size of a journal's segment files"},
    SCRUBBER_SETTING,
    {.name = "max_depth",
        .type = OPTION_INT,
        .fallback = "0",
        .max = INT64_MAX,
        .help = "messages in a queue; 0: no bound"},
    {.name = "max_bytes",
        .type = OPTION_SIZE,
        .fallback = "0",
        .max = INT64_MAX,
        .unit = "bytes",
        .help = "bytes of messages in a queue; 0: no bound"},
    {.name = "max_memory",
        .type = OPTION_SIZE,
        .fallback = "1G",
        .max = INT64_MAX,
        .unit = "bytes",
        .help = "what messages of all queues take of memory; with a data directory the rest is on disk only; "
                "0: no bound"},
    {.name = "when_full",
        .type = OPTION_CHOICE,
        .choices = "reject|overflow",
        .help =
            "what a put to a full queue does: is refused, or moves the oldest messages to the overflow log; "
            "overflow when that is set"},
    {.name = "overflow_log",
        .type = OPTION_STRING,
        .min = 1,
        .max = 3000,
        .help = "file for messages beyond max_depth, max_bytes or max_memory; of queue NAME FILE.NAME"},
    {.name = "nng_listen",
        .type = OPTION_STRING,
        .help = "where batches are taken over nng's REQ/REP: ipc://PATH or tcp://ADDRESS:PORT, several "
                "separated by "
                "commas"},
    {.name = "max_message",
        .type = OPTION_SIZE,
        .fallback = "1M",
        .min = 1,
        .max = 16 << 20,
        .unit = "bytes",
        .help = "bytes of one message"},
    {.name = "max_mget",
        .type = OPTION_INT,
        .fallback = "10000",
        .max = 1000000,
        .help = "messages in one reply; 0: as many as a reply of 16M holds"},
    {.name = "max_queues",
        .type = OPTION_INT,
        .fallback = "1000",
        .min = 1,
        .max = 100000,
        .help = "named queues"},
    {.name = "mget_item_sep",
        .type = OPTION_STRING,
        .min = 1,
        .max = 64,
        .help = "separator between messages in mget; a newline unless given"},
    {.name = "mput_item_sep",
        .type = OPTION_STRING,
        .min = 1,
        .max = 64,
        .help = "separator between messages in mput; a newline unless given"},
    {0},
};

struct wiring {
    struct app app; /* first: handlers get it as their ctx */
    struct loop_notify *notify;
    struct event *timer;
    struct scrubber *scrubber;
    usec_t armed;              /* when the timer fires; INT64_MAX: it does not */
    struct nng_ingest *ingest; /* NULL: no nng */
    bool ready, failed;
};

struct queue_now app_now(void)
{
    return (struct queue_now){clock_monotonic(), clock_wall()};
}

/* ---- the one timer ---- */

static struct wiring *wiring_of(struct app *app)
{
    return app->loop;
}

void app_arm(struct app *app)
{
    struct wiring *w = wiring_of(app);
    usec_t first = INT64_MAX, other;
    if (queues_next_deadline(app->queues, &other))
        first = other;
    if (waiting_next_deadline(app, &other) && other < first)
        first = other;
    if (first >= w->armed)
        return;
    w->armed = first;
    usec_t left = first - clock_monotonic();
    left = left > 0 ? left : 0;
    struct timeval tv = {(time_t)(left / USEC_PER_SEC), (suseconds_t)(left % USEC_PER_SEC)};
    evtimer_add(w->timer, &tv);
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
    struct wiring *w = arg;
    struct queue_now now = app_now();
    (void)fd;
    (void)what;
    w->armed = INT64_MAX;
    queues_tick(w->app.queues, now);
    waiting_tick(&w->app, now.monotonic);
    app_arm(&w->app);
}

/* ---- readiness ---- */

/* Failed storage makes the daemon unhealthy, but it goes on serving what it has. */
static void watch_storage(struct wiring *w)
{
    const char *why = w->failed ? NULL : queues_failure(w->app.queues);
    if (!why)
        return;
    w->failed = true;
    log_error("storage failed: nothing is written any more", LOG_S("reason", why));
    daemon_set_not_ready(w->app.daemon, "storage failed: %s", why);
}

/* Puts are refused, and taken again, without anybody's doing: the log says from when to when. */
static void watch_space(struct wiring *w)
{
    for (size_t i = 0; i < queues_count(w->app.queues); i++) {
        struct named_queue *q = queues_at(w->app.queues, i);
        bool full = named_queue_disk_is_full(q), *told = &front_of(q)->told_full;
        if (full && !*told)
            log_error("the disk is full: puts are refused", LOG_S("queue", named_queue_name(q)));
        else if (!full && *told)
            log_info("the disk has room: puts are taken again", LOG_S("queue", named_queue_name(q)));
        *told = full;
    }
}

static void on_journal(void *arg)
{
    struct wiring *w = arg;
    queues_poll(w->app.queues);
    overflow_poll(&w->app);
    watch_storage(w);
    watch_space(w);
    app_arm(&w->app);
}

/* One queue a turn of the loop, so that /health answers meanwhile. */
static void recover_next(void *arg)
{
    struct wiring *w = arg;
    char error[512];
    switch (queues_recover(w->app.queues, app_now(), error, sizeof error)) {
    case QUEUES_MORE:
        daemon_post(w->app.daemon, recover_next, w);
        break;
    case QUEUES_FAILED:
        log_error("recovery failed", LOG_S("reason", error));
        daemon_fail(w->app.daemon, EX_CONFIG);
        break;
    case QUEUES_RECOVERED:
        if (options_bool(daemon_options(w->app.daemon), "restored")) {
            daemon_begin_stop(w->app.daemon);
            break;
        }
        daemon_set_ready(w->app.daemon);
        if (queues_journals(w->app.queues))
            w->scrubber = scrubber_start(w->app.daemon, queues_journals(w->app.queues));
        nng_ingest_start(w->ingest);
        app_arm(&w->app);
        break;
    }
}

static void on_new_queue(struct named_queue *q, void *arg)
{
    struct app *app = arg;
    named_queue_set_data(q, mem_zalloc(sizeof(struct front)));
    waiting_queue_new(app, q);
    app_register_queue(app, q);
    const struct queue_state *s = queue_state(named_queue_core(q));
    log_info("queue open", LOG_S("queue", named_queue_name(q)), LOG_S("id", named_queue_id(q)),
        LOG_U("depth", queue_depth(named_queue_core(q))), LOG_U("next_id", s->next_id));
}

static void on_ready(struct named_queue *q, void *arg)
{
    waiting_serve(arg, q);
    if (front_of(q))
        overflow_on_ready(q);
}

/* ---- life ---- */

static struct bytes separator(const struct options *o, const char *name)
{
    const char *text = options_string(o, name);
    return text ? bytes_str(text) : BYTES_LITERAL("\n");
}

static void read_settings(struct wiring *w, const struct options *o)
{
    int64_t max_mget = options_int(o, "max_mget");
    struct stats *stats = daemon_stats(w->app.daemon);
    w->app.max_message = (size_t)options_int(o, "max_message");
    w->app.max_items = max_mget ? (size_t)max_mget : SIZE_MAX;
    w->app.mget_separator = separator(o, "mget_item_sep");
    w->app.mput_separator = separator(o, "mput_item_sep");
    w->app.duplicates = stats_counter(stats, "duplicates_total", NULL, "puts that were stored before");
    w->app.refused = stats_counter(stats, "refused_total", NULL, "requests that a queue refused");
}

static bool overflows(const struct options *o)
{
    const char *when_full = options_string(o, "when_full");
    return when_full ? strcmp(when_full, "overflow") == 0 : options_string(o, "overflow_log") != NULL;
}

static int check(struct options *o, struct config_error *error)
{
    const char *urls = options_string(o, "nng_listen");
    if (options_bool(o, "restored") && !options_string(o, "data_dir")) {
        snprintf(error->text, sizeof error->text, "restored needs a data_dir: the copy");
        return -1;
    }
    if (urls && nng_ingest_check(urls, options_string(o, "auth_token_file") != NULL, error) != 0)
        return -1;
    if (!overflows(o) || options_string(o, "overflow_log"))
        return 0;
    snprintf(error->text, sizeof error->text, "when_full=overflow needs an overflow_log (%s)",
        options_source(o, "when_full"));
    return -1;
}

/* A name that was mistyped would be made as an empty directory, and the copy stay as it is. */
static int check_copy(const char *dir, struct config_error *error)
{
    struct buf path = {0};
    buf_printf(&path, "%s/queues", dir);
    buf_append_char(&path, '\0');
    int found = access(path.ptr, F_OK);
    if (found != 0)
        snprintf(error->text, sizeof error->text,
            "restored: the directory is no copy of a queue's data: %s: %s", path.ptr, strerror(errno));
    buf_free(&path);
    return found;
}

static struct queues *open_queues(struct wiring *w, const struct options *o, struct config_error *error)
{
    struct queues_config config = {
        .data_dir = options_string(o, "data_dir"),
        .limits = {(uint64_t)options_int(o, "max_depth"), (uint64_t)options_int(o, "max_bytes"),
            (uint64_t)options_int(o, "max_memory")},
        .max_queues = (size_t)options_int(o, "max_queues"),
        .restored = options_bool(o, "restored"),
        .sync_ms = options_sync(o, "sync"),
        .segment_bytes = (uint64_t)options_int(o, "segment_bytes"),
        .notify = loop_notify_this_turn,
        .notify_arg = w->notify,
        .on_new = on_new_queue,
        .on_ready = on_ready,
        .hook_arg = &w->app,
    };
    if (config.restored && check_copy(config.data_dir, error) != 0)
        return NULL;
    if (config.data_dir && daemon_own_directory(config.data_dir, error) != 0)
        return NULL;
    return queues_new(&config, error->text, sizeof error->text);
}

static int open_parts(struct wiring *w, const struct options *o, struct config_error *error)
{
    const char *log = overflows(o) ? options_string(o, "overflow_log") : NULL;
    if (overflow_open(&w->app, log, loop_notify_wake, w->notify, error->text, sizeof error->text) != 0)
        return -1;
    if (!(w->app.queues = open_queues(w, o, error)))
        return -1;
    app_register_numbers(&w->app);
    const char *urls = options_string(o, "nng_listen");
    return !urls || (w->ingest = nng_ingest_open(&w->app, urls, error)) ? 0 : -1;
}

static void stop(void *ctx)
{
    struct wiring *w = ctx;
    struct app *app = &w->app;
    new_queues_close(app);
    if (app->queues)
        queues_flush(app->queues);
    nng_ingest_close(&w->ingest);
    if (app->queues)
        overflow_save(app);
    overflow_close(app);
    for (size_t i = 0; app->queues && i < queues_count(app->queues); i++) {
        stats_remove_gauges(daemon_stats(app->daemon), queues_at(app->queues, i));
        parked_free(&front_of(queues_at(app->queues, i))->parked);
        free(front_of(queues_at(app->queues, i)));
        named_queue_set_data(queues_at(app->queues, i), NULL);
    }
    stats_remove_gauges(daemon_stats(app->daemon), app);
    scrubber_stop(&w->scrubber);
    queues_free(&app->queues);
    if (w->timer)
        event_free(w->timer);
    if (w->notify)
        loop_notify_free(&w->notify);
    heap_free(&app->waiting.deadlines);
    records_free(&app->records);
    pending_free_spare(app);
    buf_free(&app->frames);
    free(w);
}

static int start(struct daemon *d, void **ctx, struct config_error *error)
{
    struct wiring *w = mem_zalloc(sizeof *w);
    w->app.daemon = d;
    w->app.loop = w;
    w->armed = INT64_MAX;
    read_settings(w, daemon_options(d));
    w->notify = loop_notify_new(daemon_base(d), on_journal, w);
    w->timer = evtimer_new(daemon_base(d), on_timer, w);
    if (open_parts(w, daemon_options(d), error) != 0) {
        stop(w);
        return EX_CONFIG;
    }
    *ctx = w;
    daemon_set_not_ready(d, "recovering");
    daemon_post(d, recover_next, w);
    return 0;
}

void app_check_drained(struct app *app)
{
    if (!app->drained && app->pending == 0 && daemon_is_draining(app->daemon)) {
        app->drained = true;
        daemon_drained(app->daemon);
    }
}

static void hangup(void *ctx)
{
    overflow_reopen(&((struct wiring *)ctx)->app);
}

static void drain(void *ctx)
{
    struct wiring *w = ctx;
    nng_ingest_stop(w->ingest);
    waiting_drain(&w->app);
    app_check_drained(&w->app);
}

int main(int argc, char **argv)
{
    static const struct daemon_spec spec = {
        .name = "simplequeue",
        .summary = "a queue of messages over HTTP, for the applications of one host",
        .options = rows,
        .default_port = PORT_SIMPLEQUEUE,
        .routes = app_routes,
        .check = check,
        .start = start,
        .hangup = hangup,
        .drain = drain,
        .stop = stop,
        .extra_stats = app_extra_stats,
        .reset_stats = app_reset_stats,
    };
    return daemon_main(&spec, argc, argv);
}
