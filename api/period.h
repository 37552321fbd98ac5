/* period: the times and periods that a query may name instead of Unix seconds.
 *
 *     times      1332633600   2012-03-25T01:00:00+01:00   2012-03-25 (the start of that day in the calendar's zone)
 *     periods    today yesterday   this-week last-week   this-month last-month   this-year last-year
 *                24h 7d 4w 12mo: the last N hours, days, weeks or months, with the current one; a leading - is allowed
 *                2012   2012-03   2012-03-25
 *
 * Days, weeks, months and years are those of the calendar's zone and week_start. */
#ifndef MILLRACE_PERIOD_H
#define MILLRACE_PERIOD_H

#include "api/units.h"

#define PERIOD_EXAMPLES "today, yesterday, this-week, last-month, 24h, 7d, 2012-03 or all"

/* Each returns false if the text is not a time or a period, or names a date before 1970 or one that does not exist in the zone. */
bool period_time(const struct calendar *c, struct bytes text, int64_t *out);
struct period {
    int64_t from, to; /* hours that start in [from, to) */
    enum unit unit;   /* the period is `n` of these */
    int64_t n;
};
/* `now`: Unix seconds. */
bool period_named(const struct calendar *c, struct bytes text, int64_t now, struct period *out);
/* Return true if the text has the form of a date in which period_time or period_named read it, whether that date exists or not. */
bool period_time_is_date(struct bytes text);
bool period_is_date(struct bytes text);
/* Returns the start of the period of the same units that ends where this period begins. */
int64_t period_before(const struct calendar *c, const struct period *p);
/* The same local time a year before. 29 February becomes 1 March. */
int64_t period_year_before(const struct calendar *c, int64_t t);

#endif
