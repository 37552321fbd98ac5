/* export: writes the records of an archive as text from which an import makes the same archive.
 *
 * The text has the totals, the lookups and the subtotals of hours, in the order of LC_ALL=C sort, each key once. The
 * text has no rollups, because an import derives them, except the days before hours_from, whose hours were dropped.
 *
 * 1. The archive's files are opened before the first byte is written, so another run may remove the generation
 *    meanwhile.
 * 2. Every file is verified while the export reads it. If the archive is damaged, the export fails after writing a part
 *    of the text.
 * 3. The output file gets its name once the file is complete and synced.
 */
#ifndef MILLRACE_EXPORT_H
#define MILLRACE_EXPORT_H

#include "compactor/result.h"

/* `to` is the output file, or NULL for standard output. */
enum compact_result export_archive(const char *archive, const char *to, struct error *error);

#endif
