/* set_reader: reads the sets of one shard of a generation (docs/internals/sets.md), in the order of their keys.
 *
 * The lines of sets-K-of-S.csv and the sets of shard-K-of-S.sets are read side by side.
 *
 * 1. At the end, the lines have been compared with the manifest, as record_reader does, and each set with `#` has been
 *    found in the other file under the same key and with the same size. A set is verified when it is used.
 * 2. The set of a month is a rollup, the union of the sets of its days and hours. The set of a day includes the sets of
 *    its hours, and may have further members, because a union may contain a set twice.
 */
#ifndef MILLRACE_SET_READER_H
#define MILLRACE_SET_READER_H

#include "compactor/record_filter.h"
#include "compactor/result.h"
#include "counts/count_merge.h"
#include "counts/manifest.h"
#include "sets/sets_file.h"

struct set_reader;

/* Opens the sets of shard k. *out is NULL if the shard has no sets. */
enum compact_result set_reader_open(const char *directory, const struct manifest *m, uint32_t k,
    struct set_reader **out, struct error *error);
void set_reader_close(struct set_reader **r);

/* Moves to the next set. Returns COMPACT_OK, and *is_end at the end. */
enum compact_result set_reader_next(struct set_reader *r, bool *is_end, struct error *error);
/* The current set. The key has no separator; the value is the text of the set. Valid until the next set. */
struct bytes set_reader_key(const struct set_reader *r);
const struct record_key *set_reader_parts(const struct set_reader *r); /* of the key */
struct bytes set_reader_value(const struct set_reader *r);
/* The current set. The view is valid until the next call. */
enum compact_result set_reader_view(struct set_reader *r, struct set_view *out, struct error *error);

/* Returns a source of the sets of days and hours, as chunks. Takes over the reader. */
struct count_source *set_reader_source(struct set_reader *r);
/* Adds a source for each shard of the generation in `directory` that has sets. `filter` may be NULL. */
enum compact_result set_reader_add_sources(const char *directory, const struct manifest *m,
    const struct record_filter *filter, struct count_sources *out, struct error *error);

#endif
