/* slice_reader: one moment of a slice, to read its state and its counts from.
 *
 * A reader of an open slice is a connection that holds a read transaction: it shows what was committed when it was opened
 * or last renewed, whatever is committed since. A reader of a sealed slice opens the file as immutable.
 *
 * 1. Between two renewals every source yields the same counts. Runs that were merged away meanwhile stay readable.
 * 2. The state, the indexes and each block are verified when they are read. Damage is an error that names the file.
 *
 * One thread at a time. Reads block for as long as the disk does.
 */
#ifndef MILLRACE_SLICE_READER_H
#define MILLRACE_SLICE_READER_H

#include "counts/count_run.h"
#include "counts/slice_state.h"

struct slice_reader;

/* The slice must have been made. */
enum slice_result slice_reader_open(
    const char *path, struct slice_reader **out, char error[SLICE_ERROR_TEXT]);
/* Of a slice whose log is folded into its file. SLICE_UNSEALED: it is not sealed. */
enum slice_result slice_reader_open_sealed(
    const char *path, struct slice_reader **out, char error[SLICE_ERROR_TEXT]);
void slice_reader_close(struct slice_reader **r);
/* Moves to what is committed now. After a failure slice_reader_failure is set, and there are no sources until a renewal
 * succeeds. */
enum slice_result slice_reader_renew(struct slice_reader *r, char error[SLICE_ERROR_TEXT]);
/* NULL, or why the last renewal failed. */
const char *slice_reader_failure(const struct slice_reader *r);

/* Valid until the next renewal. */
const struct slice_state *slice_reader_state(const struct slice_reader *r);
size_t slice_reader_runs(const struct slice_reader *r);
/* A source of the i-th run, from the first key at or after `from`; close it before the next renewal. */
struct count_source *slice_reader_source(struct slice_reader *r, size_t i, struct bytes from);

#endif
