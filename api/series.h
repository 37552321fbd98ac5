/* series: counts by unit over [from, to). A unit without events has the count 0.
 *
 * The series stores only units with counts. series_next computes one row per call. Therefore a long series
 * does not block the loop, and empty rows take no memory.
 *
 * 1. The first row is the unit that contains the first hour from `from` on. The last row is the unit that contains the
 *    last hour before `to`.
 *    Only hours that start in [from, to) are counted, so the first and the last row may cover only a part of their
 *    units.
 * 2. The total is the sum of the rows.
 * 3. Each source sends its hours in ascending order, and the counts of several sources are added in any order. A run
 *    stores counts in the order of their units. A count is added to a run whose latest unit is before the unit of the
 *    count: the nearest of these runs. So there are at most as many runs as sources. */
#ifndef MILLRACE_SERIES_H
#define MILLRACE_SERIES_H

#include "api/query.h"
#include "counts/records.h"

#define SERIES_RUNS_MAX 4 /* of each cell: twice the number of its sources */

struct series_row {
    int64_t start, end; /* start of the unit, and start of the next unit */
    int64_t n;
    int64_t events; /* count of the same row in the series `events`, if there is such a series */
};
struct series_count {
    int64_t unit; /* number of the unit (units_order) */
    int64_t n;
};
/* All hours in [from, to) are in the unit `unit`. */
struct series_span {
    int64_t from, to, unit;
};
struct series_run {
    struct series_count *counts;
    size_t n, cap;
    size_t at; /* index of the first count that no row includes yet */
};
struct series {
    const struct query *query;
    struct series_run *runs;
    size_t n_runs, runs_cap, run; /* `run`: run of the latest count */
    struct series_span latest;    /* span of the unit of the latest count */
    int64_t total;
    int64_t so_far;      /* counts before the query's part_end */
    int64_t rows_so_far; /* counts before the query's row_part_end */
    int64_t taken;       /* counts of the rows that series_next has returned */
    bool
        is_part_unknown; /* a day whose hours the archive has dropped is partly before part_end or row_part_end */
    int64_t absolute;  /* sum of the counts' absolute values, which bounds every sum of the counts */
    bool is_too_large; /* `absolute` exceeds 64 bits; later counts are not added */
    bool
        needs_dropped_hours; /* a day whose hours the archive has dropped is in two units, or only partly in the span */
    int64_t from, to;    /* span of the rows; before series_trim, the span of the query */
    int64_t first, last; /* first and last hour with counts; first > last: no counts */
    struct query_over over;
    struct series *events; /* divisors of the rows' means; NULL: no means */
    int64_t next;          /* start of the next row */
    int64_t end;           /* every row starts before this time */
    size_t n_rows;         /* number of rows that series_next has returned */
};

/* The periods of the first and the last record of a subtotal. */
struct series_bounds {
    struct record_key first, last; /* only `start` and `unit` are used */
    bool has_records;
};

/* The query must outlive the series. */
void series_init(struct series *s, const struct query *q);
/* Discards and frees all counts. */
void series_reset(struct series *s);
size_t series_bytes(const struct series *s);
/* Copies all counts into `to`, which must be empty. Both series must have equal queries, and no row may have been
 * taken. */
void series_copy(struct series *to, const struct series *from);
/* Adds the counts of a total's record, or of a subtotal's record of an hour, a day or a month. Returns false if the
 * record is malformed, out of order or of another counter. */
bool series_add(struct series *s, const struct record *r);
/* Checks a period for a caller that parses records of subtotals. Returns false if the counts of the period must not
 * be added, because the period is outside the span or not within one row. */
bool series_takes(struct series *s, const struct record_key *period);
/* Adds the count `n` of the period that starts at `start`. Returns false if the periods of a source are out of order. */
bool series_add_count(struct series *s, int64_t start, int64_t n);
/* Must be called after the last series_add. For a query of all time, limits the rows to the units from the first to
 * the last count, or to the current unit. Returns false if more than max_rows rows remain. */
bool series_trim(struct series *s, uint64_t max_rows);
/* Notes a record of a subtotal. */
void series_bounds_note(struct series_bounds *b, const struct record *r);
/* Sets the first and the last day of a query of all time from the series of the key's total, which has each hour. If the
 * total does not have the first or the last counts of the subtotal, which may be imported, uses the periods of `b`. */
void series_bound_all(struct series *total, const struct series_bounds *b, struct query *q);
/* Computes the next row. Returns false if no rows remain. */
bool series_next(struct series *s, struct series_row *row);
/* Returns the number of events before row_part_end in `row`, the latest row, which contains row_part_end. */
int64_t series_part(const struct series *s, const struct series_row *row);
/* Returns the count of the next row. A caller that knows the units of the rows (units_order) may use series_take
 * instead of series_next. */
int64_t series_take(struct series *s, int64_t unit);

#endif
