/* sql_snapshot: the committed counts of a pipeline at one moment: a generation of the archive and the slices after it.
 *
 * A snapshot reads files only, so the aggregator need not run. A running aggregator commits its counts every
 * flush_interval (2 s), and its batch in memory is not in a snapshot.
 *
 * 1. Each committed count is in exactly one source. snapshot_begin reads `through` in the manifest of the generation, and
 *    opens every later slice. If the compactor clears a slice meanwhile, snapshot_begin starts again with the next
 *    generation.
 * 2. A snapshot is a section of each stream from its beginning: sealed slices are complete, and the open slice has the
 *    lines before its cursors.
 * 3. Slices are open only from snapshot_begin to snapshot_end. The generation stays open for the next snapshot_begin.
 *
 * Only one thread at a time may use a snapshot. */
#ifndef MILLRACE_SQL_SNAPSHOT_H
#define MILLRACE_SQL_SNAPSHOT_H

#include "archive/generation.h"
#include "counts/slice_reader.h"

#include <stdatomic.h>

struct sql_snapshot;

enum sql_snapshot_result {
    SQL_SNAPSHOT_OK,
    SQL_SNAPSHOT_ABSENT,  /* there is no archive */
    SQL_SNAPSHOT_DAMAGED, /* a file is damaged, or slices and archive do not belong together */
    SQL_SNAPSHOT_FAILED,  /* a system call failed, or a file changes; try again */
};

/* Copies the paths. `slices` NULL: only the archive. Once *cancel is set, snapshot_begin fails. */
struct sql_snapshot *sql_snapshot_new(const char *archive, const char *slices, const atomic_bool *cancel);
void sql_snapshot_free(struct sql_snapshot **s);

/* Begins to show the present counts. If an earlier begin has not ended, its counts stay. Each successful call needs a call of
 * sql_snapshot_end. */
enum sql_snapshot_result sql_snapshot_begin(struct sql_snapshot *s, struct error *error);
void sql_snapshot_end(struct sql_snapshot *s);
bool sql_snapshot_is_begun(const struct sql_snapshot *s);

/* The rest is valid between begin and end. */
bool sql_snapshot_is_cancelled(const struct sql_snapshot *s);
const struct generation *sql_snapshot_generation(const struct sql_snapshot *s);
/* Adds sources of all slices, each of which begins at the first key at or after `from`. */
void sql_snapshot_add_slices(struct sql_snapshot *s, struct bytes from, struct count_sources *out);
/* Sets *text to the text of a stored component: the text of a hash, or `stored` itself. *text is valid until the next
 * call, or as long as `stored`. Returns 0, or -1 with the error. */
int sql_snapshot_text(struct sql_snapshot *s, struct bytes stored, struct bytes *text, struct error *error);

#endif
