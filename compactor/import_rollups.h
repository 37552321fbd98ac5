/* import_rollups: excludes the derived records from an imported text (import.h, invariant 3).
 *
 * In the order of records a day comes directly before its hours, and a month before its days and hours. Therefore a
 * rollup is derived if the next record lies inside the rollup's period. The source reads one record ahead. An hour is
 * such a rollup if quarter hours follow.
 *
 * If a day has hours but is not their sum, the source fails, because the day's other counts would be lost. The same
 * holds for an hour with quarter hours whose day has no record. The sets of days are not excluded. The source fails
 * after the set of a day of a counter by hour or quarter hour if no part of the day follows. */
#ifndef MILLRACE_IMPORT_ROLLUPS_H
#define MILLRACE_IMPORT_ROLLUPS_H

#include "counts/count_merge.h"
#include "counts/manifest.h"

/* Merges the sources, so the result has each key once. Borrows the sources and the archive's manifest, which must
 * outlive the result. `quarters_from`: the first second from which the hours
 * of the text are rollups; 0: the text has no quarter hours. */
struct count_source *import_rollups_source(struct count_source **sources, size_t n,
    const struct manifest *archive, int64_t hours_from, int64_t quarters_from);

#endif
