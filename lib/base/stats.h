/* stats: a daemon's numbers, said once, shown as /stats (text, JSON) and /metrics (Prometheus text 0.0.4).
 *
 * A registry holds counters (only grow), gauges (asked for when shown) and latency histograms. Each is
 * described by a static row; labels tell members of one family apart (endpoint="/put").
 *
 * 1. Adding to a counter or histogram is one relaxed atomic add or two: any thread may, nothing is locked.
 * 2. Names are without the prefix: `messages_put_total` is shown as millrace_<daemon>_messages_put_total.
 *    Counters end in _total, times in _seconds, sizes in _bytes (asserted on registration).
 * 3. What was registered stays until stats_free, but for what is read from elsewhere; a handle is valid as long.
 * 4. Histograms have fixed bounds from 10 us to 60 s, two or three a decade, the same everywhere.
 */
#ifndef MILLRACE_STATS_H
#define MILLRACE_STATS_H

#include "base/bytes.h"
#include "base/clock.h"
#include <stdatomic.h>

struct stats;

struct stats_counter {
    _Atomic uint64_t n;
};
struct stats_histogram;

static inline void stats_add(struct stats_counter *c, uint64_t n)
{
    atomic_fetch_add_explicit(&c->n, n, memory_order_relaxed);
}
static inline uint64_t stats_read(const struct stats_counter *c)
{
    return atomic_load_explicit(&c->n, memory_order_relaxed);
}

struct stats *stats_new(const char *daemon);
void stats_free(struct stats **s);

/* `labels` is what stands between the braces ({queue="default"} without them), already escaped, copied;
 * NULL for none. The same name and labels again give the same handle. */
struct stats_counter *stats_counter(struct stats *s, const char *name, const char *labels, const char *help);
struct stats_histogram *stats_histogram(
    struct stats *s, const char *name, const char *labels, const char *help);
void stats_observe(struct stats_histogram *h, usec_t took);
/* The smallest bound that at least the share q (0..1) of observations lie under, in microseconds. */
usec_t stats_quantile(const struct stats_histogram *h, double q);
uint64_t stats_observations(const struct stats_histogram *h);

/* A gauge is read from `read(ctx)` on the thread that prints; ctx must live until the gauge is removed or
 * the registry freed. */
typedef double stats_gauge_fn(void *ctx);
void stats_gauge(
    struct stats *s, const char *name, const char *labels, const char *help, stats_gauge_fn *read, void *ctx);
/* A counter that somebody else keeps: read when shown, as a gauge is, and never less than before. */
void stats_counter_read(
    struct stats *s, const char *name, const char *labels, const char *help, stats_gauge_fn *read, void *ctx);
void stats_remove_gauges(struct stats *s, const void *ctx); /* all, of both, whose ctx this is */

/* Appends every family in order of registration, with # HELP and # TYPE once each, then
 * millrace_<daemon>_build_info and the process's uptime, resident memory and open descriptors. */
void stats_print_metrics(const struct stats *s, struct buf *out);
/* The same numbers as `name{labels}: value` lines, and as one JSON object {"name": value, "family":
 * {"labels": value}}; histograms as count, p50, p90, p99 in milliseconds. */
void stats_print_text(const struct stats *s, struct buf *out);
/* Appends `"name":value,...` without braces, so that a daemon can put its own members beside them. */
void stats_print_json_members(const struct stats *s, struct buf *out);

#endif
