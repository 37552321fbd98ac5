/* schedule: computes the times of repeated runs.
 *
 * Runs are due at `at` on Monday, 5 January 1970 (UTC), and at every multiple of `every` from this time. So an interval
 * of seven days is due on Mondays. If a day is not a multiple of `every`, the time of day changes from day to day.
 *
 * 1. A run that was due while no process ran is due at once (schedule_due).
 * 2. A failed run is repeated after a minute. The delay doubles after each failure, up to an hour, but never goes
 *    beyond the next due time.
 * 3. If the clock is set back, a run is delayed by at most `every`.
 *
 * Times are seconds since 1970.
 */
#ifndef MILLRACE_SCHEDULE_H
#define MILLRACE_SCHEDULE_H

#include "base/bytes.h"

#define SCHEDULE_EVERY_MIN 60
#define SCHEDULE_RETRY_MIN 60
#define SCHEDULE_RETRY_MAX 3600

struct schedule {
    int64_t every; /* seconds, at least SCHEDULE_EVERY_MIN */
    int64_t at;    /* seconds after midnight UTC */
};

/* Parses a time of day such as "04:00". */
bool schedule_parse_at(struct bytes text, int64_t *at);
/* Returns the first due time after `t`. */
int64_t schedule_next(const struct schedule *s, int64_t t);
/* Returns the time at which the next run is due. `last` is the time of the last complete run. Since `last`,
 * `failures` runs have failed, the latest at `failed`. */
int64_t schedule_due(const struct schedule *s, int64_t last, int64_t failed, unsigned failures, int64_t now);

#endif
