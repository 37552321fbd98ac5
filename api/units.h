/* units: calendar units (hour, day, week, mweek, month) in a time zone.
 *
 * A unit is identified by its start in Unix seconds. Counts are kept by UTC hour; an hour belongs to the unit of the local calendar in which
 * it starts, daylight saving included.
 *
 * 1. A day starts at the first instant with its local date; where clocks skip midnight, at the jump.
 * 2. A date that a zone skipped (Samoa, 30 December 2011) is not a unit.
 * 3. Membership goes by local date, never by comparing instants: where clocks go back over midnight, hours of the old day follow the
 *    start of the new one (St John's before 2012).
 * No clock; reads zones only.
 */
#ifndef MILLRACE_UNITS_H
#define MILLRACE_UNITS_H

#include "api/zone.h"

#define HOUR_SECONDS INT64_C(3600)

enum unit { UNIT_HOUR, UNIT_DAY, UNIT_WEEK, UNIT_MWEEK, UNIT_MONTH };

/* 0 is Sunday. A week starts on week_start, an mweek on Monday. */
struct calendar {
    struct zone zone;
    enum unit unit;
    int week_start;
};

bool unit_find(struct bytes name, enum unit *out);
const char *unit_name(enum unit u);
/* "sunday" to "saturday" */
bool weekday_find(struct bytes name, int *out);

/* The start of the unit that contains `t`; of the unit after, and the n-th before, the one at `start`. */
int64_t units_start(const struct calendar *c, int64_t t);
int64_t units_next(const struct calendar *c, int64_t start);
int64_t units_back(const struct calendar *c, int64_t start, int64_t n);

/* 2012-03-25T01:00:00+00:00 for an hour, 2012-03-25 for other units. */
void units_print_date(const struct calendar *c, int64_t start, struct buf *out);

#endif
