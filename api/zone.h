/* zone: how far local time is from UTC at an instant, in an IANA zone or at a fixed offset.
 *
 * The rules are the installed tz database's (/usr/share/zoneinfo), read by the C library. It knows one zone at
 * a time, that of the variable TZ, so the module keeps the last zone set and changes it when another is asked.
 *
 * 1. A name is looked up as a file only after it was found to be parts of [A-Za-z0-9_+-] joined by '/': none can
 *    leave the database's directory.
 * 2. A name without a zone file is refused here. (The C library would silently take UTC: a wrong answer.)
 * 3. One thread only: TZ belongs to the process.
 */
#ifndef MILLRACE_ZONE_H
#define MILLRACE_ZONE_H

#include "base/bytes.h"

#define ZONE_NAME_MAX 64
#define ZONE_OFFSET_FIRST (-12) /* hours */
#define ZONE_OFFSET_LAST 14

struct zone {
    bool fixed;
    int64_t offset;               /* seconds east of UTC, when fixed */
    char name[ZONE_NAME_MAX + 1]; /* "America/New_York", or "-05:00" */
};

/* False when there is no such zone: *out is then untouched. */
bool zone_find(struct bytes name, struct zone *out);
/* A fixed number of hours east of UTC, ZONE_OFFSET_FIRST..ZONE_OFFSET_LAST. */
void zone_fixed(int hours, struct zone *out);

/* Seconds to add to a UTC time for the local one. */
int64_t zone_offset(const struct zone *z, int64_t utc);

/* The instant at which local clocks show `wall` (a local time written as if it were UTC). Where they show it twice, the
 * first of the two; where they skip it, as far behind the jump as `wall` is behind the jump's start. */
int64_t zone_instant(const struct zone *z, int64_t wall);

#endif
