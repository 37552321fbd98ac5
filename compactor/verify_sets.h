/* verify_sets: checks the sets of one shard (docs/internals/sets.md).
 *
 * 1. Both files have the sizes and checksums of the manifest. The texts are in order, each key once, and of this shard.
 *    Each set with a size is in the file of sets, with this size and a right checksum.
 * 2. The set of a day includes the sets of its hours. The set of a month is the union of the sets of its days and hours,
 *    and exists if and only if two or more days have sets.
 *
 * Memory: the sets of one day and one month of a key. */
#ifndef MILLRACE_VERIFY_SETS_H
#define MILLRACE_VERIFY_SETS_H

#include "compactor/set_reader.h"

enum compact_result verify_sets(
    const char *directory, const struct manifest *m, uint32_t shard, struct error *error);

#endif
