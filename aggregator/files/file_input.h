/* file_input: `aggregator --input FILE...` counts the lines of files into the open slice, without a stream.
 *
 * Each file has a cursor. As for a stream, the transaction that commits counts also commits the cursor. Later slices
 * and the archive's manifest keep the cursor. The cursor's offset counts uncompressed bytes. The cursor's id is
 * "PREFIX.FIRST". PREFIX is the XXH3 (128 bits) of all bytes before the offset, and FIRST is the XXH3 (64 bits) of the
 * first line.
 *
 * 1. If a file begins with the bytes before a cursor's offset, counting continues at this cursor. So a killed run can
 *    be repeated, and a file that was renamed, copied, compressed or uncompressed is not counted twice. If a file has
 *    grown, only its new lines are counted.
 * 2. A file is refused if it begins like a counted file but was later changed or cut off.
 * 3. The offset and the id of a cursor change together, between two lines. Before counting continues at an offset, the
 *    id is verified again.
 * 4. Before the first line is counted, every file is opened and its format is checked. If a file is later found to be
 *    damaged, the lines before the damage stay counted, and the other files are still counted.
 * 5. If a last line without LF is a whole JSON object, the line is counted and hashed with an LF, which may be appended
 *    later. Any other line without LF is half-written: the line stays after the cursor, and a later run counts it. If a
 *    line is longer than LINE_SOURCE_LINE_MAX, only its length is hashed. Empty lines are not counted. */
#ifndef MILLRACE_FILE_INPUT_H
#define MILLRACE_FILE_INPUT_H

#include "config/options.h"

#define FILE_INPUT_FILES_MAX                                                                                 \
    10000 /* limit of cursors, because each commit and each slice stores all cursors */

/* Counts the files of --input. Returns false without --input. *status is the exit status:
 * - 0: all files are counted
 * - 65: a file is damaged or was changed
 * - 66: a file cannot be read, and no line is counted
 * - 75: the disk is full, or another process uses the directory
 * - 78: the configuration is invalid
 * - 130: a signal stopped the run
 *
 * After 65, 75 and 130, the same command continues. */
bool file_input_run(struct options *o, int *status);

#endif
