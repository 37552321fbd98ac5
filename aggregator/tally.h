/* tally: counts events into batches in memory.
 *
 * A batch holds the counts and the members of the lines between two flushes (count_table.h), new lookups, and rejects.
 * Batches share an interner until the interner has used its share of the memory.
 *
 * Events from quarters_since on count in their quarter hour, and earlier events in their hour.
 *
 * 1. An event adds one to one count of every total and every subtotal. If a total has a value, the event adds its
 *    value, instead of one, to the total and its subtotals. Skipped and rejected lines add to no count. So the counts
 *    of a subtotal in an hour or quarter hour add up to the total's count of that period. If the event has a member for
 *    a unique counter, the counter's set of the total's key contains this member.
 * 2. If a batch is the first batch in its slice to count a hashed component, the batch contains the component's lookup.
 *    When the interner is replaced, lookups are added once more.
 * 3. A key over its counter's max_keys counts as `(other)` and has no lookup. Its members are in the sets of `(other)`.
 * 4. The texts of a batch are valid until the batch is freed. Free batches in the order in which tally_take returned
 *    them.
 * 5. An event is rejected if a total's sum of absolute values would exceed VALUE_SUM_MAX (value_sums.h).
 * 6. If the tally has a minute ring (minute_ring.h), a line that tally_line has counted can be added to the ring, with the
 *    same texts. A line that was counted before the start is added with tally_refill_line, and only to the ring.
 *
 * One thread adds events. Another thread may read a batch that tally_take has returned. */
#ifndef MILLRACE_TALLY_H
#define MILLRACE_TALLY_H

#include "aggregator/key_limit.h"
#include "aggregator/minute_read.h"
#include "counts/count_table.h"
#include "counts/value_sums.h"

/* The number of events at which a batch must be flushed. If the feeder pauses at this number, every count is below
 * 2^32. */
#define TALLY_EVENTS_MAX (UINT64_C(1) << 31)

struct batch {
    struct count_table *table;   /* counts of the batch; NULL in an unused batch */
    struct count_table *members; /* members of unique counters */
    struct interner *texts;
    bool owns_texts;
    uint32_t lookup_mark; /* least lookup_mark of texts whose lookups were added since the slice began */
    uint32_t *lookups;    /* ids of the hashed texts whose lookups the batch contains */
    size_t n_lookups, room_lookups;
    struct buf rejects;
    uint64_t events;
    int64_t newest_hour; /* the latest hour before quarters_since that has counts; 0: none */
    bool moved;          /* a cursor moved */
};

void batch_free(struct batch *b);
size_t batch_bytes(const struct batch *b); /* without its texts */

struct tally;

/* `max_memory` limits the batches and texts together (bytes). The counters and the ring must outlive the tally. `ring` is
 * NULL if nothing is counted by minute. `quarters_since` is as in count_table.h. */
struct tally *tally_new(
    const struct counters *counters, size_t max_memory, struct minute_ring *ring, int64_t quarters_since);
void tally_free(struct tally **t);
/* Restores the keys of limited counters (key_limit.h) from the open slice. */
enum slice_result tally_load_keys(struct tally *t, struct slice_reader *slice, struct error *error);
/* Returns the limit of a counter (totals first, then subtotals), or NULL if the counter is unlimited. */
const struct key_limit *tally_limit(const struct tally *t, size_t counter);

/* Returns the reader, which has the results of counters_reader_absent and counters_reader_beyond. */
struct counters_reader *tally_reader(const struct tally *t);
/* Sets the present time (Unix seconds). Times of events may exceed the present time by at most max_ahead. */
void tally_set_now(struct tally *t, int64_t now);
/* Counts a line. With COUNTERS_REJECTED, *reason is valid until the next line. With COUNTERS_EVENT, *time is the
 * event's time (Unix seconds). */
enum counters_verdict tally_line(struct tally *t, struct bytes line, const char **reason, int64_t *time);
/* Adds the line that tally_line has just counted to the ring. `time` is the event's time. */
void tally_count_minute(struct tally *t, int64_t time);
/* Adds a line to the ring only. A key that its limit (key_limit.h) neither has nor has room for counts as `(other)`.
 * Values that tally_line would reject now, because of a full sum, are not added. */
void tally_refill_line(struct tally *t, struct bytes line);
/* Returns the positions of the counters in the rows of the ring. */
struct minute_columns tally_minute_columns(const struct tally *t);
/* The sums of absolute values in the open slice, one for each total with a value: those of tally_begin_sums, plus the
 * values of the lines counted since then. tally_take with `ends_slice` sets the sums to 0. */
const struct value_sums *tally_sums(const struct tally *t);
/* Adds the sums of the open slice, before the first line. */
void tally_begin_sums(struct tally *t, const struct value_sums *slice);
/* Sets the sums of everything before the lines of tally_sums: the archive and the earlier slices. */
void tally_set_earlier_sums(struct tally *t, const struct value_sums *earlier);
/* Returns the batch that lines are counted into. */
struct batch *tally_batch(struct tally *t);
/* Returns true if the batch must be flushed, because the batch or the texts have used their share of the memory. */
bool tally_is_large(const struct tally *t);
size_t tally_bytes(const struct tally *t);
/* Returns the current batch and begins an empty batch. With `ends_slice`, later batches contain all lookups again, and
 * limited counters begin without keys. */
struct batch tally_take(struct tally *t, bool ends_slice);

/* Copies all counts of a batch for a read. The copy stays valid while the batch counts further lines, and uses the
 * batch's texts. Only the thread that adds events may make a copy. Another thread may read the copy. */
struct batch batch_copy(const struct batch *b);
/* The counts that batch_pick copies: the counts of the wanted counters whose key is one of the components (stored
 * forms) and whose sub key is one of the names, and the members of the wanted unique counters under these keys. Without
 * names, every sub key is copied. If there are more than `most` such counts or members, batch_pick returns a batch
 * without a table. */
struct batch_choice {
    const bool *wanted; /* totals, then subtotals, then unique counters */
    size_t n_counters;  /* totals and subtotals */
    const struct bytes *components, *names;
    size_t n_components, n_names, most;
};
struct batch batch_pick(const struct batch *b, const struct batch_choice *choice);

/* Writes at most BATCH_SOURCES sources to `out`: the batch's counts, sets and lookups in the range. Returns the number
 * of sources. */
#define BATCH_SOURCES 3
size_t batch_sources(const struct batch *b, const struct counters *counters, const struct count_range *range,
    struct count_source **out);

#endif
