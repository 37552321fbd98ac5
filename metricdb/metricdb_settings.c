#include "metricdb/metricdb_settings.h"

#include "metricdb/query_pool.h"
#include "stream/stream_program.h"

#define DAY_MS INT64_C(86400000)
#define KEEP_MAX (36500 * DAY_MS)

#define KEEP(NAME, DEFAULT, HELP) SETTING_DURATION((NAME), (DEFAULT), 0, KEEP_MAX, "s", HELP " (0: always)")

const struct option_row metricdb_settings[] = {
    SETTING_STRING(
        "data_dir", "directory of the blocks (required; `millrace up` sets it)", .min = 1, .max = 4096),
    PEER_OPTIONS("pubsub", "pubsub", ""),
    SETTING_STRING("stream", "stream of pubsub with the samples", .fallback = "metrics"),
    SETTING_STRING("cursor",
        "cursor at pubsub, up to which retention may delete lines; give each metricdb of a stream its own",
        .fallback = "metricdb", .min = 1, .max = NAME_LEN_MAX),
    SETTING_DURATION("resolution", "10s", 1000, 60000, "s",
        "width of the finest buckets, a divisor of 1 minute; it cannot change later"),
    SETTING_DURATION("block", "10m", 1000, DAY_MS, "s",
        "interval at which collected samples are written as a block; a restart reads the stream since the "
        "last block"),
    SETTING_SIZE("memory", "256M", 1 << 20, INT64_C(1) << 40,
        "size of the collected samples at which a block is written earlier"),
    SETTING_INT("max_series", "5000000", 1, 1000000000,
        "maximum series with recent samples; samples of further series are dropped"),
    KEEP("keep", "15d", "time for which buckets of the resolution are kept"),
    KEEP("keep_minutes", "90d", "time for which buckets of 1 minute are kept"),
    KEEP("keep_wide", "730d", "time for which buckets of 10 minutes, 1 hour and 1 day are kept"),
    SETTING_INT("query_threads", "2", 1, QUERY_THREADS_MAX,
        "queries that run at the same time; further queries wait"),
    SETTING_DURATION(
        "query_timeout", "30s", 10, 3600000, "s", "maximum time of a query, its wait for a thread included"),
    SETTING_INT("query_max_series", "100000", 1, 1000000000, "maximum series that a query reads"),
    SETTING_INT("query_max_buckets", "5000000", 1, 1000000000,
        "maximum buckets that a query reads, about 80 bytes of memory each"),
    SETTING_SIZE("query_max_memory", "256M", 1 << 20, INT64_C(1) << 40,
        "maximum memory of a query, without the buckets that it reads, and maximum size of its answer"),
    SETTING_SIZE("query_cache", "64M", 0, INT64_C(1) << 40,
        "memory for answers of range queries, whose steps in closed time are not evaluated again (0: none)"),
    STREAM_ACCEPT_LOSS_OPTIONS(
        "even if blocks are missing, lines of the stream expired, or the stream is a restored copy"),
    {.name = NULL},
};

int metricdb_check_settings(struct options *o, struct error *error)
{
    static const char *const keeps[] = {"keep", "keep_minutes", "keep_wide"};
    if (!options_text(o, "data_dir"))
        return options_refuse(o, "data_dir", error, "required: the directory of the blocks");
    if (60000 % options_int(o, "resolution") != 0)
        return options_refuse(
            o, "resolution", error, "must divide 1 minute without a remainder, such as 10s");
    for (size_t i = 0; i < 2; i++) {
        int64_t finer = options_int(o, keeps[i]), wider = options_int(o, keeps[i + 1]);
        if (wider != 0 && (finer == 0 || finer > wider))
            return options_refuse(o, keeps[i + 1], error, "must not be less than %s", keeps[i]);
    }
    if (options_check_name(o, "stream", error) != 0 || options_check_name(o, "cursor", error) != 0)
        return -1;
    return peer_check(o, "pubsub", error);
}

void metricdb_configure(const struct options *o, struct sample_store_config *config)
{
    config->resolution = options_int(o, "resolution");
    config->block_every = options_int(o, "block") * USEC_PER_MSEC;
    config->open_bytes = (size_t)options_int(o, "memory");
    config->series_max = (size_t)options_int(o, "max_series");
    config->keep = options_int(o, "keep");
    config->keep_minutes = options_int(o, "keep_minutes");
    config->keep_wide = options_int(o, "keep_wide");
    config->accepts_loss = options_bool(o, "accept_loss");
}

struct metric_limits metricdb_limits(const struct options *o)
{
    return (struct metric_limits){.max_series = (size_t)options_int(o, "query_max_series"),
        .max_buckets = (size_t)options_int(o, "query_max_buckets"),
        .max_bytes = (size_t)options_int(o, "query_max_memory"),
        .timeout = options_int(o, "query_timeout")};
}
