/* record_source: records in order, one after another, whatever holds them: a shard of the archive, or a slice.
 *
 * A slice keeps a row a count (docs/formats/slices.md); rows in order are records in order, so a slice is read as the text
 * it would be in an archive: rows of one key become one line.
 *
 * 1. Lines come in strictly ascending order of key and separator. A source that is not in order is damaged.
 * 2. A shard that was read to its end had the records, bytes and checksum that its manifest names; else the last
 *    record_source_next says that it is damaged. So nothing may be published before every source has ended.
 * 3. A slice is opened immutable and only when it is sealed: nothing is left in its log.
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

/* path is what it is called in error texts too. */
enum compact_result record_source_open_shard(const char *path, const struct manifest_file *expected,
    struct record_source **out, char error[COMPACT_ERROR_TEXT]);

enum slice_table { SLICE_COUNTS, SLICE_LOOKUPS };
enum compact_result record_source_open_slice(
    const char *path, enum slice_table table, struct record_source **out, char error[COMPACT_ERROR_TEXT]);

void record_source_close(struct record_source **s);

/* The next record, valid until the next call or the close; text.ptr is NULL behind the last. */
enum compact_result record_source_next(
    struct record_source *s, struct record_line *out, char error[COMPACT_ERROR_TEXT]);
const char *record_source_path(const struct record_source *s);
/* How many bytes of lines it has given so far. */
uint64_t record_source_bytes(const struct record_source *s);

/* What a sealed slice says of itself. */
struct slice_facts {
    uint64_t number;
    char *counters;
    struct manifest_stream *streams; /* where it ends in each stream that was seen */
    size_t n_streams;
    struct manifest_stream *begins; /* likewise, where it begins */
    size_t n_begins;
    uint64_t bytes; /* of the file */
};
/* One that does not say that it is sealed is refused. */
enum compact_result slice_facts_read(
    const char *path, struct slice_facts *out, char error[COMPACT_ERROR_TEXT]);
void slice_facts_free(struct slice_facts *f);

/* Appends "DIRECTORY/0000000012.db". */
void slice_path(const char *directory, uint64_t number, struct buf *out);

#endif
