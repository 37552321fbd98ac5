/* recount: `aggregator --recount=ARCHIVE [FILE...]` counts all events of an archive again, in a data directory of its own.
 *
 * The manifest of ARCHIVE's current generation names the end of each stream. Recount counts each stream from its first byte
 * up to exactly this end, seals the slice and exits. Meanwhile the pipeline's own aggregator continues. Recount keeps no
 * cursor at pubsub and opens no port. The compactor merges the sealed slice into an archive, which can then replace ARCHIVE
 * (compactor/replace.h).
 *
 * 1. Each line is counted at its offset in its stream, so the slice's cursors are positions in the streams. A killed run
 *    continues at the committed cursors. If ARCHIVE has moved on, the next run continues up to the new end.
 * 2. Lines come from pubsub, or from files that ps_to_file has written (archived_file.h), whose lines are not requested from
 *    pubsub. Recount refuses lines that are missing in both, and the error names their range. It crosses only holes after a
 *    power cut, which the pipeline's aggregator has crossed, too.
 * 3. Recount refuses a stream with another id, or with another history at the end, or without a line that ends there.
 * 4. Recount refuses a data directory with counts of other counters.
 */
#ifndef MILLRACE_RECOUNT_H
#define MILLRACE_RECOUNT_H

#include "config/options.h"

/* Returns false without --recount. *status: 0, 65 (lines are missing, or a file is damaged), 66 (a file cannot be read), 75 (the disk
 * is full, or another process uses the directory), 78 (configuration), 130 (stopped by a signal). After 75 and 130 the same
 * command continues. */
bool recount_run(struct options *o, int *status);

#endif
