/* series: one row a unit over [from, to), zero-filled, and the counts of hours added to them.
 *
 * 1. The first row is the unit that `from` lies in, the last the one that the last hour before `to` lies in. Only
 *    hours whose start is in [from, to) are counted, so the outer rows may be parts of their units.
 * 2. The total is the sum of the rows.
 * Pure: no clock, no network.
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
    int64_t end; /* of the last unit */
    uint64_t total;
};

/* The query is borrowed until series_free. */
void series_init(struct series *s, const struct query *q);
void series_free(struct series *s);
/* Every row back to 0, for starting over. */
void series_reset(struct series *s);
/* A record of the query's counter: of the total, or one hour of the subtotal. False when it is malformed or not of
 * this counter. */
bool series_add(struct series *s, const struct record *r);
/* The row's end: the start of the next unit. */
int64_t series_row_end(const struct series *s, size_t row);

#endif
