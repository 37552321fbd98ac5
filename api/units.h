/* units: calendar units (minute, 15m, hour, day, week, mweek, month) in a time zone.
 *
 * A unit is identified by its start in Unix seconds. The counters keep hours or quarter hours of UTC. Each belongs to the
 * unit that contains its first second, in local time.
 *
 * A zone is an IANA zone or a fixed offset. The first request for an IANA zone reads the file of the zone below
 * /usr/share/zoneinfo. The table is kept until the process ends (zone_table.h), so changed files need a restart.
 *
 * 1. A day starts at the first second for which clocks show the date of the day. If the clocks skip midnight, the day
 *    starts at the jump.
 * 2. A local date that a zone skips, such as 30 December 2011 in Samoa, is not a unit.
 * 3. An hour belongs to the day whose date the clocks show. If the clocks go back over midnight, they show the old
 *    date again, so hours of the old day follow after the start of the new day.
 * 4. The name of a zone is a path below /usr/share/zoneinfo. A name consists of parts of [A-Za-z0-9_+-], joined by
 *    '/', so a name cannot lead outside this directory.
 * 5. An hour starts when clocks show a full hour, or when the offset changes. The same holds for a quarter hour.
 * 6. One thread only. */
#ifndef MILLRACE_UNITS_H
#define MILLRACE_UNITS_H

#include "api/zone_table.h"

#define ZONE_DIRECTORY "/usr/share/zoneinfo"
#define ZONE_NAME_MAX 64
#define ZONE_OFFSET_FIRST (-12) /* hours */
#define ZONE_OFFSET_LAST 14

struct zone {
    bool fixed;
    int32_t offset;               /* seconds east of UTC, if `table` is NULL */
    struct zone_table *table;     /* table of an IANA zone, kept until the process ends; NULL: fixed offset */
    char name[ZONE_NAME_MAX + 1]; /* "America/New_York", or "-05:00" */
};

/* Finds an IANA zone. Returns false, without a change of *out, if the zone does not exist. */
bool zone_find(struct bytes name, struct zone *out);
/* Sets *out to a fixed number of hours east of UTC, ZONE_OFFSET_FIRST..ZONE_OFFSET_LAST. */
void zone_fixed(int hours, struct zone *out);

/* Returns local time minus UTC, in seconds. */
int64_t zone_offset(const struct zone *z, int64_t utc);
/* Returns the span around `utc` in which the zone's offset does not change. */
struct zone_span zone_span_at(const struct zone *z, int64_t utc);

#define HOUR_SECONDS INT64_C(3600)
#define QUARTER_SECONDS INT64_C(900)
#define MINUTE_SECONDS INT64_C(60)

enum unit { UNIT_MINUTE, UNIT_QUARTER, UNIT_HOUR, UNIT_DAY, UNIT_WEEK, UNIT_MWEEK, UNIT_MONTH };

/* A week starts on week_start (0 is Sunday), an mweek on Monday. */
struct calendar {
    struct zone zone;
    enum unit unit;
    int week_start;
};

bool unit_find(struct bytes name, enum unit *out);
const char *unit_name(enum unit u);
/* `name` is "sunday" to "saturday". */
bool weekday_find(struct bytes name, int *out);

/* Returns a number that identifies the unit of time `t`, and is larger for later units. units_order is faster than
 * units_start. */
int64_t units_order(const struct calendar *c, int64_t t);
/* Returns the same number as units_order. All hours that start in [*from, *to) are in this unit. */
int64_t units_span(const struct calendar *c, int64_t t, int64_t *from, int64_t *to);
/* Returns the start of the unit that contains the time `t`. */
int64_t units_start(const struct calendar *c, int64_t t);
/* Returns the start of the unit after the unit that starts at `start`. */
int64_t units_next(const struct calendar *c, int64_t start);
/* Returns the start of the n-th unit before the unit that starts at `start`. */
int64_t units_back(const struct calendar *c, int64_t start, int64_t n);

/* Prints 2012-03-25T01:00:00+00:00 for an hour or a part of an hour, 2012-03-25 for other units. */
void units_print_date(const struct calendar *c, int64_t start, struct buf *out);

#endif
