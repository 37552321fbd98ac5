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
    app->get_hits = stats_counter(s, "get_hits_total", NULL, "keys found by get and mget");
    app->get_misses = stats_counter(s, "get_misses_total", NULL, "keys not found by get and mget");
    app->fwmatch_hits = stats_counter(s, "fwmatch_hits_total", NULL, "fwmatch requests with records");
    app->fwmatch_misses = stats_counter(s, "fwmatch_misses_total", NULL, "fwmatch requests without records");
    app->reloads = stats_counter(s, "reloads_total", NULL, "generations opened, including the first");
    app->failed_reloads = stats_counter(s, "reload_failures_total", NULL, "generations that failed to open");
    stats_gauge(s, "served_generation", NULL, "number of the current generation", read_generation, app);
    stats_gauge(s, "served_records", NULL, "records served", read_records, app);
    stats_gauge(s, "served_bytes", NULL, "size of the current files", read_bytes, app);
}
