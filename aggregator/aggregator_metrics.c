#include "aggregator/aggregator_metrics.h"

#include "aggregator/aggregator_app.h"

#include <stdlib.h>

struct metrics {
    struct app *app;
    struct aggregate_numbers shown;
    struct stats_counter *events, *skipped, *rejected, *rows, *collisions, *holes;
    struct stats_histogram *flush_seconds;
};

void metrics_update(struct metrics *m)
{
    struct aggregate_numbers n;
    aggregate_numbers(m->app->aggregate, &n);
    stats_add(m->events, n.counted.events - m->shown.counted.events);
    stats_add(m->skipped, n.counted.skipped - m->shown.counted.skipped);
    stats_add(m->rejected, n.counted.rejected - m->shown.counted.rejected);
    stats_add(m->rows, n.rows_flushed - m->shown.rows_flushed);
    stats_add(m->collisions, n.collisions - m->shown.collisions);
    stats_add(m->holes, n.holes - m->shown.holes);
    if (n.flushes != m->shown.flushes)
        stats_observe(m->flush_seconds, n.last_flush);
    m->shown = n;
}

static double lag_bytes(void *ctx)
{
    struct app *app = ctx;
    uint64_t lag = 0;
    for (size_t i = 0; i < app->streams.n; i++)
        lag += watermark_poll_lag(app->watermark, i);
    return (double)lag;
}

static double memory_bytes(void *ctx)
{
    struct aggregate_numbers n;
    aggregate_numbers(((struct app *)ctx)->aggregate, &n);
    return (double)n.memory;
}

static double sealed_slices(void *ctx)
{
    return (double)aggregate_sealed(((struct app *)ctx)->aggregate)->n;
}

static double complete_until(void *ctx)
{
    return (double)watermark_poll_complete_until(((struct app *)ctx)->watermark);
}

struct metrics *metrics_new(struct app *app)
{
    struct metrics *m = mem_zalloc(sizeof(*m));
    m->app = app;
    aggregate_numbers(app->aggregate, &m->shown);
    struct stats *s = daemon_stats(m->app->daemon);
    m->events =
        stats_counter(s, "events_counted_total", NULL, "events counted since the start of the process");
    m->skipped = stats_counter(s, "lines_skipped_total", NULL, "lines skipped because of skip_if");
    m->rejected = stats_counter(s, "lines_rejected_total", NULL, "lines written to the rejects file");
    m->rows = stats_counter(s, "rows_flushed_total", NULL, "rows written to the slice");
    m->collisions =
        stats_counter(s, "lookup_collisions_total", NULL, "collisions of two texts with the same hash");
    m->holes = stats_counter(s, "holes_crossed_total", NULL, "holes in streams crossed");
    m->flush_seconds = stats_histogram(
        s, "flush_seconds", NULL, "time from the swap of a batch to its committed transaction");
    stats_gauge(
        s, "lag_bytes", NULL, "bytes published but not counted, as of the latest poll", lag_bytes, m->app);
    stats_gauge(s, "unwritten_bytes", NULL, "memory of counts not yet in the slice", memory_bytes, m->app);
    stats_gauge(s, "sealed_slices", NULL, "sealed slices not yet cleared", sealed_slices, m->app);
    stats_gauge(s, "complete_until_seconds", NULL, "every event published before this time is counted",
        complete_until, m->app);
    return m;
}

void metrics_free(struct metrics **mp)
{
    struct metrics *m = *mp;
    *mp = NULL;
    if (!m)
        return;
    stats_remove_gauges(daemon_stats(m->app->daemon), m->app);
    free(m);
}
