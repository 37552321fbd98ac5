/* archive_source: the records of one shard of a generation as a source of counts (counts/count_merge.h).
 *
 * 1. The source yields no lookups and no sets.
 * 2. The source yields each count once. With the unit PERIOD_HOUR, it yields hours, and a day only if the archive has dropped
 *    the hours of the day. With another unit, it yields rollups up to this unit, and the records of shorter periods only
 *    where no such rollup covers them. */
#ifndef MILLRACE_ARCHIVE_SOURCE_H
#define MILLRACE_ARCHIVE_SOURCE_H

#include "archive/sorted_text.h"
#include "counts/count_merge.h"
#include "counts/records.h"

/* Begins at the first record whose key is at or after `from`. The text and the name, which appears in errors, must outlive the
 * source. */
struct count_source *archive_source_new(
    const struct sorted_text *text, const char *name, struct bytes from, enum period_unit unit);

#endif
