/* sums: the counts of one question, added up in the shape that the answer needs.
 *
 * 1. Sums have a copy of their query, so a further question may have a changed query: another counter or span.
 * 2. Counts by minute come from /minutes of the aggregator (docs/guide/protocol.md), which sends only the largest keys.
 *    If the counts of several cells are added, each aggregator sends all keys, and the texts are looked up afterwards.
 * 3. Only the parts of the shape get counts. Reset sums are empty, but a set keeps its names. */
#ifndef MILLRACE_SUMS_H
#define MILLRACE_SUMS_H

#include "api/breakdown.h"
#include "api/histogram.h"
#include "api/series_set.h"

/* SUMS_COMPARISON: `series`, and `before` for the earlier span. SUMS_HISTOGRAM: `histogram`, with totals in `series`. */
enum sums_shape { SUMS_SERIES, SUMS_COMPARISON, SUMS_HISTOGRAM, SUMS_SET, SUMS_BREAKDOWN };

struct sums {
    enum sums_shape shape;
    struct query query, query_before; /* query_before: for the earlier span of a comparison */
    struct series series, before;
    struct histogram histogram;
    struct series_set set;
    struct breakdown breakdown;
    struct series_bounds bounds; /* of a sum of all time */
    struct {
        int64_t total; /* total of all keys; the breakdown has only the largest keys */
        size_t distinct;
        bool is_selected;
    } minutes; /* of a breakdown by minute */
};

/* A set needs its names (series_set.h). */
struct sums *sums_new(const struct query *q, enum sums_shape shape);
void sums_free(struct sums **s);
void sums_reset(struct sums *s);
size_t sums_bytes(const struct sums *s); /* 0 if `s` is NULL */
/* Appends the target of the question for the counts. */
void sums_append_target(const struct sums *s, struct buf *target);
/* Returns false if the record is malformed or of another counter. */
bool sums_add(struct sums *s, const struct record *r);
/* Must be called after the last sums_add. Limits the rows as series_trim does. */
bool sums_finish(struct sums *s, uint64_t max_rows);
/* Returns a series with the same units as every series of the answer. */
struct series *sums_first_series(struct sums *s);
/* True if a sum exceeds 64 bits. */
bool sums_are_too_large(struct sums *s);
/* True if the archive has dropped hours that the counts need. */
bool sums_need_dropped_hours(struct sums *s);

#endif
