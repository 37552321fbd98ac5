/* count_table: counts in memory under fixed-size keys {counter, hour, ids of the components}, in one flat table.
 *
 * A key names a counter by its index (totals first, then subtotals), an hour, and one or two interned texts. Counts are sorted only
 * when a flush or a read takes them.
 *
 * 1. The table consists of small parts. Each part grows alone, and the parts at different times, so counting never
 *    pauses to move a large table. The counts of a key lie in a sixteenth of the parts, so that a read of the key searches only these.
 * 2. Each key has one slot. Its count is below 2^32, because the caller ends a batch before it has that many events.
 * 3. count_table_source yields records (records.h) in order. It adds up the counts of ids that have the same stored form.
 * 4. A source holds copies and stays valid when the table changes. Several threads may read the table while none adds.
 */
#ifndef MILLRACE_COUNT_TABLE_H
#define MILLRACE_COUNT_TABLE_H

#include "counts/count_merge.h"
#include "counts/counters.h"
#include "counts/interner.h"

/* A key with its count; 16 bytes, four to a cache line. */
struct count_slot {
    uint32_t tag; /* counter + 1 and hour, made by count_tag; 0: empty */
    uint32_t key, sub;
    uint32_t count;
};

#define COUNT_TAG_HOUR_BITS 21
_Static_assert(COUNTERS_MAX + 1 < 1u << (32 - COUNT_TAG_HOUR_BITS), "a tag has room for every counter");
#define COUNT_NO_SUB UINT32_MAX /* the sub id of a total's key */

/* `hour` is the first second of the hour, at least HOUR_FIRST and below HOUR_END. */
uint32_t count_tag(size_t counter, int64_t hour);

struct count_table;

struct count_table *count_table_new(uint64_t seed);
void count_table_free(struct count_table **t);

/* Adds the counts of n keys. Pass all keys of an event in one call: their slots are prefetched together. */
void count_table_add(struct count_table *t, const struct count_slot *keys, size_t n);

size_t count_table_counts(const struct count_table *t);
size_t count_table_bytes(const struct count_table *t);

/* The keys that begin with `prefix` and lie between `from` and `last`, both inclusive. Keys and bounds include their
 * separators. If `last` is empty, there is no upper bound. A source for a range may also yield keys outside the
 * range. */
struct count_range {
    struct bytes from, prefix, last;
};
bool count_range_has(const struct count_range *r, struct bytes key);
/* Sets wanted[i] for each counter (totals first, then subtotals) whose records may be in the range. */
void count_range_note_counters(const struct count_range *r, const struct counters *c, bool *wanted);

/* Copies counts into a table whose ids have the same texts. Copies all counts, or only the counts of the wanted
 * counters whose key is one of the ids `keys` and whose sub key is one of `subs`. Ids are below n_ids. Without
 * `subs`, every sub key is wanted; a total has none. */
struct count_choice {
    const bool *wanted;
    const uint32_t *keys, *subs;
    size_t n_keys, n_subs;
    uint32_t n_ids;
    size_t most; /* counts to copy; 0: no limit */
};
struct count_table *count_table_copy(const struct count_table *t);
/* Returns NULL if there are more than `most` counts. */
struct count_table *count_table_pick(const struct count_table *t, const struct count_choice *choice);

/* Counters and interner must outlive the source. */
struct count_source *count_table_source(const struct count_table *t, const struct interner *texts,
    const struct counters *counters, const struct count_range *range);
/* A source of lookup records, for `n` ids of hashed texts. */
struct count_source *count_lookup_source(
    const struct interner *texts, const uint32_t *ids, size_t n, const struct count_range *range);

#endif
