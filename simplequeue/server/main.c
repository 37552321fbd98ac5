/* simplequeue: wires the queues to the event loop and to HTTP. */
#include "simplequeue/server/queue_server.h"
#include "base/clock.h"
#include "simplequeue/server/queue_health.h"
#include "base/log.h"
#include "daemon/loop_notify.h"
#include "simplequeue/server/nng_ingest.h"
#include "simplequeue/queue/overflow_log.h"
#include "config/peers.h"
#include "daemon/scrubber.h"
#include "simplequeue/server/queue_settings.h"

#include <errno.h>
#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

struct wiring {
    struct queue_server server; /* first: handlers get it as their ctx */
    struct loop_notify *notify;
    struct event *timer; /* the one, for all that has a deadline */
    struct scrubber *scrubber;
    usec_t armed;              /* when the timer fires; INT64_MAX: it does not */
    struct nng_ingest *ingest; /* NULL: no nng */
};

/* The wall clock is asked once a millisecond at most: who sets it is seen that much later. */
static struct queue_now both_times(usec_t now)
{
    static usec_t asked, wall;
    if (now - asked >= USEC_PER_MSEC) {
        asked = now;
        wall = clock_wall();
    }
    return (struct queue_now){now, wall + (now - asked)};
}

struct queue_now server_now(void)
{
    return both_times(clock_monotonic());
}

struct queue_now server_now_of(const struct http_request *req)
{
    return both_times(http_now(req));
}

void server_arm(struct queue_server *server)
{
    struct wiring *w = server->loop;
    usec_t first = INT64_MAX, other;
    if (queues_next_deadline(server->queues, &other))
        first = other;
    if (long_poll_next_deadline(server, &other) && other < first)
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
    struct queue_now now = server_now();
    (void)fd;
    (void)what;
    w->armed = INT64_MAX;
    queues_tick(w->server.queues, now);
    long_poll_tick(&w->server, now.monotonic);
    server_arm(&w->server);
}

static void on_journal(void *arg)
{
    struct wiring *w = arg;
    queues_poll(w->server.queues);
    overflow_poll(&w->server);
    server_arm(&w->server);
}

/* One queue a turn of the loop, so that /health answers meanwhile. */
static void recover_next(void *arg)
{
    struct wiring *w = arg;
    char error[512];
    enum queues_recovery recovery = queues_recover(w->server.queues, server_now(), error, sizeof error);
    switch (recovery) {
    case QUEUES_MORE:
        daemon_post(w->server.daemon, recover_next, w);
        break;
    case QUEUES_RETRY:
    case QUEUES_FAILED:
        log_error("recovery failed", LOG_S("reason", error));
        daemon_fail(w->server.daemon, recovery == QUEUES_FAILED ? EX_CONFIG : EX_TEMPFAIL);
        break;
    case QUEUES_RECOVERED:
        w->server.recovered = true;
        if (options_bool(daemon_options(w->server.daemon), "restored")) {
            daemon_begin_stop(w->server.daemon);
            break;
        }
        if (!w->server.storage_failed) /* opening a queue writes */
            daemon_set_ready(w->server.daemon);
        if (queues_journals(w->server.queues))
            w->scrubber = scrubber_start(w->server.daemon, queues_journals(w->server.queues));
        nng_ingest_start(w->ingest);
        server_arm(&w->server);
        break;
    }
}

static void on_new_queue(struct named_queue *q, void *arg)
{
    served_queue_open(arg, q);
}

static void on_stray(const char *name, void *arg)
{
    (void)arg;
    log_warn("passed over: among the queues is what is no directory", LOG_S("name", name));
}

/* Also before the queue has a served_queue and when it has none any more. */
static void on_ready(struct named_queue *q, void *arg)
{
    if (!served_of(q))
        return;
    if (named_queue_journal(q))
        health_note(arg, q);
    long_poll_serve(q);
    overflow_on_ready(q);
}

static void read_settings(struct wiring *w, const struct options *o)
{
    int64_t max_mget = options_int(o, "max_mget");
    struct stats *stats = daemon_stats(w->server.daemon);
    w->server.max_message = (size_t)options_int(o, "max_message");
    w->server.max_items = max_mget ? (size_t)max_mget : SIZE_MAX;
    w->server.mget_separator = settings_separator(o, "mget_item_sep");
    w->server.mput_separator = settings_separator(o, "mput_item_sep");
    w->server.duplicates = stats_counter(stats, "duplicates_total", NULL, "puts that were stored before");
    w->server.creation.unmade = stats_counter(
        stats, "queues_unmade_total", NULL, "requests refused because no queue could be made for them");
    w->server.refused = stats_counter(stats, "refused_total", NULL, "requests that a queue refused");
}

/* Of what the settings leave to the default nobody said that it is needed. */
static void log_descriptors(const struct queues *qs, const struct options *o)
{
    size_t found = queues_unopened(qs), room = queues_descriptor_limit(qs), max = queues_max(qs);
    if (room == 0 || (options_is_set(o, "max_queues") && room < max))
        log_warn("the limit of open files has no room for max_queues: raise it (LimitNOFILE, ulimit -Hn)",
            LOG_U("max_queues", max), LOG_U("room_for", room),
            LOG_U("limit_wanted", http_descriptors_with_files(queues_descriptors_for(max))));
    if (found > room)
        log_error("the queues take descriptors that are for connections: raise the limit of open files "
                  "(LimitNOFILE, "
                  "ulimit -Hn)",
            LOG_U("queues", found), LOG_U("room_for", room),
            LOG_U("limit_needed", http_descriptors_with_files(queues_descriptors_for(found))));
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
        .owns = daemon_holds_directory,
        .descriptors = http_descriptors_for_files,
        .notify = loop_notify_defer,
        .notify_arg = w->notify,
        .on_new = on_new_queue,
        .on_ready = on_ready,
        .on_stray = on_stray,
        .hook_arg = &w->server,
    };
    if (config.restored && queues_check_copy(config.data_dir, error->text, sizeof error->text) != 0)
        return NULL;
    if (config.data_dir && daemon_lock_directory(config.data_dir, error) != 0)
        return NULL;
    return queues_new(&config, error->text, sizeof error->text);
}

/* 0, or the exit status. */
static int open_parts(struct wiring *w, const struct options *o, struct config_error *error)
{
    const char *log = settings_overflow_log(o), *data_dir = options_string(o, "data_dir");
    errno = 0;
    if (!(w->server.queues = open_queues(w, o, error)))
        return daemon_start_status(errno);
    /* The data directory is there by now: the log may be beside what is kept in it. */
    if (log && data_dir && overflow_log_check_place(log, data_dir, error->text, sizeof error->text) != 0)
        return EX_CONFIG;
    errno = 0;
    if (overflow_open(&w->server, log, loop_notify_wake, w->notify, error->text, sizeof error->text) != 0)
        return daemon_start_status(errno);
    log_descriptors(w->server.queues, o);
    server_register_numbers(&w->server);
    const char *urls = options_string(o, NNG_INGEST_SETTING);
    return !urls || (w->ingest = nng_ingest_open(&w->server, urls, error)) ? 0 : EX_CONFIG;
}

static void stop(void *ctx)
{
    struct wiring *w = ctx;
    struct queue_server *server = &w->server;
    queue_creation_close(server);
    if (server->queues)
        queues_flush(server->queues);
    nng_ingest_close(&w->ingest);
    if (server->queues)
        overflow_save(server);
    overflow_close(server);
    if (server->queues)
        served_queue_close_all(server);
    stats_remove_gauges(daemon_stats(server->daemon), server);
    scrubber_stop(&w->scrubber);
    queues_free(&server->queues);
    if (w->timer)
        event_free(w->timer);
    if (w->notify)
        loop_notify_free(&w->notify);
    heap_free(&server->polls.deadlines);
    records_free(&server->records);
    pending_free_spare(server);
    buf_free(&server->frames);
    free(w);
}

static int start(struct daemon *d, void **ctx, struct config_error *error)
{
    struct wiring *w = mem_zalloc(sizeof *w);
    w->server.daemon = d;
    w->server.loop = w;
    w->armed = INT64_MAX;
    read_settings(w, daemon_options(d));
    settings_warn(daemon_options(d));
    w->notify = loop_notify_new(daemon_base(d), on_journal, w);
    w->timer = evtimer_new(daemon_base(d), on_timer, w);
    int status = open_parts(w, daemon_options(d), error);
    if (status != 0) {
        stop(w);
        return status;
    }
    *ctx = w;
    daemon_set_not_ready(d, "recovering");
    daemon_post(d, recover_next, w);
    return 0;
}

void server_check_drained(struct queue_server *server)
{
    if (!server->drained && server->pending == 0 && daemon_is_draining(server->daemon)) {
        server->drained = true;
        daemon_drained(server->daemon);
    }
}

static void hangup(void *ctx)
{
    overflow_reopen(&((struct wiring *)ctx)->server);
}

static void drain(void *ctx)
{
    struct wiring *w = ctx;
    nng_ingest_stop(w->ingest);
    long_poll_drain(&w->server);
    server_check_drained(&w->server);
}

int main(int argc, char **argv)
{
    static const struct daemon_spec spec = {
        .name = "simplequeue",
        .summary = "a queue of messages over HTTP, for the applications of one host",
        .options = settings_rows,
        .default_port = PORT_SIMPLEQUEUE,
        .routes = server_routes,
        .check = settings_check,
        .start = start,
        .hangup = hangup,
        .drain = drain,
        .stop = stop,
        .extra_stats = server_extra_stats,
        .reset_stats = server_reset_stats,
    };
    return daemon_main(&spec, argc, argv);
}
