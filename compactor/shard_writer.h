/* shard_writer: writes one file of an unfinished generation.
 *
 * 1. Bytes are buffered, written and hashed in the order of the appends, and the file is not read again. Each write
 *    except the last has the size of the buffer, so that writes begin and end at page boundaries.
 * 2. shard_writer_finish syncs the file, so the caller writes the manifest afterwards.
 * 3. Records are counted by their LFs, and must be in order. The writer refuses a piece whose first line is not after
 *    the last line of the previous piece. The caller is responsible for the order inside a piece. A file of sets
 *    (MANIFEST_SETS) has any bytes, and its caller counts the records.
 */
#ifndef MILLRACE_SHARD_WRITER_H
#define MILLRACE_SHARD_WRITER_H

#include "counts/manifest.h"
#include "compactor/result.h"

#define SHARD_WRITER_BYTES ((size_t)256 << 10) /* the usual size of the buffer */

struct shard_writer;

/* The file must not exist. */
enum compact_result shard_writer_open(const char *directory, enum manifest_kind kind, uint32_t shard,
    uint32_t shards, size_t buffer_bytes, struct shard_writer **out, struct error *error);
/* Appends lines with their LFs, or a part of a line. */
enum compact_result shard_writer_append(struct shard_writer *w, struct bytes piece, struct error *error);
/* Writes the rest of the buffer, syncs the file, and sets *file to its description. */
enum compact_result shard_writer_finish(
    struct shard_writer *w, struct manifest_file *file, struct error *error);
void shard_writer_close(struct shard_writer **w);

#endif
