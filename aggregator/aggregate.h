/* aggregate: counts lines of streams, keeps the counts in slices, and answers reads of both, each count once.
 *
 * Lines are counted into the *active* batch in memory. Swap, then flush: every flush_interval, or when it has
 * grown large, the active batch becomes the *flushing* one, a new one takes its place, and the writer thread
 * commits the flushing batch to the open slice. A read adds up the snapshot of the slice, the flushing batch and
 * the active one.
 *
 * Invariants
 * 1. The snapshot is from before the flushing batch's transaction until aggregate_poll, in one call, renews it and
 *    drops the batch. So a count is in exactly one of the three places at every read.
 * 2. A batch carries the cursors of the moment it was swapped out, and they are committed with it: after a crash
 *    each stream goes on behind what was committed, and nothing is counted twice or missed.
 * 3. The rejects of a batch are written and synced before its transaction, which records the file's length.
 * 4. A batch that found no room is kept, and tried again every AGGREGATE_RETRY; lines are counted on until
 *    max_memory, when aggregate_is_full asks whoever feeds it to pause. Any other failure latches: no more is
 *    written, nothing is lost (it is counted again from the cursors after a restart), reads go on.
 * 5. A slice has the counts of one configuration of counters: when that changed, the open slice is sealed at opening.
 * 6. Sealing is one transaction: the last batch of slice n, with the mark that it is sealed. A crash before leaves n
 *    open; a crash after it is found at opening, which begins n + 1 with the cursors where n ended. Where there is no
 *    room for n + 1 it is tried again; lines are counted in memory meanwhile, and reads go on as soon as n is settled.
 * 7. The slices there are continue the archive: the oldest is no later than the one behind what the archive goes
 *    through; anything else is refused at opening. Only what the archive in force goes through is cleared.
 *
 * One owner thread makes every call; the writer thread is inside. It calls `notify`, which must only arrange that
 * the owner calls aggregate_poll soon. Times are on the monotonic clock unless said otherwise.
 */
#ifndef MILLRACE_AGGREGATE_H
#define MILLRACE_AGGREGATE_H

#include "base/clock.h"
#include "counts/counters.h"
#include "aggregator/reads.h"
#include "aggregator/sealed.h"
#include "aggregator/slice.h"

#define AGGREGATE_RETRY USEC_PER_SEC

struct aggregate;

struct aggregate_config {
    const char *dir;                 /* slices/ and rejects/ are made in it */
    const char *archive;             /* the archive's directory, or NULL: none is known, nothing is cleared */
    const struct counters *counters; /* must outlive it */
    const char *const *streams;      /* names, copied */
    size_t n_streams;
    usec_t flush_interval;
    size_t max_memory;  /* of the batches together, bytes */
    unsigned max_pages; /* of the slice; 0: no bound (tests make a full disk with it) */
    size_t max_sealed;  /* slices that wait to be cleared; 0: SEALED_MANY */
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

/* Begins a flush when one is due: at once for the first lines after the opening, then every flush_interval. True when
 * it did. Call it several times a flush_interval. */
bool aggregate_tick(struct aggregate *a, usec_t now);
/* Begins a flush of what there is now, unless one is under way. */
void aggregate_flush(struct aggregate *a, usec_t now);
/* Takes in what the writer has done. */
void aggregate_poll(struct aggregate *a, usec_t now);
/* Nothing is counted that is not committed, and the writer is idle. */
bool aggregate_is_clean(const struct aggregate *a);
/* NULL, or what is wrong with the storage, and whether it is for good. */
const char *aggregate_failure(const struct aggregate *a, bool *latched);

/* Ends the open slice with everything counted so far and begins the next; blocks for one commit. *busy: the writer is
 * at work, nothing was done; again after aggregate_poll. `wall` is the wall clock.
 * SLICE_OK: it is sealed and settled. SLICE_FULL: no room, the slice goes on; or it is sealed and could not be settled, then
 * aggregate_is_turning. */
enum slice_result aggregate_seal(
    struct aggregate *a, usec_t now, usec_t wall, bool *busy, char error[SLICE_ERROR_TEXT]);
/* The newest slice is sealed, and there is no room yet to settle it or to begin the next: aggregate_tick tries again. */
bool aggregate_is_turning(const struct aggregate *a);

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
    AGGREGATE_AFTER_AHEAD,   /* no such slice was ever begun */
    AGGREGATE_AFTER_LOST, /* no room, or the storage failed, while a slice was sealed: see aggregate_failure */
};
/* The layers of everything after slice `after`; valid until the next call of anything here. */
enum aggregate_after aggregate_layers(struct aggregate *a, uint64_t after, struct reads_layers *out);
uint64_t aggregate_open_slice(const struct aggregate *a);

struct aggregate_numbers {
    struct slice_tally slice, total; /* what reads answer for: in memory too */
    uint64_t rows_flushed, flushes, collisions, holes;
    usec_t last_flush; /* how long it took */
    size_t memory;
};
void aggregate_numbers(const struct aggregate *a, struct aggregate_numbers *out);

#endif
