/* histogram: the counts of a subtotal by bucket (bucket.h), and their quantiles, over a span or for each unit of a series.
 *
 * The quantile q of n numbers is the number with the rank ceil(q * n) in ascending order, at least the first. Its bucket is
 * exact; the answer has the middle of the bucket. Events without a number (`None`) are left out.
 *
 * 1. The sums of the counts, the rows and the span are those of a series, to which the histogram adds the events that have a
 *    bucket.
 * 2. A histogram whose subtotal has counted events as `(other)` is not exact, and must be refused: has_others. */
#ifndef MILLRACE_HISTOGRAM_H
#define MILLRACE_HISTOGRAM_H

#include "api/series.h"

struct histogram_count {
    int64_t unit; /* number of the day, week or other unit of the query (units_order); 0: no units */
    int64_t n;
    int bucket;
};
struct histogram {
    struct histogram_count *counts; /* after histogram_finish sorted by unit and bucket, one of each */
    size_t n, cap;
    bool has_others; /* a sub key is not a bucket */
};

void histogram_free(struct histogram *h);
static inline size_t histogram_bytes(const struct histogram *h)
{
    return h->cap * sizeof *h->counts;
}
/* Adds a record of the query's subtotal. Returns false if the record is malformed or of another counter. */
bool histogram_add(struct histogram *h, struct series *s, const struct record *r);
/* Must be called after the last histogram_add. */
void histogram_finish(struct histogram *h);
/* Sets *bucket to the bucket of the quantile q / QUERY_QUANTILE_ONE. Returns false if the unit has no counts. */
bool histogram_quantile(const struct histogram *h, int64_t unit, int64_t q, int *bucket);

#endif
