/* lists: connects the lists, their feeds and the HTTP server to the event loop. */
#include "base/io.h"
#include "base/log.h"
#include "config/peers.h"
#include "daemon/daemon_directory.h"
#include "daemon/loop_notify.h"
#include "lists/edge_file.h"
#include "lists/list_feed.h"

#include <assert.h>
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <sysexits.h>

#define TICK_MIN (10 * USEC_PER_MSEC)

/* clang-format off */
#define GAUGES(ROW)                                                                                          \
    ROW("saved_keys", keys, "lists in the store")                                                            \
    ROW("saved_items", items, "items in the store")                                                          \
    ROW("saved_edges", edges, "edges in the store")                                                          \
    ROW("unsaved_keys", unsaved_keys, "lists with changes that are not saved")                               \
    ROW("unsaved_entries", unsaved_entries, "entries of lists that are not saved")                           \
    ROW("unsaved_edges", unsaved_edges, "changes of edges that are not saved")                               \
    ROW("unsaved_bytes", memory, "memory of the changes that are not saved")                                 \
    ROW("waiting_bytes", waiting, "bytes of accepted changes that are not made yet")                         \
    ROW("journal_bytes", journal_bytes, "size of the journal")                                               \
    ROW("store_bytes", store_bytes, "size of the store's file")                                              \
    ROW("operations_total", ops, "operations made")                                                          \
    ROW("entries_changed_total", entries, "entries of lists that operations have changed")                     \
    ROW("saves_total", saves, "transactions that saved changes")                                             \
    ROW("saved_keys_total", keys_saved, "lists written to the store")                                        \
    ROW("saved_items_total", items_written, "items written to the store")                                    \
    ROW("saved_edges_total", edges_saved, "changes of edges written to the store")                           \
    ROW("saved_bytes_total", bytes_saved, "bytes of lists and items written to the store")
/* clang-format on */

#define DEFINE_GAUGE(NAME, MEMBER, HELP)                                                                     \
    STATS_READ(gauge_##MEMBER, lists_stats(((struct lists_server *)ctx)->lists).MEMBER)
GAUGES(DEFINE_GAUGE)

struct wiring {
    struct lists_server server;
    struct list_feed *feed;  /* NULL: no stream */
    struct edge_file *edges; /* NULL: no file */
    struct loop_notify *notify;
};
static_assert(offsetof(struct wiring, server) == 0, "handlers get the address of its first member");

static void on_lists(void *arg)
{
    struct wiring *w = arg;
    if (w->server.lists)
        lists_poll(w->server.lists, clock_monotonic());
}

static void on_tick(void *ctx)
{
    struct wiring *w = ctx;
    lists_tick(w->server.lists, clock_monotonic());
    lists_server_repeat(&w->server);
    const char *failure = lists_failure(w->server.lists);
    if (failure)
        daemon_set_notice(w->server.daemon, "storage", NOTICE_ALARM, DAEMON_REPAIR_DISK, failure);
    daemon_set_refusing(w->server.daemon, "changes of lists", DAEMON_FREE_DISK,
        lists_is_full(w->server.lists) ? "a save has found no disk space" : NULL);
}

static double oldest_change(void *ctx)
{
    struct lists_server *server = ctx;
    usec_t first = lists_stats(server->lists).oldest_change;
    return first > 0 ? (double)(clock_monotonic() - first) / USEC_PER_SEC : 0;
}

static void register_stats(struct lists_server *server)
{
#define GAUGE_ROW(NAME, MEMBER, HELP) {NAME, HELP, gauge_##MEMBER},
    static const struct stats_row rows[] = {
        GAUGES(GAUGE_ROW){
            "oldest_change_seconds", "age of the oldest change that is not saved", oldest_change},
        {0},
    };
    struct stats *s = daemon_stats(server->daemon);
    stats_gauges(s, rows, NULL, server);
    server->reads = stats_counter(s, "reads_total", NULL, "lists read by /get");
    server->shown = stats_counter(s, "items_read_total", NULL, "items in the answers of /get");
}

static int open_lists(struct wiring *w, const struct options *o, struct error *error)
{
    struct lists_config config = {.dir = options_string(o, "data_dir"),
        .keep = (size_t)options_int(o, "keep"),
        .delay = options_int(o, "delay") * USEC_PER_MSEC,
        .memory = (size_t)options_int(o, "memory"),
        .notify = loop_notify_defer,
        .notify_arg = w->notify};
    if (daemon_lock_directory(config.dir, error) != 0)
        return daemon_start_status(errno);
    w->server.lists = lists_open(&config, clock_monotonic(), error);
    if (w->server.lists)
        return 0;
    if (error->code != LISTS_DAMAGED)
        return EX_TEMPFAIL;
    error_set(error, LISTS_DAMAGED,
        "%s; restore the directory from a backup, or delete it and add the items again", error->text);
    return EX_CONFIG;
}

static int start(struct daemon *d, void **ctx, struct error *error)
{
    struct options *o = daemon_options(d);
    struct wiring *w = mem_zalloc(sizeof *w);
    *ctx = w;
    w->server.daemon = d;
    STAILQ_INIT(&w->server.refused);
    w->notify = loop_notify_new(daemon_base(d), on_lists, w);
    int status = open_lists(w, o, error);
    if (status != 0)
        return status;
    register_stats(&w->server);
    w->server.guard = disk_guard_new(&(struct disk_guard_config){
        .daemon = d, .dir = options_string(o, "data_dir"), .what = "changes of lists"});
    if (options_text(o, "stream") && !(w->feed = list_feed_new(&w->server, error)))
        return EX_CONFIG;
    usec_t every = options_int(o, "delay") * USEC_PER_MSEC / 4;
    daemon_set_tick(d, every < TICK_MIN ? TICK_MIN : every > USEC_PER_SEC ? USEC_PER_SEC : every, on_tick);
    if (options_text(o, "edges")) {
        w->edges = edge_file_new(&w->server, options_text(o, "edges"));
        edge_file_read(w->edges);
    }
    struct lists_stats s = lists_stats(w->server.lists);
    log_info("lists opened", LOG_U("keys", s.keys), LOG_U("items", s.items), LOG_U("edges", s.edges),
        LOG_U("unsaved_keys", s.unsaved_keys));
    daemon_set_ready(d);
    return 0;
}

static void hangup(void *ctx)
{
    struct wiring *w = ctx;
    if (w->edges)
        edge_file_read(w->edges);
}

static void stop(void *ctx)
{
    struct wiring *w = ctx;
    list_feed_stop(w->feed);
    lists_close(&w->server.lists);
    list_feed_free(&w->feed);
    edge_file_free(&w->edges);
    disk_guard_free(&w->server.guard);
    loop_notify_free(&w->notify);
    free(w);
}

int main(int argc, char **argv)
{
    static const struct daemon_spec spec = {
        .name = "lists",
        .summary =
            "keeps the latest items of each list, and adds an item to the lists of an author's followers",
        .options = lists_settings,
        .is_service = true,
        .default_port = PORT_LISTS,
        .routes = lists_routes,
        .check = lists_check_settings,
        .start = start,
        .hangup = hangup,
        .stop = stop,
        .extra_stats = lists_extra_stats,
    };
    return daemon_main(&spec, argc, argv);
}
