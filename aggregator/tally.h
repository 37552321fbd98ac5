/* tally: counts events into batches in memory.
 *
 * A batch holds the counts of the lines between two flushes (count_table.h), new lookups, and rejects. Batches
 * share an interner until it has used its share of the memory.
 *
 * 1. An event adds one to one count of every total and every subtotal. Skipped and rejected lines add nothing. So the
 *    counts of a subtotal in an hour add up to the total's count of that hour.
 * 2. If a batch is the first in its slice to count a hashed component, the batch has the component's lookup. After the
 *    interner was replaced, lookups are added once more.
 * 3. A key beyond its counter's max_keys counts as `(other)` and has no lookup.
 * 4. A batch's texts are valid until the batch is freed. Free batches in the order in which they were taken.
 *
 * One thread adds; another may read a batch after tally_take. */
#ifndef MILLRACE_TALLY_H
#define MILLRACE_TALLY_H

#include "aggregator/key_limit.h"
#include "counts/count_table.h"

/* The number of events at which a batch must be flushed. If the feeder pauses there, every count is below 2^32. */
#define TALLY_EVENTS_MAX (UINT64_C(1) << 31)

struct batch {
    struct count_table *table; /* NULL: no batch */
    struct interner *texts;
    bool owns_texts;
    uint32_t lookup_mark; /* texts whose lookups were added since the slice began have at least this mark */
    uint32_t *lookups;    /* ids of hashed texts */
    size_t n_lookups, room_lookups;
    struct buf rejects;
    uint64_t events;
    bool moved; /* a cursor moved */
};

void batch_free(struct batch *b);
size_t batch_bytes(const struct batch *b); /* without its texts */

struct tally;

/* `max_memory` limits the batches and texts together (bytes). The counters must outlive the tally. */
struct tally *tally_new(const struct counters *counters, size_t max_memory);
void tally_free(struct tally **t);
/* Restores the keys of limited counters (key_limit.h) from the open slice. */
enum slice_result tally_load_keys(struct tally *t, struct slice_reader *slice, struct error *error);
/* The limit of a counter (totals first, then subtotals), or NULL. */
const struct key_limit *tally_limit(const struct tally *t, size_t counter);

/* For samples of the events' fields. */
struct counters_reader *tally_reader(const struct tally *t);
/* Sets the time (Unix seconds) that the times of events may not exceed by more than max_ahead. */
void tally_set_now(struct tally *t, int64_t now);
/* With COUNTERS_REJECTED, *reason is set and valid until the next line. With COUNTERS_EVENT, *time is the event's time (Unix
 * seconds). */
enum counters_verdict tally_line(struct tally *t, struct bytes line, const char **reason, int64_t *time);
/* The batch that lines are counted into. */
struct batch *tally_batch(struct tally *t);
/* True if the batch must be flushed: the batch or the texts have used their share of the memory. */
bool tally_is_large(const struct tally *t);
size_t tally_bytes(const struct tally *t);
/* Returns the current batch and begins an empty one. With `ends_slice`, later batches contain all lookups again, and
 * limited counters begin without keys. */
struct batch tally_take(struct tally *t, bool ends_slice);

/* Copies all counts for a read. The copies stay valid while the original counts further lines. They use the texts of the original. Only
 * the thread that adds may make them; afterwards another thread may read them. */
struct batch batch_copy(const struct batch *b);
/* Copies only the counts of the wanted counters whose key is one of the components (stored forms), and whose sub key is one of the names. No names: any sub
 * key. Without a table: there are more than `most` such counts. */
struct batch_choice {
    const bool *wanted;
    const struct bytes *components, *names;
    size_t n_components, n_names, most;
};
struct batch batch_pick(const struct batch *b, const struct batch_choice *choice);

/* Appends at most BATCH_SOURCES sources to `out`, for the batch's counts and lookups in the range. */
#define BATCH_SOURCES 2
size_t batch_sources(const struct batch *b, const struct counters *counters, const struct count_range *range,
    struct count_source **out);

#endif
