#include "sortdb/sortdb_metrics.h"

#include "sortdb/sortdb_app.h"

static double served(const void *ctx, uint64_t (*number)(struct generation_info info))
{
    const struct app *app = ctx;
    return app->generation ? (double)number(generation_info(app->generation)) : 0;
}

static uint64_t number_of(struct generation_info info)
{
    return info.number;
}

static uint64_t records_of(struct generation_info info)
{
    return info.records;
}

static uint64_t bytes_of_info(struct generation_info info)
{
    return info.bytes;
}

static double read_generation(void *ctx)
{
    return served(ctx, number_of);
}

static double read_records(void *ctx)
{
    return served(ctx, records_of);
}

static double read_bytes(void *ctx)
{
    return served(ctx, bytes_of_info);
}

void metrics_register(struct app *app)
{
    struct stats *s = daemon_stats(app->daemon);
    app->get_hits = stats_counter(s, "get_hits_total", NULL, "keys asked by get and mget that are there");
    app->get_misses = stats_counter(s, "get_misses_total", NULL, "keys asked by get and mget that are not");
    app->fwmatch_hits = stats_counter(s, "fwmatch_hits_total", NULL, "prefixes that some key has");
    app->fwmatch_misses = stats_counter(s, "fwmatch_misses_total", NULL, "prefixes that no key has");
    app->reloads = stats_counter(s, "reloads_total", NULL, "generations taken, the first included");
    app->failed_reloads = stats_counter(s, "reload_failures_total", NULL, "generations refused");
    stats_gauge(s, "served_generation", NULL, "the generation served", read_generation, app);
    stats_gauge(s, "served_records", NULL, "records served", read_records, app);
    stats_gauge(s, "served_bytes", NULL, "bytes of the files served", read_bytes, app);
}
