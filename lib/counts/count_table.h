/* count_table: counts in memory under fixed-size keys {counter, time, ids of the components}, in one flat table.
 *
 * A key consists of the index of a counter (totals first, then subtotals), the time of an hour or quarter hour, and one
 * or two ids of interned texts. Counts are sorted only when a flush or a read takes them.
 *
 * 1. The table consists of small parts. Each part grows separately, and the parts grow at different times. So counting
 *    never pauses to move a large table. All counts of a key are in the same sixteenth of the parts, so a read of the
 *    key searches only a sixteenth of the table.
 * 2. Each key has one slot. The slot's count is below 2^32, because the caller ends a batch before the batch has that
 *    many events.
 * 3. count_table_source yields records (records.h) in order. If several ids have the same stored form, the source adds
 *    up their counts.
 *    The slot of a counter with a value holds the index of a 64-bit sum of the table.
 * 4. A table of members has sets instead of counts: its source yields the chunks of sets (count_merge.h).
 * 5. A table has quarters_since. Earlier counts are by hour, later counts by quarter hour. The source yields the texts
 *    of these periods, and for members the text of the unique counter's period.
 * 6. A source holds copies of the counts and stays valid when the table changes. Several threads may read the table
 *    while no thread adds counts.
 */
#ifndef MILLRACE_COUNT_TABLE_H
#define MILLRACE_COUNT_TABLE_H

#include "counts/count_merge.h"
#include "counts/counters.h"
#include "counts/interner.h"

/* A key with its count. A slot has 16 bytes, so a cache line holds four slots. In a table of members, the whole slot is
 * the key (count_member). In the table, `count` is the index of a sum if the key was added by count_table_add_sums. */
struct count_slot {
    uint32_t tag; /* counter + 1 and the time, combined by count_tag; 0: the slot is empty */
    uint32_t key, sub;
    uint32_t count;
};

#define COUNT_TAG_HOUR_BITS 21    /* bits of a tag for the hour */
#define COUNT_TAG_QUARTER_BITS 23 /* or for the quarter hour */
_Static_assert(COUNTERS_MAX + 1 < 1u << (32 - COUNT_TAG_HOUR_BITS), "a tag has room for every counter");
_Static_assert(
    COUNTERS_QUARTERS_MAX + 1 < 1u << (32 - COUNT_TAG_QUARTER_BITS), "a tag has room for every counter");
#define COUNT_NO_SUB UINT32_MAX /* the sub id of a total's key */

struct count_table;

/* `quarters_since` is the first second of an hour, or 0 for a table without quarter hours. */
struct count_table *count_table_new(uint64_t seed, int64_t quarters_since);
/* A table of members (count_member), each of which is held once. */
struct count_table *count_table_new_members(uint64_t seed, int64_t quarters_since);
/* `start` is the first second of the hour or quarter hour, at least HOUR_FIRST and below HOUR_END. */
uint32_t count_tag(const struct count_table *t, size_t counter, int64_t start);
/* A member of a unique counter's set. `unique` is the counter's index in counters->uniques, `start` the first second of
 * the day, hour or quarter hour, `key` the id of the total's key. */
struct count_slot count_member(
    const struct count_table *t, size_t unique, int64_t start, uint32_t key, uint64_t code);
void count_table_free(struct count_table **t);

/* Adds the counts of n keys. Pass all keys of an event in one call, because count_table_add prefetches the slots of all
 * keys first. */
void count_table_add(struct count_table *t, const struct count_slot *keys, size_t n);

/* Adds amounts[i] to the sum of keys[i], whose `count` is ignored. A counter's keys must all be added by
 * count_table_add_sums, or all by count_table_add. The caller ensures that no sum exceeds 64 bits. */
void count_table_add_sums(
    struct count_table *t, const struct count_slot *keys, const int64_t *amounts, size_t n);

size_t count_table_counts(const struct count_table *t);
size_t count_table_bytes(const struct count_table *t);

/* A range of keys: the keys that begin with `prefix` and lie between `from` and `last`, both inclusive. Keys and bounds
 * include their separators. If `last` is empty, the range has no upper bound. A source for a range may also yield keys
 * outside the range. */
struct count_range {
    struct bytes from, prefix, last;
};
bool count_range_has(const struct count_range *r, struct bytes key);
/* Sets wanted[i] for each counter (totals, then subtotals, then unique counters) whose records may be in the range. */
void count_range_note_counters(const struct count_range *r, const struct counters *c, bool *wanted);

/* The counts that count_table_pick copies: the counts of the wanted counters whose key is one of the ids `keys` and
 * whose sub key is one of the ids `subs`. If `subs` is NULL, every sub key is wanted. `subs` does not affect totals and
 * members. All ids are below n_ids. */
struct count_choice {
    const bool *wanted; /* for each counter, or for each unique counter if the table is one of members */
    const uint32_t *keys, *subs;
    size_t n_keys, n_subs;
    uint32_t n_ids;
    size_t most; /* limit of the copy; 0: unlimited */
};
/* The copies' ids have the same texts as the ids of the copied table. */
struct count_table *count_table_copy(const struct count_table *t);
/* Copies the chosen counts. Returns NULL if they are more than `most`. */
struct count_table *count_table_pick(const struct count_table *t, const struct count_choice *choice);

/* The counters and the interner must outlive the source. */
struct count_source *count_table_source(const struct count_table *t, const struct interner *texts,
    const struct counters *counters, const struct count_range *range);
/* A source of the lookup records of `n` ids of hashed texts. */
struct count_source *count_lookup_source(
    const struct interner *texts, const uint32_t *ids, size_t n, const struct count_range *range);

#endif
