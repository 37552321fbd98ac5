/* stats: a daemon's metrics, registered once and shown as /stats (text, JSON) and /metrics (Prometheus text 0.0.4).
 *
 * A registry contains counters (which only grow), gauges (whose values a callback returns) and latency histograms.
 * Metrics with the same name form a family, in which labels (endpoint="/put") distinguish them. Every registry shows the process's
 * uptime, resident memory, open descriptors, and the numbers of logged errors and dropped log lines.
 *
 * 1. Any thread may add to a counter or histogram. An addition takes one or two relaxed atomic additions and no lock.
 * 2. Register names without a prefix: /metrics shows `messages_put_total` as millrace_<daemon>_messages_put_total.
 *    Names of counters end in _total and names of histograms end in _seconds; the registration asserts these endings.
 * 3. Any thread may register and print metrics. Callbacks of gauges run under the registry's lock, so they must not
 *    use the registry. A callback may take a lock under which no thread uses the registry. A reply to a request uses
 *    the registry, because the server registers the status of the reply. A handle is valid until stats_free. Only a
 *    gauge can be removed.
 * 4. A histogram of latencies has bounds from 10 us to 60 s, two or three per decade. A histogram of delays has
 *    bounds from 1 s to 365 days, and its sum omits fractions of a second. */
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

/* `labels` is the escaped text between the braces of a metric (queue="default"). `labels` is copied and may be NULL.
 * Two calls with the same name and labels return the same handle. */
struct stats_counter *stats_counter(struct stats *s, const char *name, const char *labels, const char *help);
struct stats_histogram *stats_histogram(
    struct stats *s, const char *name, const char *labels, const char *help);
struct stats_histogram *stats_delay_histogram(
    struct stats *s, const char *name, const char *labels, const char *help);
void stats_observe(struct stats_histogram *h, usec_t took);
/* The q-quantile (q is 0..1) in microseconds, rounded up to a bound of the histogram. */
usec_t stats_quantile(const struct stats_histogram *h, double q);
uint64_t stats_observations(const struct stats_histogram *h);
/* The mean in microseconds; 0 without observations. */
usec_t stats_mean(const struct stats_histogram *h);

/* The thread that prints the metrics calls `read(ctx)` to get a gauge's value. `ctx` must stay valid until the gauge
 * is removed or the registry is freed. If a gauge's name ends in _total, /metrics shows the value as a counter, and
 * the value must never decrease. */
typedef double stats_gauge_fn(void *ctx);
/* Defines a function that returns the value of an expression with `ctx`. */
#define STATS_READ(FUNCTION, VALUE)                                                                          \
    static double FUNCTION(void *ctx)                                                                        \
    {                                                                                                        \
        return (double)(VALUE);                                                                              \
    }
void stats_gauge(
    struct stats *s, const char *name, const char *labels, const char *help, stats_gauge_fn *read, void *ctx);
struct stats_row {
    const char *name, *help;
    stats_gauge_fn *read;
};
/* Registers a gauge for each row. A row with a NULL name ends the table. */
void stats_gauges(struct stats *s, const struct stats_row *rows, const char *labels, void *ctx);
void stats_remove_gauges(struct stats *s, const void *ctx); /* removes all gauges with this ctx */

/* Appends every family in order of registration, each with one # HELP and one # TYPE line, then
 * millrace_<daemon>_build_info. A histogram without observations has no lines: with two dozen series for each endpoint, most
 * of the samples of an idle daemon would be zeros. */
void stats_print_metrics(struct stats *s, struct buf *out);
/* Appends a line `name{labels}: value` for each metric. The value of a histogram is its count, and p50, p90 and p99
 * in milliseconds. */
void stats_print_text(struct stats *s, struct buf *out);
/* Appends JSON members `"name":value,"family":{"labels":value},...` without braces, so that a
 * daemon can add members. */
void stats_print_json_members(struct stats *s, struct buf *out);

#endif
