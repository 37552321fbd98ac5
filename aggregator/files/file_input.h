/* file_input: `aggregator --input FILE...` counts the lines of files into the open slice, without a stream.
 *
 * Each file has a cursor. As for a stream, the transaction that commits counts also commits the cursor. Later slices
 * and the archive's manifest keep the cursor. Its offset counts unpacked bytes. Its id is "PREFIX.FIRST": the XXH3 (128
 * bits) of all bytes before the offset, and the XXH3 (64 bits) of the first line.
 *
 * 1. If a file begins with the bytes that a cursor covers, counting continues at that cursor. So a killed run can be
 *    repeated, and a file that was renamed, copied, packed or unpacked is not counted twice. If a file has grown, only
 *    its new lines are counted.
 * 2. A file that begins like a counted one, but was changed or cut off since, is refused.
 * 3. Offset and id change together, between two lines. Counting verifies the id again before it continues at an offset.
 * 4. Every file is opened, and its format checked, before the first line is counted. A file that turns out to be damaged
 *    keeps the counts of the lines before the damage. The other files are still counted.
 * 5. A last line without LF that is a whole JSON object is counted and hashed as if it had an LF, so the LF may follow. Any other
 *    line without LF is half-written: it stays after the cursor, and a later run counts it. If a line is longer than
 *    LINE_SOURCE_LINE_MAX, only its length is hashed. Empty lines are not counted. */
#ifndef MILLRACE_FILE_INPUT_H
#define MILLRACE_FILE_INPUT_H

#include "config/options.h"

#define FILE_INPUT_FILES_MAX                                                                                 \
    10000 /* limit of cursors, because each commit and each slice stores all cursors */

/* Returns false without --input. *status: 0, 65 (a file is damaged or was changed), 66 (a file cannot be read; nothing is
 * counted), 75 (the disk is full, or another process uses the directory), 78 (configuration), 130 (stopped by a signal).
 * After 65, 75 and 130 the same command continues. */
bool file_input_run(struct options *o, int *status);

#endif
