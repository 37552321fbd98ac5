/* simplequeue: wires the queues to the event loop, HTTP and nng. */
#include "base/log.h"
#include "config/peers.h"
#include "daemon/daemon_directory.h"
#include "daemon/loop_notify.h"
#include "daemon/loop_timer.h"
#include "daemon/scrubber.h"
#include "simplequeue/queue/overflow_log.h"
#include "simplequeue/server/http_common.h"
#include "simplequeue/server/nng_ingest.h"
#include "simplequeue/server/queue_settings.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

#define LOG_AGAIN (10 * USEC_PER_SEC)

struct wiring {
    struct queue_server server; /* the ctx of handlers; must be the first member */
    struct loop_notify *notify;
    struct scrubber *scrubber;
    struct nng_ingest *ingest; /* NULL: the daemon does not use nng */
};

static void on_timer(void *arg)
{
    struct queue_server *server = &((struct wiring *)arg)->server;
    struct queue_now now = queue_loop_now();
    server->loop.armed = INT64_MAX;
    queues_tick(server->queues, now);
    wait_tick(&server->loop, now.monotonic);
    queue_loop_arm(&server->loop);
}

/* Called when the journal's committers or the overflow log's thread have results. */
static void on_notify(void *arg)
{
    struct queue_server *server = &((struct wiring *)arg)->server;
    if (queues_journals(server->queues))
        journal_set_poll(queues_journals(server->queues));
    overflow_poll(server->overflow);
    queue_loop_arm(&server->loop);
}

/* Opens one queue in each turn of the loop, so that /health can be answered between two queues. */
static void recover_next(void *arg)
{
    struct wiring *w = arg;
    struct queue_server *server = &w->server;
    struct daemon *daemon = server->loop.daemon;
    char error[512];
    enum queues_recovery recovery = queues_recover(server->queues, queue_loop_now(), error, sizeof error);
    switch (recovery) {
    case QUEUES_MORE:
        daemon_post(daemon, recover_next, w);
        break;
    case QUEUES_RETRY:
    case QUEUES_FAILED:
        daemon_give_up(
            daemon, recovery == QUEUES_FAILED ? EX_CONFIG : EX_TEMPFAIL, "recovery failed", "", error);
        break;
    case QUEUES_RECOVERED:
        server->recovered = true;
        if (options_bool(daemon_options(daemon), "restored")) {
            daemon_begin_stop(daemon);
            break;
        }
        if (!server->loop.storage_failed) /* the recovery of a queue may have failed to write */
            daemon_set_ready(daemon);
        if (queues_journals(server->queues))
            w->scrubber = scrubber_start(daemon, queues_journals(server->queues));
        nng_ingest_start(w->ingest);
        queue_loop_arm(&server->loop);
        break;
    }
}

static void on_new_queue(struct named_queue *q, void *arg)
{
    struct served_queue *served = mem_zalloc(sizeof *served);
    int n =
        snprintf(served->id_line, sizeof served->id_line, "X-Millrace-Queue-Id: %s\r\n", named_queue_id(q));
    served->id_line_len = (size_t)n;
    named_queue_set_data(q, served);
    const struct journal *j = named_queue_journal(q);
    log_info("queue open", LOG_S("queue", named_queue_name(q)), LOG_S("id", named_queue_id(q)),
        LOG_S("opening", j ? journal_opening(j) : ""), LOG_U("depth", queue_depth(named_queue_core(q))),
        LOG_U("next_id", queue_state(named_queue_core(q))->next_id));
    if (j && journal_cut(j)) {
        char *text = mem_printf("queue %s: %s", named_queue_name(q), journal_cut(j));
        daemon_add_warning(((struct queue_server *)arg)->loop.daemon, JOURNAL_CUT_REMEDY, text);
        free(text);
    }
    reserve_queue_opened(arg, q);
    stats_register_queue(arg, q);
}

static void on_stray(const char *name, void *arg)
{
    (void)arg;
    log_warn("ignored a file in the directory of the queues", LOG_S("name", name));
}

static void stop_waits(void *loop)
{
    wait_stop(loop);
}

/* On a nearly full disk, short messages may fit while long messages do not, so the daemon logs a full disk at most once
 * per LOG_AGAIN. After a storage failure the daemon is not ready, because readers cannot acknowledge messages. */
static void note_health(struct queue_server *server, const struct named_queue *q)
{
    struct queue_loop *loop = &server->loop;
    struct served_queue *served = served_of(q);
    const char *error = loop->storage_failed ? NULL : named_queue_failure(q);
    bool full = named_queue_disk_is_full(q);
    if (error) {
        loop->storage_failed = true;
        log_error("storage failed: the daemon writes nothing more", LOG_S("error", error));
        daemon_set_storage_failed(loop->daemon, error);
        daemon_post(loop->daemon, stop_waits, loop);
    }
    if (full != served->is_disk_full) {
        served->is_disk_full = full;
        loop->n_disk_full += full ? 1 : (size_t)-1;
        if (full ? loop->n_disk_full == 1 : loop->n_disk_full == 0)
            daemon_set_refusing(
                loop->daemon, "puts", DAEMON_FREE_DISK, full ? disk_guard_why(server->guard) : NULL);
        if (full && !disk_guard_refuses(server->guard))
            disk_guard_note_full(server->guard);
    }
    if (full && !served->disk_full_logged && queue_loop_now().monotonic >= served->log_disk_full_at) {
        served->disk_full_logged = true;
        served->log_disk_full_at = queue_loop_now().monotonic + LOG_AGAIN;
        log_error("the disk is full: puts are refused", LOG_S("queue", named_queue_name(q)));
    } else if (!full && served->disk_full_logged) {
        served->disk_full_logged = false;
        log_info("the disk has room: puts are accepted again", LOG_S("queue", named_queue_name(q)));
    }
}

/* A queue may also call on_ready before on_new_queue and while the queues are freed. */
static void on_ready(struct named_queue *q, void *arg)
{
    struct queue_server *server = arg;
    if (!served_of(q))
        return;
    if (named_queue_journal(q))
        note_health(server, q);
    wait_wake_all(&served_of(q)->loads, WAIT_RETRY);
    reserve_serve(q);
    overflow_on_ready(server->overflow, q);
}

static void on_disk(void *arg, bool has_room)
{
    struct queue_server *server = arg;
    bool refuses = disk_guard_refuses(server->guard);
    for (size_t i = 0; i < queues_count(server->queues) && (refuses || has_room); i++) {
        struct named_queue *q = queues_at(server->queues, i);
        if (!served_of(q) || named_queue_disk_is_full(q) == refuses)
            continue;
        named_queue_set_disk_full(q, refuses);
        note_health(server, q);
    }
}

static struct queues *open_queues(struct wiring *w, const struct options *o, struct error *error)
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

/* Opens the parts of the server. Returns 0, or the exit status. */
static int open_parts(struct wiring *w, const struct options *o, struct error *error)
{
    struct queue_server *server = &w->server;
    const char *log = settings_overflow_log(o), *data_dir = options_string(o, "data_dir");
    errno = 0;
    if (!(server->queues = open_queues(w, o, error)))
        return daemon_start_status(errno);
    server->loop.queues = server->queues;
    if (data_dir)
        server->guard = disk_guard_new(&(struct disk_guard_config){.daemon = server->loop.daemon,
            .dir = data_dir,
            .what = "puts",
            .on_look = on_disk,
            .arg = server});
    /* Check the place of the overflow log after open_queues, which creates the data directory. The log may be in this
     * directory. */
    if (log && data_dir && overflow_log_check_place(log, data_dir, error->text, sizeof error->text) != 0)
        return EX_CONFIG;
    errno = 0;
    if (log && !(server->overflow = overflow_open(
                     &server->loop, log, loop_notify_wake, w->notify, error->text, sizeof error->text)))
        return daemon_start_status(errno);
    size_t found = queues_unopened(server->queues), max = queues_max(server->queues);
    size_t room = queues_descriptor_limit(server->queues);
    /* Warn only if max_queues is set explicitly, because most hosts have too few descriptors for the default. */
    if (room == 0 || (options_is_set(o, "max_queues") && room < max))
        log_warn("the limit of open files is too low for max_queues: raise it (LimitNOFILE, ulimit -Hn)",
            LOG_U("max_queues", max), LOG_U("room_for", room),
            LOG_U("limit_wanted", http_descriptors_with_files(queues_descriptors_for(max))));
    if (found > room)
        log_error("the queues use descriptors that connections need: raise the limit of open files "
                  "(LimitNOFILE, ulimit -Hn)",
            LOG_U("queues", found), LOG_U("room_for", room),
            LOG_U("limit_needed", http_descriptors_with_files(queues_descriptors_for(found))));
    stats_register(server);
    const char *urls = options_string(o, NNG_LISTEN_SETTING);
    return !urls || (w->ingest = nng_ingest_open(server, urls, error)) ? 0 : EX_CONFIG;
}

static void stop(void *ctx)
{
    struct wiring *w = ctx;
    struct queue_server *server = &w->server;
    if (server->queues) {
        wait_refuse_all(&server->creation.line, QUEUE_CLOSED);
        queues_stop_erasures(server->queues);
        queues_flush(server->queues);
        for (size_t i = 0; i < queues_count(server->queues); i++)
            wait_refuse_all(&served_of(queues_at(server->queues, i))->puts, QUEUE_CLOSED);
        nng_ingest_close(&w->ingest); /* every batch is answered before this call */
        overflow_close(&server->overflow);
        for (size_t i = 0; i < queues_count(server->queues); i++) {
            struct named_queue *q = queues_at(server->queues, i);
            stats_remove_gauges(daemon_stats(server->loop.daemon), q);
            free(served_of(q)->eviction);
            free(served_of(q));
            named_queue_set_data(q, NULL);
        }
    }
    stats_remove_gauges(daemon_stats(server->loop.daemon), server);
    scrubber_stop(&w->scrubber);
    disk_guard_free(&server->guard);
    queues_free(&server->queues);
    loop_timer_free(&server->loop.timer);
    if (w->notify)
        loop_notify_free(&w->notify);
    heap_free(&server->loop.waits);
    records_free(&server->records);
    buf_free(&server->frames);
    free(w);
}

static int start(struct daemon *d, void **ctx, struct error *error)
{
    struct wiring *w = mem_zalloc(sizeof *w);
    struct queue_loop *loop = &w->server.loop;
    loop->daemon = d;
    loop->armed = INT64_MAX;
    w->server.creation.loop = loop;
    const struct options *o = daemon_options(d);
    struct queue_server *server = &w->server;
    struct stats *stats = daemon_stats(d);
    int64_t max_mget = options_int(o, "max_mget");
    settings_host_name(o, server->name);
    server->max_message = (size_t)options_int(o, "max_message");
    server->lines = options_bool(o, "lines");
    server->max_items = max_mget ? (size_t)max_mget : SIZE_MAX;
    server->mget_separator = settings_separator(o, "mget_item_sep");
    server->mput_separator = settings_separator(o, "mput_item_sep");
    server->duplicates =
        stats_counter(stats, "duplicates_total", NULL, "puts whose messages were already stored");
    server->creation.unmade = stats_counter(
        stats, "queues_unmade_total", NULL, "requests refused because their queue could not be created");
    server->refused = stats_counter(stats, "refused_total", NULL, "requests that a queue refused");
    settings_warn(o);
    w->notify = loop_notify_new(daemon_base(d), on_notify, w);
    loop->timer = loop_timer_new(daemon_base(d), on_timer, w);
    int status = open_parts(w, o, error);
    if (status != 0) {
        stop(w);
        return status;
    }
    *ctx = w;
    daemon_set_not_ready(d, NOTICE_RECOVERING, DAEMON_WAIT, "recovering");
    daemon_post(d, recover_next, w);
    return 0;
}

static void hangup(void *ctx)
{
    overflow_reopen(((struct wiring *)ctx)->server.overflow);
}

static void drain(void *ctx)
{
    struct wiring *w = ctx;
    nng_ingest_stop(w->ingest);
    wait_stop(&w->server.loop);
    queue_loop_check_drained(&w->server.loop);
}

#define GET_OR_POST (HTTP_GET_ | HTTP_POST_)
#define MARKS "producer mark next opening"
#define READY HTTP_ROUTE_WHEN_READY /* excludes inspections, which work even after the storage has failed */
#define BITLY HTTP_ROUTE_LENIENT    /* unknown parameters are ignored, as in bitly's simplequeue */
#define NO_HEAD HTTP_ROUTE_NO_HEAD
#define TOKEN HTTP_ROUTE_NEEDS_TOKEN

static const struct http_route queue_routes[] = {
    HTTP_ROUTE("/put", GET_OR_POST, READY | BITLY | NO_HEAD | HTTP_ROUTE_DECODES_BODY, http_put,
        "queue data delay " MARKS, "put one message: ?data= or the body, ?delay="),
    HTTP_ROUTE("/mput", GET_OR_POST, READY | BITLY | NO_HEAD | HTTP_ROUTE_DECODES_BODY, http_mput,
        "queue data separator delay " MARKS, "put messages: ?separator=&delay="),
    HTTP_ROUTE("/get", GET_OR_POST, READY | BITLY | NO_HEAD, http_get, "queue", "take one message"),
    HTTP_ROUTE("/mget", GET_OR_POST, READY | BITLY | NO_HEAD, http_mget, "queue items separator",
        "take messages: ?items=&separator="),
    HTTP_ROUTE("/dump", GET_OR_POST, BITLY, http_dump, "queue from", "list the ready messages: ?from="),
    HTTP_ROUTE("/reserve", GET_OR_POST, READY | NO_HEAD, http_reserve,
        "queue items lease wait reader ack follow from settle mark opening destination",
        "lease messages: ?items=&lease=&wait=&reader=&ack=; as the follower: "
        "?follow=&from=&settle=&mark=&opening=&items=&wait=&destination="),
    HTTP_ROUTE("/ack", GET_OR_POST, READY | NO_HEAD, http_ack, "queue lease id",
        "delete leased messages: ?lease=&id="),
    HTTP_ROUTE("/nack", GET_OR_POST, READY | NO_HEAD, http_nack, "queue lease id delay",
        "return leased messages: ?lease=&id=&delay="),
    HTTP_ROUTE("/bury", GET_OR_POST, READY | NO_HEAD, http_bury, "queue lease id reason follow",
        "bury leased messages: ?lease=&id=&reason=; as the follower: ?follow=&id=&reason="),
    HTTP_ROUTE("/touch", GET_OR_POST, READY | NO_HEAD, http_touch, "queue lease extend",
        "extend a lease: ?lease=&extend="),
    HTTP_ROUTE("/release", GET_OR_POST, READY | NO_HEAD, http_release, "queue reader",
        "end a reader's leases: ?reader="),
    HTTP_ROUTE("/follow", GET_OR_POST, READY | NO_HEAD, http_follow, "queue reader",
        "follow a queue as its only reader: ?reader="),
    HTTP_ROUTE("/unfollow", GET_OR_POST, READY | NO_HEAD, http_unfollow, "queue follow settle destination",
        "end a follow: ?follow=&settle=&destination="),
    HTTP_ROUTE("/producer", GET_OR_POST, 0, http_producer, "queue producer", "a producer's mark: ?producer="),
    HTTP_ROUTE("/producers", GET_OR_POST | HTTP_DELETE_, 0, http_producers, "queue producer mark",
        "every producer's mark; POST ?producer=&mark= sets one; DELETE ?producer= removes one"),
    HTTP_ROUTE("/dead", GET_OR_POST | HTTP_DELETE_, 0, http_dead, "queue items from id",
        "list the buried messages: ?items=&from=; DELETE ?id= deletes them"),
    HTTP_ROUTE("/kick", GET_OR_POST, READY | NO_HEAD, http_kick, "queue items id",
        "make buried messages ready again: ?items= or ?id=; with a body, the body instead of the message "
        "id="),
    HTTP_ROUTE("/pause", HTTP_POST_, READY | TOKEN, http_pause, "queue for",
        "pause deliveries: ?for=MS, 0 ends the pause"),
    HTTP_ROUTE("/empty", HTTP_POST_, READY | TOKEN, http_empty, "queue", "delete the ready messages"),
    HTTP_ROUTE("/erase", GET_OR_POST, 0, http_erase, "queue",
        "POST: remove the bytes of deleted messages from the files; GET: the state of this erasure"),
    HTTP_ROUTE("/exit", GET_OR_POST, TOKEN | NO_HEAD, http_exit, NULL, "stop the daemon, as SIGTERM does"),
    {0},
};

int main(int argc, char **argv)
{
    static const struct daemon_spec spec = {
        .name = "simplequeue",
        .summary = "a queue of messages over HTTP, for the applications of one host",
        .options = settings_rows,
        .default_port = PORT_SIMPLEQUEUE,
        .routes = queue_routes,
        .check = settings_check,
        .start = start,
        .hangup = hangup,
        .drain = drain,
        .stop = stop,
        .extra_stats = stats_extra,
        .reset_stats = stats_reset,
    };
    return daemon_main(&spec, argc, argv);
}
