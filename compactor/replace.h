/* replace: the checks of `compactor --replace=DIR`, which puts a recounted archive in the place of the current one.
 *
 * The run (run.h) merges DIR's current generation, instead of ARCHIVE's, with the sealed slices that ARCHIVE does not include. It
 * publishes the result as the next generation of ARCHIVE, by its usual steps. Every event is counted once afterwards, because
 * each of these conditions is checked under the locks of both archives:
 *
 * 1. Both archives end at the same offsets of the same streams, with the same history there, and have the same files of
 *    `aggregator --input` and the same imports, each as often. If one covers more, the error names both edges and the command that
 *    continues.
 * 2. Every slice after ARCHIVE's `through`, including the open slice, has exactly the counters of DIR. So a counter never lacks
 *    the events between the recount and the aggregator's restart: the restart comes before the end of the recount.
 * 3. No rejected line was put back into a slice after `through`. The recount has counted such a line already.
 *
 * The new generation keeps ARCHIVE's cursors as they are, so that the slices continue it. Its manifest names the recount. Therefore
 * a later put back leaves out lines that the recount has judged (put_back.h), and a repeated replacement changes nothing.
 */
#ifndef MILLRACE_REPLACE_H
#define MILLRACE_REPLACE_H

#include "compactor/record_source.h"
#include "counts/manifest.h"

/* Reads the manifest of DIR's current generation, which the caller frees in any case. *is_done: the current generation of the
 * archive already has its counts. Otherwise checks condition 1. */
enum compact_result replace_read(
    const char *dir, const struct manifest *current, struct manifest *by, bool *is_done, struct error *error);
/* Checks conditions 2 and 3 for a slice after the archive. */
enum compact_result replace_check_slice(const struct manifest *current, const struct manifest *by,
    const char *path, const struct slice_facts *slice, struct error *error);
/* Checks condition 2 for the open slice. `counters` is the XXH3 (64 bits) of its counters' text. */
enum compact_result replace_check_open(const struct manifest *by, uint64_t counters, struct error *error);
/* Notes the recount in the manifest of the new generation. */
void replace_describe(const struct manifest *current, const struct manifest *by, struct manifest *made);

#endif
