/* slice_reader: a snapshot of a slice's state and counts.
 *
 * A reader of an open slice holds an SQLite read transaction. It shows the last commit before the reader was opened or
 * renewed. A reader of a sealed slice opens the file as immutable.
 *
 * 1. Between two renewals every source yields the same counts. Until the next renewal, runs that a merge has replaced
 *    stay readable.
 * 2. The reader verifies the state, the indexes and each block. Damage causes an error that names the file.
 *
 * Several threads may read sources of one reader at once, each a source of its own. Opening, renewing and closing need
 * that no source is in use. Reads block on the disk.
 */
#ifndef MILLRACE_SLICE_READER_H
#define MILLRACE_SLICE_READER_H

#include "counts/count_run.h"
#include "counts/slice_state.h"

struct slice_reader;

/* Opens a slice that exists. */
enum slice_result slice_reader_open(const char *path, struct slice_reader **out, struct error *error);
/* Opens a slice whose log was moved into its file. SLICE_UNSEALED: the slice is not sealed. */
enum slice_result slice_reader_open_sealed(const char *path, struct slice_reader **out, struct error *error);
void slice_reader_close(struct slice_reader **r);
/* Makes the reader show the latest commit. After a failure, slice_reader_failure has the reason, and the reader has no
 * sources until a renewal succeeds. */
enum slice_result slice_reader_renew(struct slice_reader *r);
/* The error of the last renewal, or NULL if it succeeded. */
const struct error *slice_reader_failure(const struct slice_reader *r);

/* Valid until the next renewal. */
const struct slice_state *slice_reader_state(const struct slice_reader *r);
size_t slice_reader_runs(const struct slice_reader *r);
/* A source of the i-th run that begins at the first key at or after `from`. Close it before the next renewal. */
struct count_source *slice_reader_source(struct slice_reader *r, size_t i, struct bytes from);
/* Adds the source of each run. */
void slice_reader_add_sources(struct slice_reader *r, struct bytes from, struct count_sources *out);
/* The sums over all runs of count_run_index_counts and of count_run_index_records. */
size_t slice_reader_counts(const struct slice_reader *r, struct bytes from, struct bytes last);
size_t slice_reader_records(const struct slice_reader *r, struct bytes from, struct bytes last);

#endif
