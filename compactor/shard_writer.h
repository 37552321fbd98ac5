/* shard_writer: writes one file of an unfinished generation.
 *
 * Lines are buffered, written and hashed. shard_writer_finish syncs the file, so write the manifest after it. */
#ifndef MILLRACE_SHARD_WRITER_H
#define MILLRACE_SHARD_WRITER_H

#include "counts/manifest.h"
#include "compactor/result.h"

struct shard_writer;

/* The file must not exist. */
enum compact_result shard_writer_open(const char *directory, uint32_t shard, uint32_t shards,
    struct shard_writer **out, char error[COMPACT_ERROR_TEXT]);
/* A line is `text` and a LF; lines must come in order. */
enum compact_result shard_writer_add(
    struct shard_writer *w, struct bytes text, char error[COMPACT_ERROR_TEXT]);
/* Writes the rest and syncs. *file describes the result. */
enum compact_result shard_writer_finish(
    struct shard_writer *w, struct manifest_file *file, char error[COMPACT_ERROR_TEXT]);
void shard_writer_close(struct shard_writer **w);

#endif
