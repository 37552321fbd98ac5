/* quarter_source: a source of counts that moves the hours of a slice into a time that the archive has by quarter hour.
 *
 * A recount may replace the archive by one that has quarter hours from an earlier time on than a later slice. The hours of
 * the slice from this time on become their first quarter hour. These are the hours of late events, which the slice counted
 * before its own quarters_since.
 *
 * 1. The order of the records and of their values does not change, because such an hour of a slice has no quarter hours.
 * 2. Sets by day or hour stay as they are. */
#ifndef MILLRACE_QUARTER_SOURCE_H
#define MILLRACE_QUARTER_SOURCE_H

#include "counts/count_merge.h"

/* Owns `inner`. `quarters_since` is the archive's. `counters` are those of the slice as canonical text, borrowed until the
 * source is closed. */
struct count_source *quarter_source(struct count_source *inner, int64_t quarters_since, const char *counters);

#endif
