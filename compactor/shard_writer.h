/* shard_writer: one file of a generation in the making.
 *
 * Lines are gathered in a large buffer; what leaves it is written and hashed. shard_writer_finish syncs the file, so
 * that a manifest that names it can be written after it. */
#ifndef MILLRACE_SHARD_WRITER_H
#define MILLRACE_SHARD_WRITER_H

#include "counts/manifest.h"
#include "compactor/result.h"

struct shard_writer;

/* The file must not be there. */
enum compact_result shard_writer_open(const char *directory, uint32_t shard, uint32_t shards,
    struct shard_writer **out, char error[COMPACT_ERROR_TEXT]);
/* A line is `text` and a LF; lines must come in order. */
enum compact_result shard_writer_add(
    struct shard_writer *w, struct bytes text, char error[COMPACT_ERROR_TEXT]);
/* Writes what is left and syncs. *file says what is in the file now. */
enum compact_result shard_writer_finish(
    struct shard_writer *w, struct manifest_file *file, char error[COMPACT_ERROR_TEXT]);
void shard_writer_close(struct shard_writer **w);

#endif
