/* aggregate: counts the lines of streams, stores the counts in slices, and answers reads over memory and slices.
 *
 * Lines are counted into the *active* batch in memory. After flush_interval, or once the active batch has its share of
 * the memory, it becomes the *flushing* batch. The storage thread commits the flushing batch to the open slice as a
 * run. A read adds up three layers: the slice's reader, the flushing batch and the active batch.
 *
 * Invariants
 * 1. Every count is in exactly one layer, because one call of aggregate_poll both renews the reader and drops the
 *    committed batch.
 * 2. The transaction of a batch also stores the cursor of each stream. So after a crash, no line is counted twice or
 *    missed.
 * 3. The rejects of a batch are synced before the batch's transaction, which records their length.
 * 4. If the disk is full, the commit is retried every AGGREGATE_RETRY. Counting continues until max_memory or max_batch
 *    is reached; then aggregate_is_full returns true, and the caller pauses. Any other failure stops all writes until a
 *    restart, while reads continue.
 * 5. All counts of a slice belong to one configuration of counters. If the configuration has changed, aggregate_open
 *    seals the open slice and begins a new slice.
 * 6. A seal of slice n commits the slice's last batch and the sealed state in one transaction. Later lines count into
 *    slice n + 1. If the disk is full, the seal waits, while counting and reads continue. After a crash before this
 *    transaction, slice n is open. After a later crash, aggregate_open begins slice n + 1 where slice n ended.
 * 7. With `minutes`, each event of a stream is also added to the ring of minutes. A line that is put back is not added,
 *    because the refill after the start with the corrected configuration has already added this line.
 * 8. If there is a gap between the archive and the slices, aggregate_open fails. A slice is cleared (deleted) only once
 *    the archive includes the slice.
 *
 * One thread, the owner, makes all calls. While the aggregate is held (aggregate_hold), another thread may run a read.
 * The storage thread calls `notify`, after which the owner must soon call aggregate_poll. Times are monotonic unless
 * stated otherwise. */
#ifndef MILLRACE_AGGREGATE_H
#define MILLRACE_AGGREGATE_H

#include "base/stats.h"
#include "aggregator/reads.h"
#include "aggregator/sealed.h"
#include "counts/rejects.h"

#define AGGREGATE_RETRY USEC_PER_SEC

struct aggregate;

/* The least max_memory. Half of the minimum is for memory that the setting does not limit: SQLite, merges, buffers, and
 * memory that is free but not returned to the system. */
#define AGGREGATE_MEMORY_MIN ((size_t)32 << 20)

struct aggregate_config {
    const char *dir; /* data directory, in which aggregate_open creates slices/ and rejects/ */
    /* directory of the archive; NULL: there is no archive, and slices are never cleared */
    const char *archive;
    const struct counters *counters; /* must outlive the aggregate */
    const char *const *streams;      /* copied */
    size_t n_streams;
    size_t max_inputs; /* limit of aggregate_add_input calls */
    usec_t flush_interval;
    /* bytes for counting; more than AGGREGATE_MEMORY_MIN / 2 plus the keys of limited counters */
    size_t max_memory;
    struct minute_ring *minutes; /* ring of the streams' events; must outlive the aggregate; NULL: none */
    size_t max_sealed;           /* limit of sealed slices; 0: SEALED_MAX */
    struct rejects_limits rejects_limits;
    uint64_t max_batch; /* limit of events in a batch; 0: TALLY_EVENTS_MAX */
    /* delay of the streams' events from their time until they are counted; NULL: not measured */
    struct stats_histogram *lateness;
    void (*notify)(void *arg);
    void *notify_arg;
    void (*on_reject)(
        const struct rejects_entry *entry, void *arg); /* called for each rejected line; may be NULL */
    void *reject_arg;
};

/* Opens and recovers the slices. Blocks. `wall` is the wall clock, which aggregate_open trusts. */
enum slice_result aggregate_open(
    const struct aggregate_config *config, usec_t wall, struct aggregate **out, struct error *error);
/* Waits for the current commit, and frees the aggregate. The next aggregate_open counts uncommitted lines again. */
void aggregate_close(struct aggregate **a);

/* The functions that feed lines. `stream` is an index into the configuration's streams, or the index of an input. */
/* Returns the position up to which the stream is counted in memory. Valid until the next feeding call. */
const struct slice_cursor *aggregate_cursor(const struct aggregate *a, size_t stream);
/* Returns the position up to which the stream's counts are committed; before the first commit, the start of the stream.
 * The id is empty until the stream is first read. */
const struct slice_cursor *aggregate_committed(const struct aggregate *a, size_t stream);
/* Sets the time (`until`) of the stream's cursor. If all lines before the cursor are committed, also sets the time of
 * the committed cursor. The next flush stores the time, but a new time alone causes no flush. */
void aggregate_set_until(struct aggregate *a, size_t stream, usec_t until);
/* Makes the next flush store the cursors' times even if no cursor has moved. */
void aggregate_keep_untils(struct aggregate *a);
/* Sets the id and first offset of a stream whose cursor has no id. */
void aggregate_begin_stream(struct aggregate *a, size_t stream, const char *id, uint64_t offset);
/* An input is a source of lines that is not a stream, such as a file. The name of an input's cursor begins with a dot.
 * Inputs, including the inputs that are stored in the slices, have the indices from n_streams to aggregate_inputs_end -
 * 1. */
#define AGGREGATE_INPUT_MARK '.'
size_t aggregate_inputs_end(const struct aggregate *a);
/* Adds an input whose name no other input has. Returns the input's index. */
size_t aggregate_add_input(struct aggregate *a, const char *name);
/* Sets the path and content (rejects.h) of the input file that entries of rejected lines show. The texts are borrowed
 * until the next call of aggregate_set_input_file. */
void aggregate_set_input_file(struct aggregate *a, const char *path, const char *content);
/* Moves the cursor past bytes that contain no line to count. */
void aggregate_pass(struct aggregate *a, size_t stream, uint64_t bytes);
/* Sets the wall clock and the trusted time (base/clock_watch.h). max_ahead, lateness and rejects use the later of the
 * wall clock and the latest trusted time, so a clock that was set back causes no rejections. Deletions by age use the
 * trusted time. */
void aggregate_set_wall(struct aggregate *a, usec_t wall, usec_t trusted);
/* Counts the line of a rejects entry (for put_back.h). If the line is rejected again, adds an entry with the new
 * reason. */
enum counters_verdict aggregate_take_rejected(struct aggregate *a, const struct rejects_entry *entry);
/* Adds an entry, without its LF, to the rejects unchanged. */
void aggregate_keep_rejected(struct aggregate *a, struct bytes entry);
/* Sets the cursor of the input for rejects to the front: the position before which all entries were put back. */
void aggregate_set_front(struct aggregate *a, size_t input, struct rejects_place front);
/* Sets *end to the end of the committed rejects. Returns false while a seal is in progress. */
bool aggregate_rejects_end(const struct aggregate *a, struct rejects_place *end);
const char *aggregate_rejects_dir(const struct aggregate *a);
/* Counts the line at the cursor and moves the cursor after the line's LF. `line` has no LF. */
void aggregate_take_line(struct aggregate *a, size_t stream, struct bytes line);
/* Adds a line to the minute ring only, because the slices already have its counts (minute_refill.h). */
void aggregate_refill_line(struct aggregate *a, struct bytes line);
/* Rejects the line at the cursor because the line exceeds max_line, and moves the cursor after the line. The line has
 * `length` bytes without its LF; `head` is the line's beginning. */
void aggregate_take_overlong(struct aggregate *a, size_t stream, struct bytes head, uint64_t length);
/* Sets the cursor's id. The id has the form of slices: the stream's id and the opening of the byte before the cursor.
 * An opening is a run of pubsub (docs/formats/journal.md). */
void aggregate_set_stream_id(struct aggregate *a, size_t stream, const char *id);
/* Moves the cursor to `after`. The new position is after lost bytes, or before the first line in which a restored copy
 * differs from the original stream. */
void aggregate_cross_hole(struct aggregate *a, size_t stream, uint64_t after);
/* True while the feeder must pause, because the memory or the batch is full or writing has failed. */
bool aggregate_is_full(const struct aggregate *a);

/* Begins the job that is due: a retry, a flush or a merge step. The first lines are flushed at once. Returns true if a
 * flush began. Call aggregate_tick several times per flush_interval. */
bool aggregate_tick(struct aggregate *a, usec_t now);
/* Begins a flush unless the storage thread is busy. */
void aggregate_flush(struct aggregate *a, usec_t now);
/* Takes the storage thread's result and begins the next job. */
void aggregate_poll(struct aggregate *a, usec_t now);
/* True if all counts are committed and no seal is in progress. */
bool aggregate_is_clean(const struct aggregate *a);
/* Returns the error of the storage, or NULL. An error other than SLICE_FULL lasts until a restart. */
const struct error *aggregate_failure(const struct aggregate *a);

/* Begins to seal the open slice. After SLICE_OK, call aggregate_seal again after each aggregate_poll until
 * aggregate_sealed lists the slice. SLICE_FULL: the disk is full, or too many slices are sealed; a seal that has begun
 * completes later. `wall` is the trusted time. */
enum slice_result aggregate_seal(struct aggregate *a, usec_t now, usec_t wall, struct error *error);

enum aggregate_clear {
    AGGREGATE_CLEAR_OK,
    AGGREGATE_CLEAR_BUSY, /* the storage thread is still busy with this clear or an earlier job */
    AGGREGATE_CLEAR_OPEN, /* the slice is not sealed */
    AGGREGATE_CLEAR_NOT_ARCHIVED, /* the archive does not include the slice or is unreadable; `error` has the reason */
    AGGREGATE_CLEAR_FAILED, /* some slices may remain; `error` has the reason */
};
/* Deletes the sealed slices up to `through`. After AGGREGATE_CLEAR_BUSY, call aggregate_clear again after each
 * aggregate_poll and before aggregate_tick. */
enum aggregate_clear aggregate_clear(struct aggregate *a, usec_t now, uint64_t through, struct error *error);
/* Returns the sealed slices, oldest first. Valid until the next seal or clear. */
const struct sealed *aggregate_sealed(const struct aggregate *a);

enum aggregate_after {
    AGGREGATE_AFTER_OK,
    AGGREGATE_AFTER_CLEARED, /* a slice after `after` was cleared, so its counts are missing */
    AGGREGATE_AFTER_AHEAD,   /* slice `after` is not sealed yet */
};
/* Sets *out to the layers that hold all counts after slice `after`. Valid until the next call of any function of this
 * file. */
enum aggregate_after aggregate_layers(struct aggregate *a, uint64_t after, struct reads_layers *out);
/* Returns the number of the last cleared slice, or 0 if no slice was cleared. */
uint64_t aggregate_cleared_slice(const struct aggregate *a);
/* Holds or releases the aggregate. While held, the readers and the flushing batch do not change, so that another thread
 * can run a read while counting continues. */
void aggregate_hold(struct aggregate *a, bool hold);
/* Returns the positions of the counters in the rows of the minutes. */
struct minute_columns aggregate_minute_columns(const struct aggregate *a);
uint64_t aggregate_open_slice(const struct aggregate *a);
/* The time from which the slices count by quarter hour (count_table.h). 0: counts are of hours. */
int64_t aggregate_quarters_since(const struct aggregate *a);
/* Returns the time at which the slice that aggregate_open opened began: wall clock, seconds. */
int64_t aggregate_open_started(const struct aggregate *a);

struct aggregate_numbers {
    /* `slice`: tally of the open slice; `total`: tally of all slices; both include the batches in memory */
    struct slice_tally slice, total;
    struct slice_tally counted;   /* tally since the start of the process; never decreases */
    struct slice_tally committed; /* committed part of `counted` */
    uint64_t rows_flushed, flushes, collisions, holes;
    /* latest event time counted since the start, at most the latest trusted time; 0: no event */
    int64_t newest_event;
    usec_t last_flush;
    size_t memory;
};
void aggregate_numbers(const struct aggregate *a, struct aggregate_numbers *out);
/* The newest_event of one stream. */
int64_t aggregate_newest_event(const struct aggregate *a, size_t stream);
/* Returns the number of events since the start that a counter (totals first, then subtotals) counted as `(other)`
 * because of its max_keys. */
uint64_t aggregate_over_max_keys(const struct aggregate *a, size_t counter);
/* Returns the result of counters_reader_absent for the counted events. */
const char *aggregate_absent_field(const struct aggregate *a, size_t i);
/* Returns the result of counters_reader_beyond for the lines so far. */
int64_t aggregate_time_beyond(const struct aggregate *a);

#endif
