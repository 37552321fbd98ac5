/* count_scan: reads the counts of a snapshot as rows, in the order of records.
 *
 *     ns    key      sub   period          unit    n
 *     u     jehiah         2012-04-01 03   hour    2        a total
 *     c.u   jehiah   JP    2012-04-01 03   hour    1        a subtotal
 *
 * 1. Each count is in exactly one row. With PERIOD_QUARTER, a row is an hour or quarter hour as it was counted, except that
 *    a day whose hours the archive has dropped is one row. With a larger unit, each row is a whole hour, day or month in
 *    UTC: the sum of a rollup of the archive, of its parts without a rollup, and of the counts of slices.
 * 2. A scan returns a rollup or its parts, never both. Sets of unique counters are not read.
 * 3. A scan reads all records that match the bounds, and may return further rows. The caller compares again.
 * 4. A scan with ns and key takes one search in one shard and in each run of the slices. A scan with a key takes such a search for
 *    each namespace. Inside a scan, a long run of records outside the bounds is skipped by a search. */
#ifndef MILLRACE_COUNT_SCAN_H
#define MILLRACE_COUNT_SCAN_H

#include "counts/records.h"
#include "sql/sql_snapshot.h"

struct count_scan;

/* Bounds with a NULL pointer do not apply. `key` and `sub` are stored forms. A period matches if it begins in
 * [from, end). */
struct count_scan_bounds {
    struct bytes ns, key, sub;
    int64_t from, end;
    enum period_unit unit;
};

struct count_row {
    struct bytes ns, key; /* `key` and `sub` are stored forms */
    struct bytes sub;     /* NULL: a total */
    enum period_unit unit;
    int64_t start;
    int64_t n;
};

/* Copies the bounds. The snapshot must not be ended before the scan is freed. */
struct count_scan *count_scan_new(struct sql_snapshot *snapshot, const struct count_scan_bounds *bounds);
void count_scan_free(struct count_scan **s);
/* Sets *row to the next row, valid until the next call. COUNT_FAILED: the error is set. The code of the error is an enum
 * count_failure. */
enum count_next count_scan_next(struct count_scan *s, struct count_row *row, struct error *error);

#endif
