/* record_source: what a run of the compactor merges: shards of an archive and sealed slices, as sources of counts
 * (count_merge.h).
 *
 * 1. A shard that was read to its end had the records, bytes and checksum that its manifest names; else the last
 *    next_record fails. So nothing may be published before every source has ended.
 * 2. A slice is opened as immutable, and only if it is sealed and nothing is left in its log.
 * 3. Memory: a buffer a shard, or its longest record if that is longer; a block a run of a slice.
 */
#ifndef MILLRACE_RECORD_SOURCE_H
#define MILLRACE_RECORD_SOURCE_H

#include "compactor/result.h"
#include "counts/count_merge.h"
#include "counts/manifest.h"
#include "counts/slice_reader.h"

enum compact_result record_source_open_shard(const char *path, const struct manifest_file *expected,
    struct count_source **out, char error[COMPACT_ERROR_TEXT]);
/* The result of a merge that failed, with its error. */
enum compact_result record_source_failed(const struct count_merge *m, char error[COMPACT_ERROR_TEXT]);

/* COMPACT_TRY_AGAIN: its log is not empty. COMPACT_REFUSED: it is missing, not sealed, or of another format. */
enum compact_result record_source_open_slice(
    const char *path, struct slice_reader **out, char error[COMPACT_ERROR_TEXT]);

/* What a sealed slice says of itself. */
struct slice_facts {
    uint64_t number;
    char *counters;
    struct manifest_stream *streams; /* where it ends in each stream that was seen */
    size_t n_streams;
    struct manifest_stream *begins; /* likewise, where it begins */
    size_t n_begins;
    uint64_t bytes; /* of its counts */
};
enum compact_result slice_facts_read(
    const char *path, struct slice_facts *out, char error[COMPACT_ERROR_TEXT]);
void slice_facts_free(struct slice_facts *f);

/* Appends "DIRECTORY/0000000012.db". */
void slice_path(const char *directory, uint64_t number, struct buf *out);

#endif
