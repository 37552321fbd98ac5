/* series: counts by unit over [from, to). A unit without events has the count 0.
 *
 * The series stores only units with counts. series_next computes one row at a time. So a long series takes many short
 * turns of the loop, and its empty rows take no memory.
 *
 * 1. The first row is the unit that contains `from`. The last row is the unit that contains the last hour before `to`.
 *    Only hours that start in [from, to) are counted, so the first and the last row may cover only a part of their
 *    units.
 * 2. The total is the sum of the rows.
 * 3. Each source sends its hours in ascending order. For each source, a run stores the counts in the order of their
 *    units.
 */
#ifndef MILLRACE_SERIES_H
#define MILLRACE_SERIES_H

#include "api/query.h"
#include "counts/records.h"

#define SERIES_RUNS_MAX 4

struct series_row {
    int64_t start, end; /* the end is the start of the next unit */
    uint64_t n;
};
struct series_count {
    int64_t unit; /* units_order */
    uint64_t n;
};
/* All hours from `from` to before `to` are in this unit. */
struct series_span {
    int64_t from, to, unit;
};
struct series_run {
    struct series_count *counts;
    size_t n, cap;
    size_t at; /* the first count that no row has included yet */
};
struct series {
    const struct query *query;
    struct series_run runs[SERIES_RUNS_MAX];
    size_t n_runs;
    struct series_span latest; /* of the latest count */
    uint64_t total;
    bool is_too_large; /* the total exceeds 2^64 - 1 */
    bool
        needs_dropped_hours; /* of a day of which the archive has no hours, and which lies in two units or partly in the span */
    int64_t from, to;    /* the span of the rows; before series_trim the query's */
    int64_t first, last; /* hours with counts; first > last: none */
    struct query_over over;
    int64_t next;  /* start of the next row */
    size_t n_rows; /* so far */
};

/* The query must outlive the series. */
void series_init(struct series *s, const struct query *q);
/* Discards everything added, and frees it. */
void series_reset(struct series *s);
size_t series_bytes(const struct series *s);
/* Copies all counts into `to`, which is empty. Both series have the same question, and no row was taken. */
void series_copy(struct series *to, const struct series *from);
/* Adds counts of the total's record, or of the record of an hour, a day or a month of the subtotal. False: the record is malformed, out of order or of
 * another counter. */
bool series_add(struct series *s, const struct record *r);
/* For a caller that reads records of subtotals itself. False: the period lies outside the span, or in no single row, so its counts are not
 * added. */
bool series_takes(struct series *s, const struct record_key *period);
/* Adds the events of the period that starts at `start`. False: the periods of a source are out of order. */
bool series_add_count(struct series *s, int64_t start, uint64_t n);
/* Call it after the last series_add. For a query of all time, limits the rows to those from the first to the last
 * unit with counts, or to the current unit. Returns false if more than max_rows remain. */
bool series_trim(struct series *s, uint64_t max_rows);
/* Computes the next row. False: there are no more rows. */
bool series_next(struct series *s, struct series_row *row);
/* Instead of series_next, for a caller that knows the units of the rows (units_order): the count of the next row. */
uint64_t series_take(struct series *s, int64_t unit);

#endif
