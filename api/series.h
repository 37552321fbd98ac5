/* series: counts by unit over [from, to). A unit without events has the count 0.
 *
 * 1. The first row is the unit that contains `from`. The last row is the unit of the last hour before `to`. Only hours that start
 *    in [from, to) count, so both rows may be partial.
 * 2. The total is the sum of the rows.
 */
#ifndef MILLRACE_SERIES_H
#define MILLRACE_SERIES_H

#include "api/query.h"
#include "counts/records.h"

struct series_row {
    int64_t start;
    uint64_t n;
};
struct series {
    const struct query *query;
    size_t n, cap;
    struct series_row *rows;
    int64_t end; /* of the last row */
    uint64_t total;
};

/* The query must outlive the series. */
void series_init(struct series *s, const struct query *q);
void series_free(struct series *s);
/* Resets every row to 0. */
void series_reset(struct series *s);
/* Adds a record of the total, or one hour's record of the subtotal. False: the record is malformed or of another counter. */
bool series_add(struct series *s, const struct record *r);
/* The end of a row: the start of the next unit. */
int64_t series_row_end(const struct series *s, size_t row);

#endif
