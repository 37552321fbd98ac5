/* earlier_counts: the counts that the rows of a breakdown had in an earlier span.
 *
 * The rows are known before the records of the earlier span are read. Only the rows' counts are therefore in memory,
 * and other sub keys only add to the total. */
#ifndef MILLRACE_EARLIER_COUNTS_H
#define MILLRACE_EARLIER_COUNTS_H

#include "api/breakdown.h"

struct earlier_counts {
    const struct query *query; /* the query of the earlier span */
    int64_t *counts;           /* by index of a row */
    uint32_t *slots;           /* index of a row + 1, found by the row's stored form; 0: empty */
    size_t n_slots;            /* a power of two */
    const struct breakdown *rows;
    int64_t total;
    int64_t absolute;         /* as in struct breakdown */
    int64_t over;             /* counted as `(other)` */
    bool needs_dropped_hours; /* the span includes only a part of a day whose hours the archive has dropped */
    bool is_too_large;        /* `absolute` exceeds 64 bits; later counts are not added */
};

/* `rows` has its final rows, and must outlive `e`. */
void earlier_counts_init(struct earlier_counts *e, const struct query *q, const struct breakdown *rows);
void earlier_counts_free(struct earlier_counts *e);
/* Discards the counts. */
void earlier_counts_reset(struct earlier_counts *e);
size_t earlier_counts_bytes(const struct earlier_counts *e);
/* Adds a record, like breakdown_add. */
bool earlier_counts_add(struct earlier_counts *e, const struct record *r);

#endif
