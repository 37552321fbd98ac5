/* export: writes the records of an archive as text from which an import makes the same archive.
 *
 * The text has the totals, the lookups and the subtotals of hours, in the order of LC_ALL=C sort, each key once. It has no rollups,
 * because an import derives them; it has the days before hours_from, whose hours were dropped.
 *
 * 1. The files are open before the first byte is written, so a run may remove the generation meanwhile.
 * 2. Every file is verified while it is read. A damaged archive fails the export after some text was written.
 * 3. A file gets its name once it is complete and synced.
 */
#ifndef MILLRACE_EXPORT_H
#define MILLRACE_EXPORT_H

#include "compactor/result.h"

/* `to` NULL: standard output. */
enum compact_result export_archive(const char *archive, const char *to, struct error *error);

#endif
