/* promql_world: series in memory as a metric_source, and the language of Prometheus' files of tests.
 *
 *     load 10s
 *       up{job="a"} 0 1x3 _ stale 5+2x10
 *     eval instant at 1m sum(up)
 *       {} 3
 *     eval range from 0 to 1m step 30s up
 *       up{job="a"} 0 1 _
 *     eval_fail instant at 1m up + on() up
 *     eval_ordered instant at 1m topk(2, up)
 *     clear
 *
 * Each instant query is also evaluated as a range query of three steps, as Prometheus does. */
#ifndef MILLRACE_PROMQL_WORLD_H
#define MILLRACE_PROMQL_WORLD_H

#include "promql/promql.h"

struct world_series;

struct promql_world {
    struct world_series *series;
    size_t n, cap;
    int64_t width; /* of the buckets, in milliseconds; 1 keeps each sample by itself */
    bool refuses;  /* each select fails */
    size_t n_selects;
    struct metric_request last; /* the numbers of the latest request */
};

#define WORLD_STALE 1e308 /* the value that ends a series */

/* Adds a sample to the series of a selector such as up{job="a"}. The times of a series rise. */
void world_add(struct promql_world *w, const char *series, int64_t time, double value);
/* Adds the samples of a description such as "0 1x3 _ stale 5+2x10" from time 0 on. Returns false if it is invalid. */
bool world_load(struct promql_world *w, const char *series, const char *values, int64_t step);
struct metric_source world_source(struct promql_world *w);
void world_free(struct promql_world *w);

/* Writes an answer, a series a line: up{job="a"} 1@10 2@20. */
void world_describe(const struct promql_result *result, struct buf *out);

struct world_report {
    size_t passed, failed;
    struct buf skipped; /* a line for each query that has an unsupported part: the part's name */
    size_t n_skipped;
    struct buf failures; /* the reasons */
};

/* Runs the commands of a text. */
void world_run(struct promql_world *w, const char *file, struct bytes text, struct world_report *report);

#endif
