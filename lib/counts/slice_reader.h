/* slice_reader: a snapshot of a slice's state and counts.
 *
 * A reader of an open slice holds an SQLite read transaction, and shows the last commit before the reader was opened or
 * renewed. A reader of a sealed slice opens the file as immutable, unless the slice has a log. A log remains if another
 * process had the slice open at its seal.
 *
 * 1. Between two renewals of the reader, every source yields the same counts. Runs that a merge has replaced stay
 *    readable until the next renewal.
 * 2. The reader verifies the slice's state, the indexes and each block. If a check fails, the error names the file.
 *
 * Several threads may read sources of one reader at the same time, each thread a source of its own. No source may be in
 * use while the reader is opened, renewed or closed. Reads block on the disk.
 */
#ifndef MILLRACE_SLICE_READER_H
#define MILLRACE_SLICE_READER_H

#include "counts/count_run.h"
#include "counts/slice_state.h"

struct slice_reader;

enum slice_result slice_reader_open(const char *path, struct slice_reader **out, struct error *error);
/* Opens a sealed slice, with its log if it has one. SLICE_UNSEALED: the slice is not sealed. */
enum slice_result slice_reader_open_sealed(const char *path, struct slice_reader **out, struct error *error);
/* Opens a sealed slice whose log was moved into its file, although the log may still exist. */
enum slice_result slice_reader_open_moved(const char *path, struct slice_reader **out, struct error *error);
void slice_reader_close(struct slice_reader **r);
/* Makes the reader show the latest commit. After a failure, slice_reader_failure returns the error, and the reader has
 * no sources until a renewal succeeds. */
enum slice_result slice_reader_renew(struct slice_reader *r);
/* The error of the last renewal, or NULL if it succeeded. */
const struct error *slice_reader_failure(const struct slice_reader *r);

/* Valid until the next renewal. */
const struct slice_state *slice_reader_state(const struct slice_reader *r);
size_t slice_reader_runs(const struct slice_reader *r);
/* Returns a source of the i-th run, which begins at the first key at or after `from`. Close the source before the next
 * renewal. */
struct count_source *slice_reader_source(struct slice_reader *r, size_t i, struct bytes from);
/* Adds a source of each run to `out`. Each source begins at the first key at or after `from`. */
void slice_reader_add_sources(struct slice_reader *r, struct bytes from, struct count_sources *out);
/* Return the sums of count_run_index_counts and of count_run_index_records over all runs. */
size_t slice_reader_counts(const struct slice_reader *r, struct bytes from, struct bytes last);
size_t slice_reader_records(const struct slice_reader *r, struct bytes from, struct bytes last);

#endif
