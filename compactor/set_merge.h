/* set_merge: merges the sets of one shard of a generation, beside the merge of its counts (merge.h).
 *
 *     v.u|jehiah.c41,=17 204   and  v.u|jehiah.c41,=204 9   ->  v.u|jehiah.c41,=9 17 204
 *
 * The sets of a month of a key without added sets are copied. In another month, each set is written again, and the set
 * of the month is made from the sets of its days, hours and quarter hours.
 *
 * 1. The result has each set once, in order: the union of the old set and the added sets of its key and period. The
 *    result depends neither on the order of the sources nor on earlier merges.
 * 2. The set of a day includes the sets of its hours. A day has a set if the old or the added sets have it, or if two or
 *    more of its hours have sets. The same holds for an hour and its quarter hours. A month has a set if two or more of its
 *    days have sets. Before `hours_from`, the sets of hours and quarter hours become parts of the day's set.
 * 3. Every old set is verified, except the set of a month that is made again.
 * 4. Memory: the sets of the current period, one hour, one day and one month of a key, and 8 bytes for each set of
 *    the shard.
 * 5. The files of the shard are made with its first set. A shard without sets has no files.
 */
#ifndef MILLRACE_SET_MERGE_H
#define MILLRACE_SET_MERGE_H

#include "compactor/set_reader.h"

struct set_merge;

struct set_merge_spec {
    const char *directory; /* directory of the unfinished generation; borrowed */
    uint32_t shard, shards;
    int64_t hours_from;
    size_t buffer_bytes;
    struct set_reader *old; /* taken over; NULL: none */
};

struct set_merge *set_merge_new(const struct set_merge_spec *spec);
void set_merge_free(struct set_merge **m);
/* Adds the current record of `of`, a set of the key `key`. The calls are in the order of the keys. */
enum compact_result set_merge_add(
    struct set_merge *m, const struct record_key *key, struct count_merge *of, struct error *error);
/* Copies the remaining old sets and finishes the files. *texts and *sets describe them, or have empty names. */
enum compact_result set_merge_finish(
    struct set_merge *m, struct manifest_file *texts, struct manifest_file *sets, struct error *error);
/* Bytes written to the files. */
uint64_t set_merge_bytes(const struct set_merge *m);

#endif
