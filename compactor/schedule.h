/* schedule: the times of repeated runs.
 *
 * Runs are due at `at` and at every multiple of `every` before and after it, in UTC. Multiples count from Monday, 5 January 1970:
 * `every` of seven days is due on Mondays, and a day that is not a multiple of `every` shifts the time of day.
 *
 * 1. A run that was due while no process ran is due at once (schedule_due).
 * 2. A failed run is repeated after a minute; the delay doubles up to an hour and never passes the next due time.
 * 3. A clock that was set back delays a run by `every` at most.
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

/* Parses "04:00". */
bool schedule_parse_at(struct bytes text, int64_t *at);
/* The first due time after `t`. */
int64_t schedule_next(const struct schedule *s, int64_t t);
/* When the next run is due. `last` is the time of the last complete run. Since then `failures` runs have failed, the
 * last of them at `failed`. */
int64_t schedule_due(const struct schedule *s, int64_t last, int64_t failed, unsigned failures, int64_t now);

#endif
