/* units: the calendar's units (hour, day, week, mweek, month) as instants, in a zone.
 *
 * A unit is known by its start, an instant in unix seconds. Counts are kept by the UTC hour; an hour belongs to the
 * unit that its first second lies in by the local calendar, daylight saving included.
 *
 * 1. A day starts at the first instant whose local date it is; where clocks jump over midnight, at the jump.
 * 2. A date that a zone never had (Samoa, 30 December 2011) is no unit.
 * 3. Membership goes by local date, never by comparing instants: a zone whose clocks go back over midnight has hours
 *    of the old day behind the start of the new one (St John's before 2012).
 * Pure but for zone.h.
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

/* The start of the unit that `t` lies in; of the next and of the n-th before the one that starts at `start`. */
int64_t units_start(const struct calendar *c, int64_t t);
int64_t units_next(const struct calendar *c, int64_t start);
int64_t units_back(const struct calendar *c, int64_t start, int64_t n);

/* 2012-03-25T01:00:00+00:00 for an hour, 2012-03-25 for the others. */
void units_print_date(const struct calendar *c, int64_t start, struct buf *out);

#endif
