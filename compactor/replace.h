/* replace: the checks of `compactor --replace=DIR`, which replaces the current archive (ARCHIVE) by a recounted
 * archive.
 *
 * The run (run.h) merges DIR's current generation, instead of ARCHIVE's, with the sealed slices that ARCHIVE does not
 * include. The run publishes the result as the next generation of ARCHIVE, by the usual steps. Afterwards every event
 * is counted once, because the run checks these conditions under the locks of both archives:
 *
 * 1. Both archives end at the same offsets of the same streams, with the same history before these offsets. Both also
 *    have the same files of `aggregator --input` and the same imports, each the same number of times. If one archive
 *    ends later, the error contains both ends and the command to run next.
 * 2. Every slice after ARCHIVE's `through`, including the open slice, has exactly the counters of DIR. This condition
 *    shows that the aggregator was restarted with DIR's counters before the recount ended. Otherwise the events between
 *    the end of the recount and the restart would be missing under the new counters.
 * 3. No rejected line was put back into a slice after `through`. The recount has already counted or rejected the lines
 *    that were put back.
 *
 * The new generation keeps ARCHIVE's cursors, so that the next slices continue at these cursors. The new manifest
 * contains the recount's id. Therefore rejected lines that the recount has already counted or rejected are not counted
 * again (put_back.h), and a repeated replacement changes nothing.
 */
#ifndef MILLRACE_REPLACE_H
#define MILLRACE_REPLACE_H

#include "compactor/record_source.h"
#include "counts/manifest.h"

/* Reads the manifest of DIR's current generation into *by, which the caller frees in any case. Checks condition 1,
 * unless the archive's current generation already has the counts of DIR; in this case, sets *is_done. */
enum compact_result replace_read(
    const char *dir, const struct manifest *current, struct manifest *by, bool *is_done, struct error *error);
/* Checks conditions 2 and 3 for a slice that the archive does not include. */
enum compact_result replace_check_slice(const struct manifest *current, const struct manifest *by,
    const char *path, const struct slice_facts *slice, struct error *error);
/* Checks condition 2 for the open slice. `counters` is the XXH3 (64 bits) of the open slice's counters, as text. */
enum compact_result replace_check_open(const struct manifest *by, uint64_t counters, struct error *error);
/* Records the recount in the manifest of the new generation. */
void replace_describe(const struct manifest *current, const struct manifest *by, struct manifest *made);

#endif
