/* promql: parses expressions of PromQL and evaluates them over a metric_source.
 *
 *     struct promql *query = promql_parse(text, &error);
 *     if (promql_evaluate(query, source, &request, &result, &error) == PROMQL_OK)
 *         promql_json(&out, max_bytes, &result);
 *     promql_result_free(&result);
 *     promql_free(&query);
 *
 * 1. With at most one sample in each bucket, an answer is that of Prometheus 2.42. In particular, a range contains both of its ends.
 * 2. A bucket with several samples belongs to a range if its last sample lies in the range.
 *    - An instant selector sees the last sample of each bucket. Inside a bucket, the value is that of the bucket before.
 *    - rate and increase divide a bucket at an edge of the range, as if its counter rose linearly. So their error is less than the rise
 *      of the two buckets at the edges. Resets inside buckets count.
 *    - sum, avg, min, max, count, last, present and absent_over_time are exact for ranges that consist of whole buckets.
 *    - delta, idelta, irate, deriv and predict_linear see the last sample of each bucket; changes and resets count at most
 *      one in a bucket; quantile_over_time sees averages. The answer has a warning.
 * 3. The width of buckets is at most a tenth of the range or step. It may be the step if the edges of all ranges are multiples
 *    of the step.
 * 4. Refused by name: native histograms, count_values, stddev_over_time, stdvar_over_time and holt_winters.
 * 5. All memory of an evaluation lies within `max_bytes` and is freed with its result. Time is bounded by `stop`.
 *
 * A parsed query is never changed. Threads may evaluate one query at the same time, if the source allows it. */
#ifndef MILLRACE_PROMQL_H
#define MILLRACE_PROMQL_H

#include "base/error.h"
#include "metrics/metric_source.h"

#define PROMQL_TEXT_MAX ((size_t)64 << 10)
#define PROMQL_DEPTH_MAX 250    /* of nested parts of an expression */
#define PROMQL_PATTERNS_MAX 200 /* in matchers */
#define PROMQL_LOOKBACK 300000

enum promql_result_code {
    PROMQL_OK,
    PROMQL_BAD_QUERY, /* "LINE:COLUMN: parse error: REASON", or a pattern that the source refuses */
    PROMQL_FAILED,    /* the expression has no answer over these series, such as a match of many to many */
    PROMQL_TOO_MANY,  /* a limit of the request is exceeded; the text names the limit */
    PROMQL_STOPPED,   /* `stop` returned true */
    PROMQL_NO_SOURCE, /* the source failed; the text is the source's */
};

enum promql_type { PROMQL_SCALAR, PROMQL_VECTOR, PROMQL_MATRIX, PROMQL_STRING };

struct promql;

/* Borrows `text` only until the call returns. Returns NULL with the code PROMQL_BAD_QUERY. */
struct promql *promql_parse(struct bytes text, struct error *error);
enum promql_type promql_type(const struct promql *query);
void promql_free(struct promql **query);

/* Parses a selector without range, offset and @, as /api/v1/series has it in `match[]`. The matchers belong to the query. Returns
 * NULL with the code PROMQL_BAD_QUERY. */
struct promql *promql_parse_selector(
    struct bytes text, const struct label_matcher **matchers, size_t *n_matchers, struct error *error);

/* Times are in milliseconds since 1970. An instant query has start == end and step 0, and then the answer has the type of the
 * query. The answer of a range query is a matrix; its query must be a scalar or a vector. */
struct promql_request {
    int64_t start, end, step;
    int64_t lookback;               /* 0: PROMQL_LOOKBACK */
    size_t max_steps;               /* 0: 11,000 */
    size_t max_series, max_buckets; /* of all selectors together; 0: unlimited */
    size_t max_bytes;               /* of the evaluation's memory without the source's; 0: 256 MiB */
    bool (*stop)(void *context);    /* polled during the evaluation; NULL: never */
    void *context;
};

struct promql_point {
    int64_t time;
    double value;
};

struct promql_series {
    const struct metric_label *labels; /* sorted by name, without empty values */
    size_t n_labels;
    const struct promql_point *points; /* in the order of time; one in a vector */
    size_t n_points;
};

/* Zeroed before the call. All texts and arrays belong to the result. A scalar is one series without labels. A matrix is in the
 * order of labels; the order of a vector is that of sort, topk and bottomk, or otherwise that of labels. */
struct promql_result {
    enum promql_type type;
    struct promql_series *series;
    size_t n_series;
    struct bytes text; /* of a string */
    int64_t time;      /* the time of an instant query */
    const char *const *warnings;
    size_t n_warnings;
    int64_t
        width; /* of the widest buckets that the query could read, unless finer ones are deleted (milliseconds) */
    struct arena *memory;
};

/* On an error the result is empty and needs no promql_result_free. */
enum promql_result_code promql_evaluate(const struct promql *query, const struct metric_source *source,
    const struct promql_request *request, struct promql_result *result, struct error *error);
void promql_result_free(struct promql_result *result);

/* True if the value of a step depends on no later time and not on the other steps: the query has no `@` and no negative offset. Then
 * the answers of two range queries whose starts differ by a multiple of their step are equal at common steps. */
bool promql_is_stepwise(const struct promql *query);
/* Joins two answers of a stepwise range query: the steps of `a` from `from` to `to`, and those of `b`, which are later. The result
 * shares no memory with either. Returns false, with an empty result, if it needs more than max_bytes. */
bool promql_join(const struct promql_result *a, int64_t from, int64_t to, const struct promql_result *b,
    size_t max_bytes, struct promql_result *out);

#endif
