/* aggregate: counts the lines of streams, stores the counts in slices, and answers reads over memory and slices.
 *
 * Lines are counted into the *active* batch in memory. After flush_interval, or at its share of the memory, it
 * becomes the *flushing* batch, which the storage thread commits to the open slice as a run. A read adds up three
 * layers: the slice's reader, the flushing batch and the active batch.
 *
 * Invariants
 * 1. Every count is in exactly one layer: a single call of aggregate_poll renews the reader and drops the committed
 *    batch.
 * 2. A batch's transaction also stores how far its lines reach in each stream, so after a crash no line is counted
 *    twice or missed.
 * 3. A batch's rejects are synced before its transaction, which records their length.
 * 4. On a full disk the commit is retried every AGGREGATE_RETRY, and counting continues until max_memory or
 *    max_batch: then aggregate_is_full, and the feeder pauses. Any other failure stops all writes until a restart.
 *    Reads continue.
 * 5. A slice has one configuration of counters. If it has changed, aggregate_open seals the open slice and begins a
 *    new one.
 * 6. A seal of slice n commits its last batch and its mark in one transaction; later lines count into slice n + 1. On
 *    a full disk each step waits, while counting and reads continue. After a crash before this transaction, slice n
 *    is open. After a later crash, aggregate_open begins slice n + 1 where slice n ended.
 * 7. The slices continue the archive without a gap, or aggregate_open fails. A slice is cleared only once the
 *    archive includes it.
 *
 * One owner thread makes every call; a read may run in another while the aggregate is held (aggregate_hold).
 * `notify`, called by the storage thread, makes the owner call aggregate_poll soon. Times are monotonic unless
 * stated otherwise. */
#ifndef MILLRACE_AGGREGATE_H
#define MILLRACE_AGGREGATE_H

#include "base/stats.h"
#include "aggregator/reads.h"
#include "aggregator/sealed.h"
#include "counts/rejects.h"

#define AGGREGATE_RETRY USEC_PER_SEC

struct aggregate;

/* The least max_memory. Half of it is for memory that does not depend on the setting: SQLite, merges, buffers, and
 * memory that is free but not returned to the system. */
#define AGGREGATE_MEMORY_MIN ((size_t)32 << 20)

struct aggregate_config {
    const char *dir;     /* the data directory; aggregate_open creates slices/ and rejects/ in it */
    const char *archive; /* the archive's directory; NULL: no archive, slices are never cleared */
    const struct counters *counters; /* must outlive the aggregate */
    const char *const *streams;      /* names, copied */
    size_t n_streams;
    size_t max_inputs; /* limit of aggregate_add_input calls */
    usec_t flush_interval;
    size_t
        max_memory; /* bytes, for counting; more than AGGREGATE_MEMORY_MIN / 2 and the keys of limited counters */
    size_t max_sealed; /* limit of sealed slices; 0: SEALED_MAX */
    struct rejects_limits rejects_limits;
    uint64_t max_batch; /* limit of events in a batch; 0: TALLY_EVENTS_MAX */
    struct stats_histogram
        *lateness; /* of the events of streams: from their time until they are counted; NULL: not measured */
    void (*notify)(void *arg);
    void *notify_arg;
    void (*on_reject)(
        const struct rejects_entry *entry, void *arg); /* each rejected line; NULL: not reported */
    void *reject_arg;
};

/* Opens and recovers the slices; blocks. `wall` is the wall clock, which is trusted. */
enum slice_result aggregate_open(
    const struct aggregate_config *config, usec_t wall, struct aggregate **out, struct error *error);
/* Waits for the current commit. Lines that are not committed are counted again after the next aggregate_open. */
void aggregate_close(struct aggregate **a);

/* Feeding. `stream` is an index into the configuration's streams, or the index of an input. */
/* The position up to which the stream is counted in memory. Valid until the next feeding call. */
const struct slice_cursor *aggregate_cursor(const struct aggregate *a, size_t stream);
/* Where the stream's committed counts end; before the first commit, its start. The id is empty until the stream is
 * first read. */
const struct slice_cursor *aggregate_committed(const struct aggregate *a, size_t stream);
/* Sets the time of the stream's cursor, and of the committed one if all lines before the cursor are committed. The next flush stores
 * it; a new time alone causes no flush. */
void aggregate_set_until(struct aggregate *a, size_t stream, usec_t until);
/* Makes the next flush store the times even if no cursor has moved. */
void aggregate_keep_untils(struct aggregate *a);
/* Sets the id and first offset of a stream whose cursor has no id. */
void aggregate_begin_stream(struct aggregate *a, size_t stream, const char *id, uint64_t offset);
/* An input is a source of lines that is not a stream, such as a file, with a cursor whose name begins with a dot.
 * Inputs, also those of the slices, have the indices from n_streams to aggregate_inputs_end - 1. */
#define AGGREGATE_INPUT_MARK '.'
size_t aggregate_inputs_end(const struct aggregate *a);
/* Adds an input with a name that no input has. Returns its index. */
size_t aggregate_add_input(struct aggregate *a, const char *name);
/* Sets the name and content (rejects.h) of the file for the entries of its rejected lines. Borrowed; read with each rejected line. */
void aggregate_set_input_file(struct aggregate *a, const char *path, const char *content);
/* Moves the cursor past bytes that contain no line to count. */
void aggregate_pass(struct aggregate *a, size_t stream, uint64_t bytes);
/* Sets the wall clock and the trusted time (base/clock_watch.h). max_ahead, lateness and rejects use the wall clock
 * or the latest trusted time, whichever is later, so that a clock that was set back causes no rejections. Deletions
 * by age use the trusted time. */
void aggregate_set_wall(struct aggregate *a, usec_t wall, usec_t trusted);
/* For put_back.h: counts the line of a rejects entry, or rejects the line again with its new reason. */
enum counters_verdict aggregate_take_rejected(struct aggregate *a, const struct rejects_entry *entry);
/* Adds the entry (without its LF) to the rejects as it is. */
void aggregate_keep_rejected(struct aggregate *a, struct bytes entry);
/* Sets the input's cursor to the place in the rejects up to which lines were put back. */
void aggregate_set_front(struct aggregate *a, size_t input, struct rejects_place front);
/* Sets *end to the end of the committed rejects. Returns false during a seal. */
bool aggregate_rejects_end(const struct aggregate *a, struct rejects_place *end);
const char *aggregate_rejects_dir(const struct aggregate *a);
/* Counts the line at the cursor (without its LF) and moves the cursor behind the LF. */
void aggregate_take_line(struct aggregate *a, size_t stream, struct bytes line);
/* Rejects the line at the cursor because it exceeds max_line, and moves the cursor behind it. It has `length` bytes
 * without its LF; `head` is its beginning. */
void aggregate_take_overlong(struct aggregate *a, size_t stream, struct bytes head, uint64_t length);
/* Sets the cursor's id in the form of slices: the stream's id and the opening of the byte before the cursor
 * (docs/formats/journal.md). */
void aggregate_set_stream_id(struct aggregate *a, size_t stream, const char *id);
/* Moves the cursor to `after`: past lost bytes, or back to where a restored copy of the stream differs. */
void aggregate_cross_hole(struct aggregate *a, size_t stream, uint64_t after);
/* True while the feeder must pause: memory or the batch is full, or writing has failed. */
bool aggregate_is_full(const struct aggregate *a);

/* Begins the due job: a retry, a flush (the first lines at once), or a merge step. True if a flush began. Call it
 * several times per flush_interval. */
bool aggregate_tick(struct aggregate *a, usec_t now);
/* Begins a flush unless the storage thread is busy. */
void aggregate_flush(struct aggregate *a, usec_t now);
/* Takes the storage thread's result and begins the next job. */
void aggregate_poll(struct aggregate *a, usec_t now);
/* True if all counts are committed and no seal is in progress. */
bool aggregate_is_clean(const struct aggregate *a);
/* The storage's failure, or NULL. It lasts until a restart, unless its code is SLICE_FULL. */
const struct error *aggregate_failure(const struct aggregate *a);

/* Begins to seal the open slice. After SLICE_OK, call again after each aggregate_poll until aggregate_sealed lists
 * the slice. SLICE_FULL: the disk is full, or too many slices are sealed; a seal that has begun completes later.
 * `wall` is the trusted time. */
enum slice_result aggregate_seal(struct aggregate *a, usec_t now, usec_t wall, struct error *error);

enum aggregate_clear {
    AGGREGATE_CLEAR_OK,
    AGGREGATE_CLEAR_BUSY,         /* the storage thread is still busy with this job or an earlier one */
    AGGREGATE_CLEAR_OPEN,         /* the slice is not sealed */
    AGGREGATE_CLEAR_NOT_ARCHIVED, /* the archive does not include it or is unreadable: see error */
    AGGREGATE_CLEAR_FAILED,       /* some slices may remain: see error */
};
/* Deletes the sealed slices up to `through`. BUSY: call again after each aggregate_poll, before aggregate_tick. */
enum aggregate_clear aggregate_clear(struct aggregate *a, usec_t now, uint64_t through, struct error *error);
/* The sealed slices, oldest first. Valid until the next seal or clear. */
const struct sealed *aggregate_sealed(const struct aggregate *a);

enum aggregate_after {
    AGGREGATE_AFTER_OK,
    AGGREGATE_AFTER_CLEARED, /* a slice after `after` was cleared, so its counts are missing */
    AGGREGATE_AFTER_AHEAD,   /* slice `after` is not sealed yet */
};
/* The layers that hold all counts after slice `after`. Valid until the next call of any function here. */
enum aggregate_after aggregate_layers(struct aggregate *a, uint64_t after, struct reads_layers *out);
/* The last cleared slice; 0: none. */
uint64_t aggregate_cleared_slice(const struct aggregate *a);
/* While held, neither readers nor the batch that is being written change: a read may run in another thread, while
 * counting continues. */
void aggregate_hold(struct aggregate *a, bool hold);
uint64_t aggregate_open_slice(const struct aggregate *a);
/* When the slice that was open at aggregate_open was begun: wall clock, seconds. */
int64_t aggregate_open_started(const struct aggregate *a);

struct aggregate_numbers {
    struct slice_tally slice,
        total; /* of the open slice and of all slices, each including the batches in memory */
    struct slice_tally counted;   /* since the start; never decreases */
    struct slice_tally committed; /* since the start; may be less than `counted` */
    uint64_t rows_flushed, flushes, collisions, holes;
    int64_t
        newest_event; /* the latest event time counted since the start, at most the latest trusted time; 0: none */
    usec_t last_flush; /* duration */
    size_t memory;
};
void aggregate_numbers(const struct aggregate *a, struct aggregate_numbers *out);
/* The latest event time of a stream, as aggregate_numbers.newest_event. */
int64_t aggregate_newest_event(const struct aggregate *a, size_t stream);
/* How many events the counter (totals first, then subtotals) counted as `(other)` since the start, because of its max_keys. */
uint64_t aggregate_over_max_keys(const struct aggregate *a, size_t counter);
/* counters_reader_absent of the counted events. */
const char *aggregate_absent_field(const struct aggregate *a, size_t i);
/* counters_reader_beyond of the lines so far. */
int64_t aggregate_time_beyond(const struct aggregate *a);

#endif
