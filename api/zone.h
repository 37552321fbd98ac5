/* zone: the offset of local time from UTC, in an IANA zone or at a fixed offset.
 *
 * The C library reads the installed tz database (/usr/share/zoneinfo) for one zone at a time, that of TZ. The module keeps the last zone
 * set and changes it when another is asked for.
 *
 * 1. A name is used as a path only if it consists of parts of [A-Za-z0-9_+-] joined by '/', so it cannot leave the directory.
 * 2. A name without a zone file is refused; the C library would silently use UTC.
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

/* False: no such zone; *out is unchanged. */
bool zone_find(struct bytes name, struct zone *out);
/* A fixed number of hours east of UTC, ZONE_OFFSET_FIRST..ZONE_OFFSET_LAST. */
void zone_fixed(int hours, struct zone *out);

/* Local time minus UTC, in seconds. */
int64_t zone_offset(const struct zone *z, int64_t utc);

/* The instant at which local clocks show `wall` (local time written as if it were UTC). A time shown twice gives the first instant; a
 * skipped one gives an instant as far after the jump as `wall` is after its start. */
int64_t zone_instant(const struct zone *z, int64_t wall);

#endif
