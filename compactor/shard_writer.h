/* shard_writer: writes one file of an unfinished generation.
 *
 * 1. Bytes are buffered, written and hashed in the order in which they are appended. The file is not read again.
 *    All writes but the last have the size of the buffer, so that they begin and end at pages.
 * 2. shard_writer_finish syncs the file, so write the manifest after it.
 * 3. Records are counted by their LF. Each record must be after the previous one; a piece whose first line is not after the
 *    previous piece's last line is refused. Inside a piece the caller answers for the order.
 */
#ifndef MILLRACE_SHARD_WRITER_H
#define MILLRACE_SHARD_WRITER_H

#include "counts/manifest.h"
#include "compactor/result.h"

#define SHARD_WRITER_BYTES ((size_t)256 << 10) /* the usual buffer */

struct shard_writer;

/* The file must not exist. */
enum compact_result shard_writer_open(const char *directory, enum manifest_kind kind, uint32_t shard,
    uint32_t shards, size_t buffer_bytes, struct shard_writer **out, struct error *error);
/* Appends lines with their LF, or a part of a line. */
enum compact_result shard_writer_append(struct shard_writer *w, struct bytes piece, struct error *error);
/* Writes the rest, and syncs. *file describes the file. */
enum compact_result shard_writer_finish(
    struct shard_writer *w, struct manifest_file *file, struct error *error);
void shard_writer_close(struct shard_writer **w);

#endif
