/* record_source: reads records in order, one by one, from a shard of the archive or from a slice.
 *
 * A slice has one row a count (docs/formats/slices.md), in the order of records; rows of one key become one line.
 *
 * 1. Lines come in strictly ascending order of key plus separator; a source out of order is damaged.
 * 2. At its end a shard's records, bytes and checksum must match the manifest, else the last record_source_next returns
 *    COMPACT_DAMAGED. So publish nothing before every source has ended.
 * 3. A slice is opened immutable, and only if it is sealed: its log is empty.
 * 4. Memory: a buffer, or the longest record if that is longer.
 */
#ifndef MILLRACE_RECORD_SOURCE_H
#define MILLRACE_RECORD_SOURCE_H

#include "counts/manifest.h"
#include "compactor/result.h"

struct record_line {
    struct bytes text; /* the line without its LF */
    size_t key_len;    /* of its key with the separator */
};

struct record_source;

enum compact_result record_source_open_shard(const char *path, const struct manifest_file *expected,
    struct record_source **out, char error[COMPACT_ERROR_TEXT]);

enum slice_table { SLICE_COUNTS, SLICE_LOOKUPS };
enum compact_result record_source_open_slice(
    const char *path, enum slice_table table, struct record_source **out, char error[COMPACT_ERROR_TEXT]);

void record_source_close(struct record_source **s);

/* The next record, valid until the next call or the close; text.ptr is NULL after the last. */
enum compact_result record_source_next(
    struct record_source *s, struct record_line *out, char error[COMPACT_ERROR_TEXT]);
const char *record_source_path(const struct record_source *s);
/* Bytes of the lines returned so far. */
uint64_t record_source_bytes(const struct record_source *s);

/* The metadata of a sealed slice. */
struct slice_facts {
    uint64_t number;
    char *counters;
    struct manifest_stream *streams; /* its end in each stream */
    size_t n_streams;
    struct manifest_stream *begins; /* its start in each stream */
    size_t n_begins;
    uint64_t bytes; /* of the file */
};
/* Refuses a slice that is not sealed. */
enum compact_result slice_facts_read(
    const char *path, struct slice_facts *out, char error[COMPACT_ERROR_TEXT]);
void slice_facts_free(struct slice_facts *f);

/* Appends "DIRECTORY/0000000012.db". */
void slice_path(const char *directory, uint64_t number, struct buf *out);

#endif
