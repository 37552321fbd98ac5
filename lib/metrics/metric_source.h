/* metric_source: the input of a query: series of metrics, each with buckets of samples in the order of time.
 *
 * A bucket sums up the samples of one series in one span of time: 10 s, or one of the coarser resolutions. A query never
 * sees single samples. If each bucket has at most one sample, the buckets contain the samples exactly, and answers
 * equal those of Prometheus.
 *
 * 1. Labels are sorted by the byte order of their names, without repeated names and without empty values. `__name__`
 *    is a label. Two series of one selection never have the same labels.
 * 2. The buckets of a series are in the order of their start and never overlap. A bucket's `start` is a multiple of its width.
 * 3. `first` <= `last_at`, and both lie in the bucket, if `count` or `n_nan` is above 0.
 * 4. A stale marker and a NaN enter none of count, sum, min, max and rise. `last` may be a NaN.
 * 5. Sums, counts and rises of adjacent buckets add up, so a coarser bucket is the sum of the finer ones. */
#ifndef MILLRACE_METRIC_SOURCE_H
#define MILLRACE_METRIC_SOURCE_H

#include "base/bytes.h"
#include "base/error.h"

struct sample_bucket {
    int64_t start;    /* milliseconds since 1970 */
    int64_t first;    /* time of the first sample (milliseconds) */
    int64_t last_at;  /* time of the last sample (milliseconds) */
    int64_t stale_at; /* time of a stale marker later than `last_at`; 0: none */
    uint32_t width;   /* milliseconds */
    uint32_t count;   /* samples that are numbers */
    uint32_t n_nan;   /* samples that are NaN */
    double sum, min, max;
    double last; /* the last sample; may be a NaN */
    /* The sum, over the samples of the bucket, of the increase since the series' sample before, which may be in an
     * earlier bucket. After a fall, the increase is the sample itself: a counter was reset. 0 for the first sample. */
    double rise;
};

struct metric_label {
    struct bytes name, value;
};

/* The order of series: that of the pairs of name and value, one after the other, in byte order; a prefix is first. */
int metric_labels_compare(const struct metric_label *a, size_t n_a, const struct metric_label *b, size_t n_b);

struct metric_series {
    const struct metric_label *labels;
    size_t n_labels;
    const struct sample_bucket *buckets;
    size_t n_buckets;
};

enum matcher_type { MATCH_EQUAL, MATCH_NOT_EQUAL, MATCH_REGEX, MATCH_NOT_REGEX };

/* A label that a series does not have matches as the empty text. A pattern matches the whole value. */
struct label_matcher {
    enum matcher_type type;
    struct bytes name, value;
};

/* A request of a query. */
struct metric_request {
    const struct label_matcher *matchers; /* all must match */
    size_t n_matchers;
    int64_t from, to;  /* milliseconds: buckets whose samples may lie in (from, to] are given, perhaps more */
    int64_t max_width; /* the coarsest bucket that the query can use (milliseconds); 0: the finest */
    bool labels_only;  /* series of the span without their buckets: n_buckets is 0 */
    size_t max_series, max_buckets; /* beyond either, select fails with METRIC_TOO_MANY */
    /* Polled before each series. Once it returns true, select fails with METRIC_STOPPED. NULL: never. */
    bool (*stop)(void *stop_context);
    void *stop_context;
};

enum metric_result { METRIC_OK, METRIC_TOO_MANY, METRIC_BAD_PATTERN, METRIC_STOPPED, METRIC_FAILED };

/* The answer; zeroed before the call. All memory that `series` points to belongs to the selection until metric_selection_free. */
struct metric_selection {
    struct metric_series *series;
    size_t n_series;
    void *memory; /* the source's */
    void (*free)(struct metric_selection *selection);
};

/* A source of series. `select` may be called from any thread that the source's header names. */
struct metric_source {
    void *context;
    enum metric_result (*select)(void *context, const struct metric_request *request,
        struct metric_selection *selection, struct error *error);
    /* Returns a time (milliseconds) and sets *epoch: as long as the epoch is the same, no bucket changes that ends before this time.
     * NULL: not known. */
    int64_t (*closed)(void *context, uint64_t *epoch);
};

static inline void metric_selection_free(struct metric_selection *selection)
{
    if (selection->free)
        selection->free(selection);
    *selection = (struct metric_selection){0};
}

#endif
