/* slice: the writer of a slice, one SQLite file that holds the counts of a piece of each stream, [Xn, Xn+1).
 * docs/formats/slices.md has the schema and the recovery.
 *
 * A batch of counts becomes one run of blocks, committed with the cursors up to which it counted, in one transaction (WAL,
 * synchronous=FULL). Runs are merged in short steps between commits, so that reads look into few.
 *
 * 1. After any crash the runs hold exactly the counts of the lines below the cursors: each line once.
 * 2. rejects_length is never more than what is synced of the rejects file (the caller syncs first).
 * 3. A batch that was refused with SLICE_FULL left nothing behind and may be committed again as it is.
 * 4. A merge replaces runs by one of the same counts, in one transaction. Blocks of a merge that was interrupted belong to no
 *    run; they are deleted.
 * 5. SLICE_MERGE_RUNS runs of one level become one of the next. So a count is written once a level, and runs are at most
 *    SLICE_MERGE_RUNS - 1 a level, but for those that wait for a merge.
 * 6. A slice counted under other counters is refused, with what differs: its counts mean something else.
 *
 * Blocking; one thread at a time.
 */
#ifndef MILLRACE_SLICE_H
#define MILLRACE_SLICE_H

#include "counts/count_merge.h"
#include "counts/slice_state.h"

#define SLICE_MERGE_RUNS 32

struct slice_config {
    const char *path;
    uint64_t number;
    const char *counters_text; /* canonical (counters.h) */
    /* For a slice that is made now; an existing file has its own. */
    int64_t started;
    struct slice_tally before;
    const struct slice_cursor *cursors;
    size_t n_cursors;
    unsigned max_pages; /* 0: no bound but the disk */
};

struct slice;

/* Opens the slice, or makes it when there is no file or one whose making was interrupted. */
enum slice_result slice_open(
    const struct slice_config *config, struct slice **out, char error[SLICE_ERROR_TEXT]);
void slice_close(struct slice **s);
/* What is committed. Valid until the next commit or merge. */
const struct slice_state *slice_committed(const struct slice *s);

/* Everything that one transaction changes. Counts are added to those that are there; the rest replaces it. */
struct slice_batch {
    struct count_source **sources; /* of the counts and lookups, at their beginnings */
    size_t n_sources;
    const struct slice_cursor *cursors;
    size_t n_cursors;
    struct slice_tally tally;
    uint64_t rejects_length;
    bool seal; /* the slice ends with this */
};
struct slice_written {
    uint64_t counts, bytes;
    uint64_t collisions; /* meetings of two texts under one lookup */
    char collision[64];  /* the key of the last one */
};
enum slice_result slice_commit(struct slice *s, const struct slice_batch *batch,
    struct slice_written *written, char error[SLICE_ERROR_TEXT]);

/* Whether there is something to merge or to delete. */
bool slice_merge_is_due(const struct slice *s);
/* Whether a level has twice the runs of a merge: merging is to go before further commits, or reads become slow. */
bool slice_merge_is_behind(const struct slice *s);
/* Does a part of it that takes some 10 ms. A failure abandons the merge, not what is committed. */
enum slice_result slice_merge_step(
    struct slice *s, struct slice_written *written, char error[SLICE_ERROR_TEXT]);
/* Abandons a merge under way and deletes what it wrote. */
enum slice_result slice_merge_abandon(struct slice *s, char error[SLICE_ERROR_TEXT]);

/* Pages in the log that are not yet in the database file. */
unsigned slice_log_pages(const struct slice *s);
/* Moves the log into the database file, as far as readers allow, synced. The log starts again at its beginning when every
 * reader has been renewed after this. *whole: all of it was moved. */
enum slice_result slice_checkpoint(struct slice *s, bool *whole, char error[SLICE_ERROR_TEXT]);

/* Reads the state of a slice, whatever its counters. state->number is 0 if there is no file, or only the beginning of one.
 * *state is filled for SLICE_OK. No other connection may be open: then SQLite folds the log into the file, synced, as this
 * one is closed, so that what the state says is durable and a sealed slice may be opened as immutable. */
enum slice_result slice_look(
    const char *path, uint64_t number, struct slice_state *state, char error[SLICE_ERROR_TEXT]);

#endif
