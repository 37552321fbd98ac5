/* aggregate: counts lines of streams, keeps the counts in slices, and answers reads of both, each count once.
 *
 * Lines are counted into the *active* batch in memory. Swap, then flush: every flush_interval, or when the batch has reached
 * its share of the memory, it becomes the *flushing* batch, a new one takes its place, and the storage thread commits it to
 * the open slice as a run. A read adds up the reader of the slice, the flushing batch and the active one. Between commits
 * the storage thread merges runs.
 *
 * Invariants
 * 1. The reader is from before the flushing batch's transaction until aggregate_poll, in one call, renews it and drops the
 *    batch. So a count is in exactly one of the three places at every read.
 * 2. A batch carries the cursors of the moment it was swapped out, and they are committed with it: after a crash each
 *    stream goes on behind the committed lines, and nothing is counted twice or missed.
 * 3. The rejects of a batch are written and synced before its transaction, which records the file's length.
 * 4. A batch that found no room is kept, and tried again every AGGREGATE_RETRY. Lines are counted on until max_memory, when
 *    aggregate_is_full asks the feeder to pause. Any other failure latches: no more is written, nothing is lost (it is
 *    counted again from the cursors after a restart), reads go on.
 * 5. A slice has the counts of one configuration of counters. If that changed, the open slice is sealed at opening.
 * 6. A seal begins with a swap: the flushing batch is the last of slice n and is committed with the mark, lines are counted
 *    into slice n + 1 from there on. Each step waits for room by itself, while counting and reads go on. A crash before the
 *    commit leaves n open; a crash after it is found at opening, which begins n + 1 with the cursors where n ended.
 * 7. The slices continue the archive: the oldest is no later than the one behind the archive's `through`; anything else is
 *    refused at opening. Only slices that the archive in force includes are cleared.
 *
 * One owner thread makes every call; the storage thread is inside. It calls `notify`, which must only arrange that the
 * owner calls aggregate_poll soon. Times are on the monotonic clock unless said otherwise.
 */
#ifndef MILLRACE_AGGREGATE_H
#define MILLRACE_AGGREGATE_H

#include "base/clock.h"
#include "aggregator/reads.h"
#include "aggregator/sealed.h"

#define AGGREGATE_RETRY USEC_PER_SEC

struct aggregate;

struct aggregate_config {
    const char *dir;                 /* slices/ and rejects/ are made in it */
    const char *archive;             /* the archive's directory, or NULL: none is known, nothing is cleared */
    const struct counters *counters; /* must outlive it */
    const char *const *streams;      /* names, copied */
    size_t n_streams;
    usec_t flush_interval;
    size_t max_memory; /* of the batches and their texts together, bytes */
    size_t max_sealed; /* slices that wait to be cleared; 0: SEALED_MAX */
    void (*notify)(void *arg);
    void *notify_arg;
};

/* Blocking (recovery). `wall` is the wall clock. SLICE_OK, or why not, with the text. */
enum slice_result aggregate_open(
    const struct aggregate_config *config, usec_t wall, struct aggregate **out, char error[SLICE_ERROR_TEXT]);
/* Waits for a commit under way. What is not flushed is counted again from the cursors at the next opening. */
void aggregate_close(struct aggregate **a);

/* Feeding; streams are named by their index in the configuration. */
/* How far the stream is counted, in memory. Valid until the next call that feeds. */
const struct slice_cursor *aggregate_cursor(const struct aggregate *a, size_t stream);
/* How far it is counted and committed, and where it began before anything is: nothing before that will be asked for
 * again. An empty id when it was never read. */
const struct slice_cursor *aggregate_committed(const struct aggregate *a, size_t stream);
/* Where a stream that was never read begins: its id and first offset. Only while the cursor's id is empty. */
void aggregate_begin_stream(struct aggregate *a, size_t stream, const char *id, uint64_t offset);
/* Counts the line at the cursor (without its LF) and moves the cursor behind the LF. */
void aggregate_take_line(struct aggregate *a, size_t stream, struct bytes line);
/* The same for a line over the bound: `length` bytes without LF, of which `head` is the beginning; rejected. */
void aggregate_take_overlong(struct aggregate *a, size_t stream, struct bytes head, uint64_t length);
/* Moves the cursor across a hole. */
void aggregate_cross_hole(struct aggregate *a, size_t stream, uint64_t after);
/* True while no more should be fed: memory is full, or writing has failed. */
bool aggregate_is_full(const struct aggregate *a);

/* Begins what is due: a retry, a flush ( at once for the first lines after the
 * opening, then every flush_interval), or a step of merging. True when a flush began. Call it several times a flush_interval. */
bool aggregate_tick(struct aggregate *a, usec_t now);
/* Begins a flush now, unless the storage thread is busy. */
void aggregate_flush(struct aggregate *a, usec_t now);
/* Takes the storage thread's result and begins what follows from it. */
void aggregate_poll(struct aggregate *a, usec_t now);
/* All counts are committed, and no seal is under way. */
bool aggregate_is_clean(const struct aggregate *a);
/* NULL, or what is wrong with the storage, and whether it is for good. */
const char *aggregate_failure(const struct aggregate *a, bool *latched);

/* Seals the open slice with everything counted so far. SLICE_OK: the seal is under way, or the storage thread is busy: call
 * again after aggregate_poll until aggregate_sealed has the slice. SLICE_FULL: there is no room, or too many slices wait to
 * be cleared; a seal that has begun is completed as room comes back. `wall` is the wall clock. */
enum slice_result aggregate_seal(struct aggregate *a, usec_t now, usec_t wall, char error[SLICE_ERROR_TEXT]);

enum aggregate_clear {
    AGGREGATE_CLEAR_OK,
    AGGREGATE_CLEAR_OPEN,         /* that slice is not sealed */
    AGGREGATE_CLEAR_NOT_ARCHIVED, /* the archive in force does not go through it, or cannot be read: see error */
    AGGREGATE_CLEAR_FAILED,       /* some may be left: see error */
};
enum aggregate_clear aggregate_clear(struct aggregate *a, uint64_t through, char error[SLICE_ERROR_TEXT]);
/* The sealed slices there are, oldest first. Valid until the next seal or clear. */
const struct sealed *aggregate_sealed(const struct aggregate *a);

enum aggregate_after {
    AGGREGATE_AFTER_OK,
    AGGREGATE_AFTER_CLEARED, /* a slice that would be needed is gone */
    AGGREGATE_AFTER_AHEAD,   /* that slice was never sealed */
};
/* The layers of everything after slice `after`; valid until the next call of anything here. */
enum aggregate_after aggregate_layers(struct aggregate *a, uint64_t after, struct reads_layers *out);
uint64_t aggregate_open_slice(const struct aggregate *a);

struct aggregate_numbers {
    struct slice_tally slice, total; /* of the open slice, and of all; in memory too */
    struct slice_tally counted;      /* since the opening; never falls */
    uint64_t rows_flushed, flushes, collisions, holes;
    usec_t last_flush; /* how long it took */
    size_t memory;
};
void aggregate_numbers(const struct aggregate *a, struct aggregate_numbers *out);

#endif
