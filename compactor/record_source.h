/* record_source: opens the shards of an archive and the sealed slices as sources of counts (count_merge.h).
 *
 * 1. At the end of a shard the source compares the number of records, the number of bytes and the checksum with the
 *    manifest. If a value is not equal, the last next_record fails. Therefore the compactor publishes a generation only
 *    after every source has ended.
 * 2. A slice is opened as immutable, so the slice must be sealed, and SQLite's log must be empty.
 * 3. A shard's source is a record_reader. A slice's source keeps one block of each run in memory.
 */
#ifndef MILLRACE_RECORD_SOURCE_H
#define MILLRACE_RECORD_SOURCE_H

#include "compactor/record_filter.h"
#include "compactor/result.h"
#include "counts/count_merge.h"
#include "counts/manifest.h"
#include "counts/slice_reader.h"

enum compact_result record_source_open_shard(
    const char *path, const struct manifest_file *expected, struct count_source **out, struct error *error);
/* Adds the shards of the generation in `directory` to *out. `filter` may be NULL. */
enum compact_result record_source_add_shards(const char *directory, const struct manifest *m,
    const struct record_filter *filter, struct count_sources *out, struct error *error);
/* Returns a source of a shard's open file, and takes over `fd`. `name` appears in errors. `read_bytes` is the size
 * of the buffer. */
struct count_source *record_source_of_file(
    int fd, const char *name, const struct manifest_file *expected, size_t read_bytes);
/* Returns the result of a failed source or merge and copies its error. */
enum compact_result record_source_failed(const struct error *of, struct error *error);

/* COMPACT_TRY_AGAIN: a reader still needs SQLite's log. COMPACT_REFUSED: the slice is missing, not sealed, or has another
 * format. */
enum compact_result record_source_open_slice(
    const char *path, struct slice_reader **out, struct error *error);

/* The metadata of a sealed slice. */
struct slice_facts {
    uint64_t number;
    int64_t started; /* wall clock, seconds */
    int64_t quarters_since, newest_hour;
    char *counters;
    int64_t until;                   /* the slice's "complete until", as in the manifest */
    struct manifest_stream *streams; /* where the slice ends in each stream */
    size_t n_streams;
    struct manifest_stream *begins; /* where the slice begins in each stream known at its creation */
    size_t n_begins;
    uint64_t bytes; /* size of the slice's counts */
    struct value_sums sums;
};
enum compact_result slice_facts_read(const char *path, struct slice_facts *out, struct error *error);
void slice_facts_free(struct slice_facts *f);

#endif
