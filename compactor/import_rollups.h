/* import_rollups: leaves the derived records out of an imported text (import.h, invariant 3).
 *
 * In the order of records a day comes directly before its hours, and a month before its days and hours. So a rollup is
 * derived if the next record lies inside its period. The source looks one record ahead.
 *
 * A day with hours must be their sum, or the source fails: the other counts would be lost. */
#ifndef MILLRACE_IMPORT_ROLLUPS_H
#define MILLRACE_IMPORT_ROLLUPS_H

#include "counts/count_merge.h"

/* Borrows the sources, which must outlive the result. Merges them, so the result has each key once. */
struct count_source *import_rollups_source(struct count_source **sources, size_t n, int64_t hours_from);

#endif
