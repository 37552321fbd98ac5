/* metricdb: connects the store of samples, the feed of the stream and the threads of queries to the event loop. */
#include "metricdb/metricdb_server.h"
#include "metricdb/metricdb_settings.h"
#include "metricdb/sample_feed.h"

#include "base/io.h"
#include "config/peers.h"
#include "daemon/daemon_directory.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sysexits.h>

struct wiring {
    struct metricdb server;
    struct sample_feed *feed;
    struct width_gauge {
        struct sample_store *store;
        size_t index;
    } widths[SAMPLE_STORE_WIDTHS];
};
static_assert(offsetof(struct wiring, server) == 0, "handlers get the address of its first member");

static void on_tick(void *ctx)
{
    sample_feed_tick(((struct wiring *)ctx)->feed);
}

static struct sample_store_stats stats_of(struct sample_store *store)
{
    struct sample_store_stats s;
    sample_store_stats(store, &s);
    return s;
}

#define STORE_GAUGE(NAME)                                                                                    \
    static double NAME(void *ctx)                                                                            \
    {                                                                                                        \
        return (double)stats_of(ctx).NAME;                                                                   \
    }
STORE_GAUGE(series)
STORE_GAUGE(open_bytes)
STORE_GAUGE(cuts)
STORE_GAUGE(merges)
STORE_GAUGE(deleted)

#define WIDTH_GAUGE(NAME)                                                                                    \
    static double NAME(void *ctx)                                                                            \
    {                                                                                                        \
        const struct width_gauge *w = ctx;                                                                   \
        return (double)stats_of(w->store).widths[w->index].NAME;                                             \
    }
WIDTH_GAUGE(blocks)
WIDTH_GAUGE(bytes)
WIDTH_GAUGE(buckets)

STATS_READ(running, query_pool_running(ctx))
STATS_READ(waiting, query_pool_waiting(ctx))
STATS_READ(cached, answer_cache_bytes(ctx))

static void register_stats(struct wiring *w)
{
    static const struct stats_row store_rows[] = {
        {"series", "series with recent samples", series},
        {"open_bytes", "memory of samples that no block has, and of their series", open_bytes},
        {"blocks_written_total", "blocks of new samples", cuts},
        {"merges_total", "blocks merged from smaller blocks", merges},
        {"blocks_deleted_total", "blocks deleted by retention", deleted},
        {0},
    };
    static const struct stats_row width_rows[] = {
        {"blocks", "files with buckets of this width", blocks},
        {"block_bytes", "size of these files", bytes},
        {"buckets", "buckets in these files", buckets},
        {0},
    };
    static const struct stats_row pool_rows[] = {
        {"queries_running", "queries in a thread", running},
        {"queries_waiting", "queries that wait for a thread", waiting},
        {0},
    };
    static const struct stats_row cache_rows[] = {
        {"query_cache_bytes", "memory of the answers that are kept", cached},
        {0},
    };
    struct stats *s = daemon_stats(w->server.daemon);
    const struct sample_store_stats now = stats_of(w->server.store);
    stats_gauges(s, store_rows, NULL, w->server.store);
    stats_gauges(s, pool_rows, NULL, w->server.pool);
    if (w->server.cache)
        stats_gauges(s, cache_rows, NULL, w->server.cache);
    for (size_t i = 0; i < SAMPLE_STORE_WIDTHS && now.widths[i].width > 0; i++) {
        char labels[40];
        snprintf(labels, sizeof labels, "seconds=\"%" PRId64 "\"", now.widths[i].width / 1000);
        w->widths[i] = (struct width_gauge){w->server.store, i};
        stats_gauges(s, width_rows, labels, &w->widths[i]);
    }
    w->server.reused = stats_counter(
        s, "query_steps_reused_total", NULL, "steps of range queries that were answered from kept answers");
    w->server.timeouts =
        stats_counter(s, "queries_refused_total", NULL, "queries that took too long or found no thread");
}

static int open_store(struct wiring *w, struct options *o, struct error *error)
{
    struct sample_store_config config = {0};
    const char *dir = options_string(o, "data_dir");
    if (daemon_lock_directory(dir, error) != 0)
        return daemon_start_status(errno);
    metricdb_configure(o, &config);
    char *blocks = mem_printf("%s/" METRICDB_BLOCKS, dir);
    config.dir = blocks;
    int status = EX_CONFIG;
    if (io_make_dirs(blocks) != 0)
        error_errno(error, -1, blocks);
    else if ((w->server.store = sample_store_open(&config, error)))
        status = EX_OK;
    free(blocks);
    return status;
}

static int start(struct daemon *d, void **ctx, struct error *error)
{
    struct options *o = daemon_options(d);
    struct wiring *w = mem_zalloc(sizeof *w);
    *ctx = w;
    w->server.daemon = d;
    w->server.limits = metricdb_limits(o);
    int status = open_store(w, o, error);
    if (status != EX_OK)
        return status;
    w->server.pool = query_pool_new(daemon_base(d), (size_t)options_int(o, "query_threads"));
    if (!w->server.pool) {
        error_set(error, -1, "cannot start the threads of queries: %s", strerror(errno));
        return EX_TEMPFAIL;
    }
    size_t cache = (size_t)options_int(o, "query_cache");
    w->server.cache = cache > 0 ? answer_cache_new(cache) : NULL;
    register_stats(w);
    daemon_set_not_ready(d, NOTICE_RECOVERING, DAEMON_WAIT, "reading the stream");
    w->feed = sample_feed_new(d, w->server.store, error);
    if (!w->feed)
        return EX_CONFIG;
    daemon_set_tick(d, USEC_PER_SEC, on_tick);
    return EX_OK;
}

static void drain(void *ctx)
{
    struct wiring *w = ctx;
    atomic_store(&w->server.is_stopping, true);
    daemon_drained(w->server.daemon);
}

static void stop(void *ctx)
{
    struct wiring *w = ctx;
    query_pool_free(&w->server.pool);
    answer_cache_free(&w->server.cache);
    sample_feed_free(&w->feed);
    sample_store_close(&w->server.store);
    free(w);
}

int main(int argc, char **argv)
{
    static const struct daemon_spec spec = {
        .name = "metricdb",
        .summary = "stores the samples of metrics, and answers Prometheus' HTTP API",
        .options = metricdb_settings,
        .default_port = PORT_METRICDB,
        .routes = metricdb_routes,
        .check = metricdb_check_settings,
        .start = start,
        .drain = drain,
        .stop = stop,
    };
    return daemon_main(&spec, argc, argv);
}
