/* stats: a daemon's metrics, defined once and shown as /stats (text, JSON) and /metrics (Prometheus text 0.0.4).
 *
 * A registry holds counters (which only grow), gauges (read when shown) and latency histograms. Labels tell members of one family
 * apart (endpoint="/put").
 *
 * 1. Adding to a counter or histogram takes one or two relaxed atomic additions, from any thread, without a lock.
 * 2. Names have no prefix: `messages_put_total` is shown as millrace_<daemon>_messages_put_total. Counters end in _total, times in
 *    _seconds, sizes in _bytes (asserted on registration).
 * 3. A handle is valid until stats_free. Only gauges and counters that are read elsewhere can be removed.
 * 4. All histograms have the same bounds, from 10 us to 60 s, two or three a decade. */
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

/* `labels` is the text between the braces (queue="default"), already escaped; copied; NULL for none. The same name and labels
 * return the same handle. */
struct stats_counter *stats_counter(struct stats *s, const char *name, const char *labels, const char *help);
struct stats_histogram *stats_histogram(
    struct stats *s, const char *name, const char *labels, const char *help);
void stats_observe(struct stats_histogram *h, usec_t took);
/* The q-quantile (0..1), rounded up to a bound, in microseconds. */
usec_t stats_quantile(const struct stats_histogram *h, double q);
uint64_t stats_observations(const struct stats_histogram *h);

/* A gauge is read by `read(ctx)` on the printing thread. ctx must live until the gauge is removed or the registry freed. */
typedef double stats_gauge_fn(void *ctx);
void stats_gauge(
    struct stats *s, const char *name, const char *labels, const char *help, stats_gauge_fn *read, void *ctx);
/* A counter kept elsewhere and read when shown, like a gauge. It must never decrease. */
void stats_counter_read(
    struct stats *s, const char *name, const char *labels, const char *help, stats_gauge_fn *read, void *ctx);
void stats_remove_gauges(struct stats *s, const void *ctx); /* also counters, all with this ctx */

/* Appends every family in order of registration, with # HELP and # TYPE once each, then
 * millrace_<daemon>_build_info and the process's uptime, resident memory and open descriptors. */
void stats_print_metrics(const struct stats *s, struct buf *out);
/* The same as `name{labels}: value` lines; histograms as count, p50, p90 and p99 in milliseconds. */
void stats_print_text(const struct stats *s, struct buf *out);
/* The same as JSON members `"name":value,"family":{"labels":value},...` without braces: a daemon adds its own members. */
void stats_print_json_members(const struct stats *s, struct buf *out);

#endif
