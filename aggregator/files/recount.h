/* recount: `aggregator --recount=ARCHIVE [FILE...]` counts all events of an archive again, in a data directory of its
 * own.
 *
 * The manifest of ARCHIVE's current generation names the end of each stream. Recount counts each stream from its first
 * byte up to exactly this end, seals the slice and exits. During a recount, the pipeline's own aggregator continues.
 * Recount keeps no cursor at pubsub and opens no port. The compactor merges the sealed slice into a new archive.
 * `compactor --replace` replaces ARCHIVE by the new archive (compactor/replace.h).
 *
 * 1. Each line is counted at its offset in its stream, so the slice's cursors are positions in the streams. A killed
 *    run continues at the committed cursors. If ARCHIVE has grown, the next run continues up to the new end.
 * 2. Lines come from pubsub, or from files that ps_to_file has written (archived_file.h). Recount does not request the
 *    lines of these files from pubsub. If neither pubsub nor the files have a copy of some lines, recount fails with an
 *    error that names the range. Recount crosses only holes after a power cut, which the pipeline's aggregator has also
 *    crossed.
 * 3. Recount refuses a stream that has another id, another history at the end, or no line that ends exactly there.
 * 4. Recount refuses a data directory that has counts of other counters.
 */
#ifndef MILLRACE_RECOUNT_H
#define MILLRACE_RECOUNT_H

#include "config/options.h"

/* Recounts the archive of --recount. Returns false without --recount. *status is the exit status:
 * - 0: the recount is complete
 * - 65: lines are missing, or a file is damaged
 * - 66: a file cannot be read
 * - 75: the disk is full, or another process uses the directory
 * - 78: the configuration is invalid
 * - 130: a signal stopped the run
 *
 * After 75 and 130, the same command continues. */
bool recount_run(struct options *o, int *status);

#endif
