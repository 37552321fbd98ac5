/* file_input: `aggregator --input FILE...` counts the lines of files into the open slice, without a stream.
 *
 * Each file has a cursor. The transaction of the counts commits the cursor, as it does for a stream, and later slices and
 * the archive's manifest keep it. Its offset counts unpacked bytes. Its id is "PREFIX.FIRST": the XXH3 (128 bits) of all
 * bytes before the offset, and the XXH3 (64 bits) of the first line.
 *
 * 1. A file that begins with the bytes of a cursor continues at that cursor. So a killed run can be repeated, and a file
 *    that was renamed, copied, packed or unpacked is not counted twice. A file that has grown is counted from its new lines.
 * 2. A file with the first line of a counted file, but without its further bytes, was changed or cut short. It is refused.
 * 3. Offset and id change together, between two lines. Counting verifies the id again before it continues at an offset.
 * 4. Every file is opened, and its format checked, before the first line is counted. A file that turns out to be damaged
 *    keeps the counts of the lines before the damage. The other files are still counted.
 * 5. A last line without LF is counted and hashed as if it had one. Of a line over LINE_SOURCE_LINE_MAX, only the length
 *    is hashed. Empty lines are not counted.
 */
#ifndef MILLRACE_FILE_INPUT_H
#define MILLRACE_FILE_INPUT_H

#include "config/options.h"

#define FILE_INPUT_FILES_MAX 10000 /* limit of cursors; each commit and each slice has all of them */

/* Returns false without --input. *status: 0, 65 (a file is damaged or was changed), 66 (a file cannot be read; nothing is
 * counted), 75 (the disk is full, or another process uses the directory), 78 (configuration), 130 (stopped by a signal).
 * After 65, 75 and 130 the same command continues. */
bool file_input_run(struct options *o, int *status);

#endif
