/* tally: counts events into batches in memory.
 *
 * A batch is what is counted between two flushes: a table of counts (count_table.h), the texts that are new to the slice,
 * and the entries for the rejects file. Batches share one interner until it has grown to its share of the memory.
 *
 * 1. An event adds one to one count of every total and of every subtotal; a line that is skipped or rejected adds nothing.
 *    So the counts under one hour of a subtotal add up to the total's count of that hour.
 * 2. A hashed component's lookup is in the first batch of a slice that counts it, and in each first one after the
 *    interner was replaced.
 * 3. A batch's texts stay until the batch is freed. Batches are freed in the order in which they were taken.
 *
 * One thread adds; another may read a batch that was taken.
 */
#ifndef MILLRACE_TALLY_H
#define MILLRACE_TALLY_H

#include "counts/count_table.h"

struct batch {
    struct count_table *table; /* NULL: there is no batch */
    struct interner *texts;
    bool owns_texts;
    uint32_t *lookups; /* ids of hashed texts */
    size_t n_lookups, room_lookups;
    struct buf rejects;
    uint64_t events;
    bool moved; /* some cursor did */
};

void batch_free(struct batch *b);
size_t batch_bytes(const struct batch *b); /* without its texts */

struct tally;

/* `max_memory` bounds the batches and texts together; counters must outlive it. */
struct tally *tally_new(const struct counters *counters, size_t max_memory);
void tally_free(struct tally **t);

/* Of COUNTERS_REJECTED *reason is set, valid until the next line. */
enum counters_verdict tally_line(struct tally *t, struct bytes line, const char **reason);
/* The batch that lines are counted into. */
struct batch *tally_batch(struct tally *t);
/* The batch is due to be flushed: it or the texts have reached their share. */
bool tally_is_large(const struct tally *t);
size_t tally_bytes(const struct tally *t);
/* Takes the batch and begins an empty one; `ends_slice`: lookups begin anew. */
struct batch tally_take(struct tally *t, bool ends_slice);

/* Appends sources of the batch's counts and lookups in the range to `out`, at most BATCH_SOURCES. */
#define BATCH_SOURCES 2
size_t batch_sources(const struct batch *b, const struct counters *counters, const struct count_range *range,
    struct count_source **out);

#endif
