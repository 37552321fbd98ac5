/* slice: writes a slice, which is an SQLite file with the counts of one section of each stream. docs/formats/slices.md
 * describes the schema and the recovery.
 *
 * A commit writes a batch of counts as one run of blocks, and the cursors that the batch has reached, in one
 * transaction (WAL, synchronous=FULL). Short merge steps between commits keep the number of runs low, so that reads
 * stay fast.
 *
 * 1. After any crash, the runs hold exactly the counts of the lines before the cursors, each line once.
 * 2. rejects_length never exceeds the synced length of the rejects file, because the caller syncs that file first.
 * 3. A commit that returns SLICE_FULL leaves the slice unchanged. The caller may commit the same batch again.
 * 4. A merge replaces several runs by one run with the same counts, in one transaction. An interrupted merge leaves
 *    blocks that belong to no run. The slice deletes blocks of no run.
 * 5. A merge combines SLICE_MERGE_RUNS runs of one level into one run of the next level. So a count is written once for
 *    each level that its run passes through. A level has at most SLICE_MERGE_RUNS - 1 runs that do not wait for a
 *    merge.
 * 6. slice_open refuses a slice that has counts of other counters. The error names the differences.
 *
 * The functions block. Only one thread at a time may use a slice.
 */
#ifndef MILLRACE_SLICE_H
#define MILLRACE_SLICE_H

#include "counts/count_merge.h"
#include "counts/slice_state.h"

#define SLICE_MERGE_RUNS 32

struct slice_config {
    const char *path;
    uint64_t number;
    const char *counters_text; /* canonical text (counters.h) */
    /* The members below are used only if the slice is created. An existing file has its own values. */
    int64_t started;
    int64_t quarters_since;
    struct slice_tally before;
    const struct slice_cursor *cursors;
    size_t n_cursors;
    unsigned max_pages; /* limit of SQLite pages; 0: limited only by the disk */
};

struct slice;

/* Opens the slice. Creates it if the file is missing or its creation was interrupted. */
enum slice_result slice_open(const struct slice_config *config, struct slice **out, struct error *error);
void slice_close(struct slice **s);
/* Valid until the next commit or merge. */
const struct slice_state *slice_committed(const struct slice *s);

/* The changes of one transaction. The counts of `sources` are added to the slice. The other members replace those of
 * the slice. */
struct slice_batch {
    struct count_source **sources; /* sources of counts and lookups; no record was read from them yet */
    size_t n_sources;
    const struct slice_cursor *cursors;
    size_t n_cursors;
    struct slice_tally tally;
    const struct value_sums *sums; /* NULL: unchanged */
    uint64_t rejects_length;
    int64_t newest_hour; /* the latest hour before quarters_since that has counts in `sources`; 0: none */
    bool seal;           /* this batch ends the slice */
};
struct slice_written {
    uint64_t counts, bytes;
    uint64_t collisions; /* number of lookups with two texts */
    char collision[64];  /* key of the latest lookup with two texts */
};
enum slice_result slice_commit(
    struct slice *s, const struct slice_batch *batch, struct slice_written *written, struct error *error);

/* True if a merge is due, or if leftover blocks must be deleted. */
bool slice_merge_is_due(const struct slice *s);
/* True if a level has twice as many runs as a merge takes. To keep reads fast, the caller should then merge before
 * further commits. */
bool slice_merge_is_behind(const struct slice *s);
/* Performs one step of the merge (about 10 ms). A failure abandons the merge and leaves the committed counts intact. */
enum slice_result slice_merge_step(struct slice *s, struct slice_written *written, struct error *error);
/* Abandons the current merge and deletes its blocks. */
enum slice_result slice_merge_abandon(struct slice *s, struct error *error);

/* The number of pages in the log (WAL) that are not yet in the database file. */
unsigned slice_log_pages(const struct slice *s);
/* Moves the log into the database file and syncs the file. Pages that a reader's snapshot still needs stay in the log.
 * Sets *whole if the whole log was moved. Once all readers were renewed after slice_checkpoint, SQLite overwrites the
 * log from its start. */
enum slice_result slice_checkpoint(struct slice *s, bool *whole, struct error *error);

/* Reads the state of a slice with any counters. With SLICE_OK, *state is set. state->number is 0 if the file is missing
 * or its creation was interrupted. After slice_look, the state is durable. Call slice_look only while no other
 * connection writes. */
enum slice_result slice_look(
    const char *path, uint64_t number, struct slice_state *state, struct error *error);

#endif
