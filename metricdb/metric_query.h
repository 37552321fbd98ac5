/* metric_query: answers the questions of Prometheus' HTTP API from a source of series, without HTTP and without a clock.
 *
 * A question is parsed once, and then answered in any thread. Answers are the JSON documents of Prometheus:
 * {"status":"success","data":...} or {"status":"error","errorType":...,"error":...} with the status 400, 422, 500 or 503.
 *
 * 1. An answer over more than METRIC_STEPS_MAX steps is refused. Beyond the limits of series, buckets or memory, the status is 422. The
 *    limit of memory also bounds the bytes of an answer.
 * 2. The answers of series, labels and values have each item once, sorted. */
#ifndef MILLRACE_METRICDB_METRIC_QUERY_H
#define MILLRACE_METRICDB_METRIC_QUERY_H

#include "base/url.h"
#include "metricdb/answer_cache.h"

#define METRIC_STEPS_MAX 11000

enum metric_query_kind { METRIC_INSTANT, METRIC_RANGE, METRIC_SERIES, METRIC_LABELS, METRIC_VALUES };

struct metric_limits {
    size_t max_series, max_buckets, max_bytes; /* of one question (promql.h) */
    int64_t timeout;                           /* milliseconds */
};

struct metric_answer {
    int status;
    struct buf body;
    size_t reused; /* number of steps answered from the cache */
};

struct metric_query;

/* Reads the parameters. `label` is the label of METRIC_VALUES. `now` is in milliseconds. Borrows all arguments only until the
 * call returns. Returns NULL and sets the answer if a parameter is missing or invalid. */
struct metric_query *metric_query_parse(enum metric_query_kind kind, const struct url_query *params,
    struct bytes label, int64_t now, const struct metric_limits *limits, struct metric_answer *refusal);
void metric_query_free(struct metric_query **q);
/* The time for the answer (milliseconds): the parameter `timeout`, at most limits->timeout. */
int64_t metric_query_timeout(const struct metric_query *q);
/* `stop` is polled. Once it returns true, the answer is 503 with errorType `timeout`. `cache` may be NULL. */
void metric_query_answer(const struct metric_query *q, const struct metric_source *source,
    struct answer_cache *cache, bool (*stop)(void *arg), void *arg, struct metric_answer *answer);
/* Sets an answer with an error. `type` is that of Prometheus: bad_data, execution, timeout, unavailable or internal. */
void metric_answer_error(struct metric_answer *answer, const char *type, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

#endif
