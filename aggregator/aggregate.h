/* aggregate: counts the lines of streams, stores the counts in slices, and answers reads over memory and slices.
 *
 * Lines are counted into the *active* batch in memory. After flush_interval, or once the batch has used its share of the
 * memory, it becomes the *flushing* batch and an empty batch replaces it. The storage thread commits the flushing batch to
 * the open slice as a run, and merges runs between commits. A read adds up three layers: the slice's reader, the flushing
 * batch and the active batch.
 *
 * Invariants
 * 1. Every count is in exactly one layer. The reader shows the slice as it was before the flushing batch's transaction.
 *    One call of aggregate_poll then renews the reader and drops the batch.
 * 2. A batch is committed with the cursors that it reached. After a crash each stream continues behind its committed lines,
 *    so no line is counted twice or missed.
 * 3. The rejects of a batch are written and synced before its transaction, which records the file's length.
 * 4. On a full disk a batch is kept and retried every AGGREGATE_RETRY. Counting continues up to max_memory and max_batch, then
 *    aggregate_is_full asks the feeder to pause. Any other failure stops all writes until a restart, which counts the
 *    uncommitted lines again. Reads continue.
 * 5. A slice holds the counts of one configuration of counters. If that changed, opening seals the open slice.
 * 6. Sealing slice n commits the flushing batch as its last, with the seal. Later lines count into slice n + 1. Each step
 *    waits for disk space while counting and reads continue. A crash before the commit leaves n open. After a crash behind
 *    the commit, opening begins n + 1 at the cursors where n ended.
 * 7. The slices continue the archive without a gap, or opening refuses them. Only slices that the current generation of
 *    the archive includes are cleared.
 *
 * One owner thread makes every call. The storage thread calls `notify`, which must only make the owner call aggregate_poll
 * soon. Times are on the monotonic clock unless stated otherwise.
 */
#ifndef MILLRACE_AGGREGATE_H
#define MILLRACE_AGGREGATE_H

#include "base/stats.h"
#include "aggregator/reads.h"
#include "aggregator/sealed.h"
#include "counts/rejects.h"

#define AGGREGATE_RETRY USEC_PER_SEC

struct aggregate;

struct aggregate_config {
    const char *dir;                 /* contains slices/ and rejects/, which are created */
    const char *archive;             /* the archive's directory; NULL: no archive, slices are never cleared */
    const struct counters *counters; /* must outlive the aggregate */
    const char *const *streams;      /* names, copied */
    size_t n_streams;
    size_t max_inputs; /* limit of aggregate_add_input calls */
    usec_t flush_interval;
    size_t max_memory; /* bytes, for all batches and their texts */
    size_t max_sealed; /* limit of sealed slices; 0: SEALED_MAX */
    struct rejects_limits rejects_limits;
    uint64_t max_batch; /* limit of events in a batch; 0: TALLY_EVENTS_MAX */
    struct stats_histogram
        *lateness; /* of the events of streams: from their time until they are counted; NULL: not measured */
    void (*notify)(void *arg);
    void *notify_arg;
};

/* Opens and recovers the slices; blocks. `wall` is the wall clock, which is trusted. */
enum slice_result aggregate_open(
    const struct aggregate_config *config, usec_t wall, struct aggregate **out, char error[SLICE_ERROR_TEXT]);
/* Waits for the current commit. After the next opening, lines that were not flushed are counted again. */
void aggregate_close(struct aggregate **a);

/* Feeding. `stream` is an index into the configuration's streams, or the index of an input. */
/* The position up to which the stream is counted in memory. Valid until the next feeding call. */
const struct slice_cursor *aggregate_cursor(const struct aggregate *a, size_t stream);
/* The position up to which the stream's counts are committed; before the first commit, its start. Lines before this
 * position are never needed again. The id is empty until the stream is first read. */
const struct slice_cursor *aggregate_committed(const struct aggregate *a, size_t stream);
/* Sets the id and first offset of a stream that was never read. Allowed only while the cursor's id is empty. */
void aggregate_begin_stream(struct aggregate *a, size_t stream, const char *id, uint64_t offset);
/* Inputs are sources of lines besides the streams. Their cursors are committed as those of streams and have names that
 * begin with a dot. Indices from n_streams up to aggregate_inputs_end are the inputs, among them all that the slices know. */
#define AGGREGATE_INPUT_MARK '.'
size_t aggregate_inputs_end(const struct aggregate *a);
/* Adds an input with a name that no input has. Returns its index. */
size_t aggregate_add_input(struct aggregate *a, const char *name);
/* The file that entries of the rejects file name for lines of inputs. Borrowed. */
void aggregate_set_input_path(struct aggregate *a, const char *path);
/* Moves the cursor over bytes without a line that counts. */
void aggregate_pass(struct aggregate *a, size_t stream, uint64_t bytes);
/* Sets the wall clock and the trusted time (base/clock_watch.h), for max_ahead, lateness and the times of rejects. They use the wall clock or the latest
 * trusted time, whichever is later: a clock that was set back must not reject events. The start of the open slice is trusted.
 * The trusted time is that of deletions of rejects by age. */
void aggregate_set_wall(struct aggregate *a, usec_t wall, usec_t trusted);
/* Putting rejects back (put_back.h): counts the line of an entry, or rejects it again with its new reason. */
enum counters_verdict aggregate_take_rejected(struct aggregate *a, const struct rejects_entry *entry);
/* Adds the entry (without its LF) to the rejects as it is. */
void aggregate_keep_rejected(struct aggregate *a, struct bytes entry);
/* Sets the cursor of the input to a place in the rejects. */
void aggregate_set_front(struct aggregate *a, size_t input, struct rejects_place front);
/* The end of the committed rejects. False during a seal. */
bool aggregate_rejects_end(const struct aggregate *a, struct rejects_place *end);
const char *aggregate_rejects_dir(const struct aggregate *a);
/* Counts the line at the cursor (without its LF) and moves the cursor behind the LF. */
void aggregate_take_line(struct aggregate *a, size_t stream, struct bytes line);
/* Rejects the line at the cursor because it exceeds max_line, and moves the cursor behind it. The line has `length` bytes
 * without its LF; `head` is its beginning. */
void aggregate_take_overlong(struct aggregate *a, size_t stream, struct bytes head, uint64_t length);
/* Sets the cursor's id in the form that slices store. The id changes with the opening that wrote the byte before the cursor. */
void aggregate_set_stream_id(struct aggregate *a, size_t stream, const char *id);
/* Moves the cursor across lost bytes, or back to where a restored copy of the stream differs. */
void aggregate_cross_hole(struct aggregate *a, size_t stream, uint64_t after);
/* True while the feeder must pause: memory or the batch is full, or writing has failed. */
bool aggregate_is_full(const struct aggregate *a);

/* Begins the job that is due: a retry, a flush, or a merge step. The first lines after opening are flushed at once, later
 * ones every flush_interval. True if a flush began. Call it several times per flush_interval. */
bool aggregate_tick(struct aggregate *a, usec_t now);
/* Begins a flush unless the storage thread is busy. */
void aggregate_flush(struct aggregate *a, usec_t now);
/* Takes the storage thread's result and begins the next job. */
void aggregate_poll(struct aggregate *a, usec_t now);
/* True if all counts are committed and no seal is in progress. */
bool aggregate_is_clean(const struct aggregate *a);
/* The storage's failure, or NULL. *latched: it lasts until a restart. */
const char *aggregate_failure(const struct aggregate *a, bool *latched);

/* Seals the open slice with everything counted so far. With SLICE_OK the seal has begun or the storage thread is busy: call
 * again after each aggregate_poll until aggregate_sealed has the slice. SLICE_FULL: the disk is full, or too many slices
 * wait to be cleared. A seal that has begun completes once the disk has space. `wall` is the trusted time. */
enum slice_result aggregate_seal(struct aggregate *a, usec_t now, usec_t wall, char error[SLICE_ERROR_TEXT]);

enum aggregate_clear {
    AGGREGATE_CLEAR_OK,
    AGGREGATE_CLEAR_BUSY,         /* the storage thread is busy with this or another job */
    AGGREGATE_CLEAR_OPEN,         /* the slice is not sealed */
    AGGREGATE_CLEAR_NOT_ARCHIVED, /* the archive does not include it or is unreadable: see error */
    AGGREGATE_CLEAR_FAILED,       /* some slices may remain: see error */
};
/* Deletes the sealed slices up to `through`. AGGREGATE_CLEAR_BUSY: call again after each aggregate_poll, before
 * aggregate_tick, until the result arrives. */
enum aggregate_clear aggregate_clear(
    struct aggregate *a, usec_t now, uint64_t through, char error[SLICE_ERROR_TEXT]);
/* The sealed slices, oldest first. Valid until the next seal or clear. */
const struct sealed *aggregate_sealed(const struct aggregate *a);

enum aggregate_after {
    AGGREGATE_AFTER_OK,
    AGGREGATE_AFTER_CLEARED, /* a needed slice was cleared */
    AGGREGATE_AFTER_AHEAD,   /* the slice is not sealed yet */
};
/* The layers that hold all counts after slice `after`. Valid until the next call of any function here. */
enum aggregate_after aggregate_layers(struct aggregate *a, uint64_t after, struct reads_layers *out);
uint64_t aggregate_open_slice(const struct aggregate *a);

struct aggregate_numbers {
    struct slice_tally slice, total; /* of the open slice, of all slices; both with the batches in memory */
    struct slice_tally counted;      /* since the start; never decreases */
    uint64_t rows_flushed, flushes, collisions, holes;
    int64_t
        newest_event; /* the latest time of an event counted since the start, not after the latest trusted time; 0: none */
    usec_t last_flush; /* duration */
    size_t memory;
};
void aggregate_numbers(const struct aggregate *a, struct aggregate_numbers *out);
/* How many events the counter (totals first, then subtotals) counted as `(other)` since the start, because of its max_keys. */
uint64_t aggregate_over_max_keys(const struct aggregate *a, size_t counter);

#endif
