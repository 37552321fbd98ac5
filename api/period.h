/* period: the times and periods that a query may name instead of Unix seconds.
 *
 *     times      1332633600   2012-03-25T01:00:00+01:00   2012-03-25 (the start of that day in the calendar's zone)
 *     periods    today yesterday   this-week last-week   this-month last-month   this-year last-year
 *                24h 7d 4w 12mo: the last N units, with the current unit; a leading - is allowed
 *                2012   2012-03   2012-03-25
 *
 * Days, weeks, months and years are those of the calendar's zone and week_start. If the calendar's unit is an mweek,
 * weeks begin on Monday. */
#ifndef MILLRACE_PERIOD_H
#define MILLRACE_PERIOD_H

#include "api/units.h"

#define PERIOD_EXAMPLES "today, yesterday, this-week, last-month, 24h, 7d, 2012-03 or all"

/* period_time and period_named return false if the text has no valid form, or names a date before 1970 or a date
 * that does not exist in the zone. */
bool period_time(const struct calendar *c, struct bytes text, int64_t *out);
struct period {
    int64_t from, to; /* the period contains the hours that start in [from, to) */
    enum unit unit;   /* unit of the period, which has `n` units */
    int64_t n;
};
/* `now`: Unix seconds. */
bool period_named(const struct calendar *c, struct bytes text, int64_t now, struct period *out);
/* The next two functions return true if the text has the form of a date for period_time or period_named, even if
 * the date does not exist. */
bool period_time_is_date(struct bytes text);
bool period_is_date(struct bytes text);
/* Returns the start of the period of the same units that ends where this period begins. */
int64_t period_before(const struct calendar *c, const struct period *p);
/* Returns the same local time one year earlier. 29 February becomes 1 March. */
int64_t period_year_before(const struct calendar *c, int64_t t);

#endif
