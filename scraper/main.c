/* scraper: connects the list of targets, the loop that scrapes them and the outbox that publishes to the event loop. */
#include "base/log.h"
#include "config/peers.h"
#include "http/client/http_pool.h"
#include "scraper/coordinator.h"
#include "scraper/scraper_server.h"
#include "scraper/scraper_settings.h"
#include "scraper/target_files.h"
#include "scraper/target_names.h"
#include "scraper/targets_put.h"
#include "stream/slot_outbox.h"
#include "stream/stream_program.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sysexits.h>

#define AHEAD_MAX ((uint64_t)60 * USEC_PER_SEC) /* of the mark; after a restart, scrapes begin at the mark */

struct wiring {
    struct scraper scraper;
    struct http_pool *pubsub;
    struct outbox *outbox;
    struct target_defaults defaults;
    struct target_files *files;
    struct target_names *names;
    char *token; /* of the targets; NULL: none */
    struct share share;
    struct coordinator *coordinator; /* NULL: the share is a shard */
    bool is_renamed;                 /* addresses of names have changed */
    bool is_missing;                 /* a path of `files` has no file, which is logged */
};
static_assert(offsetof(struct wiring, scraper) == 0, "handlers get the address of its first member");

/* Appends a target for each address of the names in `dns`. Without a list, only asks for the names. */
static void list_names(struct wiring *w, struct target_list *list)
{
    const char *rest = options_text(daemon_options(w->scraper.daemon), "dns"), *addresses;
    struct bytes word, address;
    struct error error;
    char host[256];
    int port;
    while (bytes_next_word(&rest, " ,", &word)) {
        if (!scraper_read_name(word, host, &port))
            continue;
        addresses = target_names_find(w->names, host);
        while (list && bytes_next_word(&addresses, " ", &address)) {
            char *text = mem_printf("%.*s:%d", (int)address.len, address.ptr, port);
            struct target *t = target_new(bytes_str(text), NULL, 0, &w->defaults, &error);
            free(text);
            if (t)
                *ARRAY_ADD(list->all, list->n, list->cap) = t;
        }
    }
}

static void set_targets(struct wiring *w)
{
    struct target_list list = {0};
    target_files_list(w->files, &list);
    list_names(w, &list);
    w->is_renamed = false;
    targets_select(&list, &w->share);
    scrape_loop_set(w->scraper.loop, &list);
    log_info("targets read", LOG_U("targets", list.n));
    targets_free(&list);
}

/* Reports a mark that is far ahead of the clock: it is another process's, or the clock was set back. */
static void report_floor(struct wiring *w)
{
    char text[200];
    uint64_t floor = outbox_floor(w->outbox), now = (uint64_t)daemon_trusted_time(w->scraper.daemon);
    snprintf(text, sizeof text,
        "scrapes are dropped until the clock reaches %" PRIu64 ", the mark of the producer",
        floor / USEC_PER_SEC);
    daemon_set_notice(w->scraper.daemon, "mark", NOTICE_ALARM, "correct the clock, or set another `producer`",
        floor > now + AHEAD_MAX ? text : NULL);
}

static void report_files(struct wiring *w)
{
    const char *missing = target_files_missing(w->files);
    char *text = missing ? mem_printf("no file of targets: %s", missing) : NULL;
    if (missing && !w->is_missing)
        log_warn("no file of targets", LOG_S("path", missing));
    w->is_missing = missing != NULL;
    daemon_set_notice(w->scraper.daemon, "files", NOTICE_WARNING,
        "correct the file; its earlier targets stay in the list", target_files_error(w->files));
    daemon_set_notice(
        w->scraper.daemon, "no_file", NOTICE_WARNING, "create the file, or correct `files`", text);
    free(text);
}

static void look(struct wiring *w)
{
    list_names(w, NULL); /* so that no name is forgotten */
    if (target_files_look(w->files) || w->is_renamed)
        set_targets(w);
    report_files(w);
    report_floor(w);
    if (w->coordinator)
        daemon_set_notice(w->scraper.daemon, "zookeeper", NOTICE_WARNING,
            "check the ZooKeeper servers; each scraper needs its own `producer`",
            coordinator_trouble(w->coordinator));
}

static void on_names(void *arg)
{
    struct wiring *w = arg;
    w->is_renamed = true; /* the next tick asks for the addresses */
    if (w->coordinator)
        coordinator_resolve(w->coordinator);
}

static void on_share(void *arg)
{
    set_targets(arg);
}

/* At SIGHUP, and once a second. */
static void hangup(void *ctx)
{
    look(ctx);
}

static void on_change(const char *trouble, void *arg)
{
    struct wiring *w = arg;
    char *text = trouble ? mem_printf("scrapes wait for pubsub: %s", trouble) : NULL;
    stream_program_set_trouble(w->scraper.daemon, text);
    free(text);
    if (daemon_is_draining(w->scraper.daemon) && outbox_is_empty(w->outbox))
        daemon_drained(w->scraper.daemon);
}

static void on_drop(uint64_t owner, struct bytes lines, void *arg)
{
    struct wiring *w = arg;
    if (w->scraper.loop)
        scrape_loop_take_back(w->scraper.loop, owner, lines);
}

static int start_outbox(struct wiring *w, struct options *o, struct error *error)
{
    struct http_pool_config pool = {.url = peer_url(o, "pubsub"),
        .max_connections = 1,
        .timeout = options_int(o, "publish_timeout") * USEC_PER_MSEC,
        .backoff_min = options_int(o, "backoff_min") * USEC_PER_MSEC,
        .backoff_max = options_int(o, "backoff_max") * USEC_PER_MSEC};
    w->pubsub = daemon_pool_new(w->scraper.daemon, options_string(o, "pubsub_token_file"), &pool, error);
    if (!w->pubsub)
        return EX_CONFIG;
    w->outbox = outbox_new(&(struct outbox_config){.base = daemon_base(w->scraper.daemon),
        .pool = w->pubsub,
        .stream = options_string(o, "stream"),
        .producer = options_string(o, "producer"),
        .pieces = "scrapes",
        .max_bytes = (size_t)options_int(o, "buffer_bytes"),
        .publish_max = (size_t)options_int(o, "publish_max"),
        .backoff_min = pool.backoff_min,
        .backoff_max = pool.backoff_max,
        .stats = daemon_stats(w->scraper.daemon),
        .on_change = on_change,
        .on_drop = on_drop,
        .arg = w});
    return EX_OK;
}

static void start_coordinator(struct wiring *w, const struct options *o)
{
    w->coordinator = coordinator_new(&(struct coordinator_config){.base = daemon_base(w->scraper.daemon),
        .names = w->names,
        .share = &w->share,
        .files = w->files,
        .servers = options_string(o, "zookeeper"),
        .path = options_string(o, "zookeeper_path"),
        .name = options_string(o, "producer"),
        .timeout = options_int(o, "zookeeper_timeout") * USEC_PER_MSEC,
        .stats = daemon_stats(w->scraper.daemon),
        .on_change = on_share,
        .arg = w});
}

static int start(struct daemon *d, void **ctx, struct error *error)
{
    struct options *o = daemon_options(d);
    struct wiring *w = mem_zalloc(sizeof *w);
    *ctx = w;
    w->scraper.daemon = d;
    w->defaults = scraper_defaults(o);
    unsigned shard, n_shards;
    scraper_read_shard(o, &shard, &n_shards);
    if (!options_text(o, "zookeeper"))
        share_set_shard(&w->share, shard, n_shards);
    int status = daemon_read_token(options_text(o, "target_token_file"), &w->token, error);
    if (status == EX_OK)
        status = start_outbox(w, o, error);
    if (status != EX_OK)
        return status;
    w->names = target_names_new(daemon_base(d), options_int(o, "dns_refresh") * USEC_PER_MSEC, on_names, w);
    if (!w->names) {
        error_set(error, -1, "cannot start the thread that resolves names: %s", strerror(errno));
        return EX_TEMPFAIL;
    }
    struct scrape_loop_config loop = {
        .daemon = d, .outbox = w->outbox, .names = w->names, .share = &w->share, .token = w->token};
    scraper_configure(o, &loop);
    w->scraper.loop = scrape_loop_new(&loop);
    w->files = target_files_new(options_text(o, "files"), &w->defaults);
    w->is_renamed = true;
    if (options_text(o, "zookeeper"))
        start_coordinator(w, o);
    look(w);
    daemon_set_tick(d, USEC_PER_SEC, hangup);
    daemon_set_not_ready(d, NOTICE_RECOVERING, DAEMON_WAIT, "asking pubsub for the producer's mark");
    return EX_OK;
}

/* Publishes the scrapes that have ended. Meanwhile other scrapers take the targets. */
static void drain(void *ctx)
{
    struct wiring *w = ctx;
    scrape_loop_stop(w->scraper.loop);
    coordinator_free(&w->coordinator);
    if (outbox_is_empty(w->outbox))
        daemon_drained(w->scraper.daemon);
}

static void stop(void *ctx)
{
    struct wiring *w = ctx;
    coordinator_free(&w->coordinator);
    scrape_loop_free(&w->scraper.loop);
    target_names_free(&w->names);
    outbox_free(&w->outbox);
    http_pool_free(&w->pubsub);
    target_files_free(&w->files);
    share_free(&w->share);
    free(w->token);
    free(w);
}

int main(int argc, char **argv)
{
    static const struct daemon_spec spec = {
        .name = "scraper",
        .summary = "scrapes metrics from targets and publishes the samples to a stream, exactly once",
        .options = scraper_settings,
        .default_port = PORT_SCRAPER,
        .routes = scraper_routes,
        .check = scraper_check_settings,
        .instead = targets_put,
        .start = start,
        .hangup = hangup,
        .drain = drain,
        .stop = stop,
    };
    return daemon_main(&spec, argc, argv);
}
