/* zone: the offset of local time from UTC, in an IANA zone or at a fixed offset.
 *
 * The C library reads the zone that the environment variable TZ names from /usr/share/zoneinfo. This module sets TZ when a request
 * needs another zone than the previous request.
 *
 * 1. A zone's name becomes part of a path only if it consists of parts of [A-Za-z0-9_+-] joined by '/', so the path stays below
 *    the directory.
 * 2. A name without a zone file is refused. The C library would silently use UTC.
 * 3. One thread only, because TZ belongs to the process.
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

/* Finds an IANA zone. False: no such zone; *out is unchanged. */
bool zone_find(struct bytes name, struct zone *out);
/* Sets *out to a fixed number of hours east of UTC, ZONE_OFFSET_FIRST..ZONE_OFFSET_LAST. */
void zone_fixed(int hours, struct zone *out);

/* Local time minus UTC, in seconds. */
int64_t zone_offset(const struct zone *z, int64_t utc);

/* The UTC time at which local clocks show `wall` (local time as seconds, as if it were UTC). If clocks show `wall` twice, the
 * result is the first time. If clocks skip `wall`, the result is as long after the jump as `wall` is after the skipped hour's start. */
int64_t zone_instant(const struct zone *z, int64_t wall);

#endif
