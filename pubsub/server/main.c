/* pubsub: wires streams, cursors, the nng socket and the HTTP endpoints to the event loop. */
#include "base/errno_class.h"
#include "base/log.h"
#include "config/peers.h"
#include "daemon/daemon_directory.h"
#include "daemon/loop_notify.h"
#include "daemon/loop_timer.h"
#include "daemon/scrubber.h"
#include "pubsub/server/nng_publish.h"
#include "pubsub/server/pubsub_server.h"
#include "pubsub/stream/pubsub_settings.h"
#include "pubsub/stream/window.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <sysexits.h>

#define TICK_MAX USEC_PER_SEC
#define ERASE_BODY_MAX ((size_t)8 << 20) /* about 400,000 lines, which are parsed on the event loop */

struct wiring {
    struct pubsub_server server;
    struct loop_notify *notify;
    struct loop_timer *tick;
    struct scrubber *scrubber;
    struct nng_publish *nng; /* NULL: none */
    /* The recovery runs in a thread of its own. Only the recovery thread uses streams and cursors
     * until it is joined. */
    pthread_t recovery;
    bool recovering;
    struct error error; /* error of the recovery; the code is an enum streams_result */
};
static_assert(offsetof(struct wiring, server) == 0, "handlers get its address");

static void on_tick(void *arg)
{
    struct wiring *w = arg;
    usec_t trusted = daemon_trusted_time(w->server.daemon), boot = clock_boot();
    for (size_t i = 0; i < streams_count(w->server.streams); i++) {
        struct stream *s = streams_at(w->server.streams, i);
        stream_retain(s, cursors_hold(w->server.cursors, s, NULL), trusted);
        stream_tidy(s, clock_monotonic());
    }
    cursors_tick(w->server.cursors);
    untils_tick(w->server.untils, trusted, boot);
    http_publish_tick(&w->server);
    http_sub_tick(&w->server);
    window_trim();
    if (w->nng)
        nng_publish_tick(w->nng);
}

static void on_disk(void *arg, bool has_room)
{
    if (has_room)
        http_publish_resume(arg);
}

static void join_recovery(struct wiring *w)
{
    if (w->recovering)
        pthread_join(w->recovery, NULL);
    w->recovering = false;
}

/* Joins the recovery thread and starts the parts that need the streams. */
static void take_recovered(void *arg)
{
    struct wiring *w = arg;
    struct pubsub_server *server = &w->server;
    struct error error;
    const char *urls = options_string(daemon_options(server->daemon), NNG_PUBLISH_SETTING);
    join_recovery(w);
    if (w->error.code != STREAMS_OK) {
        bool passes = w->error.code == STREAMS_NO_SPACE || w->error.code == STREAMS_OUT_OF_DESCRIPTORS;
        daemon_give_up(server->daemon, passes ? EX_TEMPFAIL : EX_CONFIG, "cannot recover the streams", "",
            w->error.text);
        return;
    }
    if (urls && !(w->nng = nng_publish_open(server->streams, urls, daemon_stats(server->daemon), &error))) {
        daemon_give_up(server->daemon, EX_CONFIG, "cannot publish over nng", "", error.text);
        return;
    }
    server->recovered = true;
    for (size_t i = 0; i < streams_count(server->streams); i++) {
        struct stream *s = streams_at(server->streams, i);
        struct journal *j = stream_journal(s);
        if (journal_cut(j)) {
            char *text = mem_printf("stream %s: %s", stream_name(s), journal_cut(j));
            daemon_add_warning(server->daemon, JOURNAL_CUT_REMEDY, text);
            free(text);
        }
        log_info("stream recovered", LOG_S("stream", stream_name(s)), LOG_S("id", journal_id(j)),
            LOG_U("end", journal_committed_end(j)));
        http_stats_add_stream(server, s);
    }
    if (cursors_dropped(server->cursors))
        log_warn("dropped cursors of streams that are missing or have another id",
            LOG_U("cursors", cursors_dropped(server->cursors)));
    for (size_t i = 0; i < cursors_count(server->cursors); i++)
        http_stats_add_cursor(server, cursors_at(server->cursors, i));
    untils_each(server->untils, http_stats_add_until, server);
    /* Ticks follow each other in at most half a heartbeat interval, so that a heartbeat is late by at most half of
     * its interval. */
    usec_t interval = server->heartbeat / 2 < TICK_MAX ? server->heartbeat / 2 : TICK_MAX;
    w->tick = loop_timer_every(daemon_base(server->daemon), interval, on_tick, w);
    on_tick(w);
    server->guard = disk_guard_new(&(struct disk_guard_config){.daemon = server->daemon,
        .dir = options_string(daemon_options(server->daemon), "data_dir"),
        .what = "publishes",
        .on_look = on_disk,
        .arg = server});
    w->scrubber = scrubber_start(server->daemon, streams_set(server->streams));
    if (!server->draining)
        daemon_set_ready(server->daemon);
}

/* Runs in the recovery thread. Opens the streams and cursors, and creates the streams of the setting `streams`. */
static void *recover(void *arg)
{
    struct wiring *w = arg;
    const struct options *o = daemon_options(w->server.daemon);
    const char *names = options_string(o, "streams");
    struct bytes name;
    const struct cursors_config config = {
        .streams = w->server.streams,
        .dir = options_string(o, "data_dir"),
        .max = (size_t)options_int(o, "max_cursors"),
        .notify = loop_notify_wake,
        .notify_arg = w->notify,
        .made = http_stats_add_cursor,
        .removed = http_stats_remove_cursor,
        .arg = &w->server,
    };
    const struct untils_config untils = {
        .streams = w->server.streams,
        .timeout = w->server.producer_timeout,
        .made = http_stats_add_until,
        .removed = http_stats_remove_until,
        .arg = &w->server,
    };
    w->error.code = streams_recover(w->server.streams, &w->error);
    while (w->error.code == STREAMS_OK && bytes_next_word(&names, SETTINGS_SEPARATORS, &name)) {
        struct stream *s;
        char *text = bytes_dup(name);
        w->error.code = streams_make(w->server.streams, text, &s, &w->error);
        if (w->error.code == STREAMS_TOO_MANY)
            error_set(&w->error, STREAMS_TOO_MANY,
                "setting streams: cannot create stream %s: max_streams is reached; raise max_streams", text);
        free(text);
    }
    errno = 0;
    if (w->error.code == STREAMS_OK && !cursors_open(&config, &w->server.cursors, &w->error))
        w->error.code = errno_is_fd_limit(errno) ? STREAMS_OUT_OF_DESCRIPTORS : STREAMS_STORAGE;
    if (w->error.code == STREAMS_OK)
        w->server.untils = untils_open(&untils);
    daemon_post(w->server.daemon, take_recovered, w);
    return NULL;
}

static void on_journals(void *arg)
{
    struct wiring *w = arg;
    if (!w->server.recovered)
        return;
    journal_set_poll(streams_set(w->server.streams));
    cursors_poll(w->server.cursors);
}

static int start(struct daemon *d, void **ctx, struct error *error)
{
    struct options *o = daemon_options(d);
    if (daemon_lock_directory(options_string(o, "data_dir"), error) != 0)
        return daemon_start_status(errno);
    struct wiring *w = mem_zalloc(sizeof *w);
    *ctx = w;
    w->server.daemon = d;
    random_id(w->server.life);
    w->server.max_line = (size_t)options_int(o, "max_line");
    w->server.heartbeat = options_int(o, "heartbeat") * USEC_PER_MSEC;
    w->server.producer_timeout = options_int(o, "producer_timeout") * USEC_PER_MSEC;
    w->server.auto_create = options_bool(o, "auto_create");
    w->notify = loop_notify_new(daemon_base(d), on_journals, w);
    w->server.streams = streams_new(&(struct streams_config){
        .dir = options_string(o, "data_dir"),
        .max_streams = (size_t)options_int(o, "max_streams"),
        .descriptors = http_descriptors_for_files,
        .max_producers = (size_t)options_int(o, "max_producers"),
        .segment_bytes = (uint64_t)options_int(o, "segment_bytes"),
        .limits = settings_limits,
        .limits_arg = o,
        .set = {.sync_ms = options_sync(o, "sync"), .notify = loop_notify_defer, .notify_arg = w->notify},
    });
    http_stats_register(&w->server);
    daemon_set_not_ready(d, NOTICE_RECOVERING, DAEMON_WAIT, "recovering the streams");
    w->recovering = pthread_create(&w->recovery, NULL, recover, w) == 0;
    if (w->recovering)
        return 0;
    return error_set(error, EX_TEMPFAIL, "cannot start a thread");
}

static void drain(void *ctx)
{
    struct pubsub_server *server = ctx;
    server->draining = true;
    http_sub_end_all(server);
    http_rate_end_all(server);
    server_check_drained(server);
}

static void stop(void *ctx)
{
    struct wiring *w = ctx;
    if (!w)
        return;
    join_recovery(w);
    w->server.drained = true; /* the event loop has ended, so no part may report the end of the drain */
    loop_timer_free(&w->tick);
    disk_guard_free(&w->server.guard);
    nng_publish_close(&w->nng);
    scrubber_stop(&w->scrubber);
    cursors_close(&w->server.cursors);
    http_sub_forget_statements(&w->server);
    untils_close(&w->server.untils);
    streams_free(&w->server.streams);
    loop_notify_free(&w->notify);
    loop_timer_free(&w->server.drain_limit);
    free(w);
}

static bool retry_events_if_wanted(struct http_request *req, void *ctx)
{
    (void)ctx;
    if (!server_wants_events(req))
        return false;
    server_retry_events(req);
    return true;
}

static const struct http_route routes[] = {
    HTTP_ROUTE("/pub", HTTP_POST_, HTTP_ROUTE_DECODES_BODY, http_publish,
        "stream producer mark next opening until era name guard guard_mark",
        "POST lines to stream= (default); producer=, mark=, next=, opening=, until=, era=, name=, "
        "guard=, guard_mark="),
    {.path = "/sub",
        .methods = HTTP_GET_,
        .on_overload = retry_events_if_wanted,
        .handler = http_sub,
        .params = "stream from last id follow multipart statements",
        .help = "the lines of stream= from=earliest|latest|OFFSET|@UNIXTIME; id=, follow=0, multipart=, "
                "statements=1; Accept: text/event-stream"},
    {.path = "/rate",
        .methods = HTTP_GET_,
        .flags = HTTP_ROUTE_NO_HEAD,
        .on_overload = retry_events_if_wanted,
        .handler = http_rate,
        .params = "stream",
        .help =
            "once per second the number of new lines in stream= (or in all streams), as Server-Sent Events"},
    HTTP_ROUTE("/cursors", HTTP_GET_ | HTTP_POST_ | HTTP_DELETE_, 0, http_cursors,
        "stream name from id backwards",
        "named cursors; POST stream=, name=, from= creates or moves a cursor (backwards=1); DELETE "
        "stream=, "
        "name="),
    HTTP_ROUTE("/clients", HTTP_GET_, 0, http_clients, "format", "subscribers; ?format=json"),
    HTTP_ROUTE(
        "/producer", HTTP_GET_, 0, http_producer, "stream producer", "the mark of producer= in stream="),
    HTTP_ROUTE("/producers", HTTP_GET_ | HTTP_POST_ | HTTP_DELETE_, 0, http_producers,
        "stream producer mark from stating begins left_out guard guard_mark",
        "every producer's mark and until in stream= (stating=1: only with until; begins=: only such names); "
        "POST producer=, "
        "mark= sets a mark, left_out=1 (with guard=, guard_mark=) excludes a producer; DELETE producer= "
        "removes a producer"),
    {.path = "/erase",
        .methods = HTTP_GET_ | HTTP_POST_,
        .max_body = ERASE_BODY_MAX,
        .handler = http_erase,
        .params = "stream id",
        .help = "POST lines \"OFFSET LENGTH\": erase these lines of stream= in the background; GET: state of "
                "the erasure"},
    HTTP_ROUTE("/streams", HTTP_GET_, 0, http_streams, "", "every stream, as JSON"),
    {.path = NULL},
};

int main(int argc, char **argv)
{
    static const struct daemon_spec spec = {
        .name = "pubsub",
        .summary = "named streams of lines that any number of clients read from any offset",
        .options = settings_rows,
        .sections = "stream",
        .default_port = PORT_PUBSUB,
        .routes = routes,
        .check = settings_check,
        .start = start,
        .drain = drain,
        .stop = stop,
        .extra_stats = http_stats_extra,
        .stats_headers = http_stats_headers,
        .reset_stats = http_stats_reset,
    };
    return daemon_main(&spec, argc, argv);
}
