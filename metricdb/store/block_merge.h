/* block_merge: one block from several adjacent blocks, in one pass; perhaps with wider buckets. */
#ifndef MILLRACE_METRICDB_BLOCK_MERGE_H
#define MILLRACE_METRICDB_BLOCK_MERGE_H

#include "metricdb/store/block_writer.h"

/* Writes the block of the given width and level. Memory: the index of the result, and the pieces of one
 * series. Returns the block, or NULL with the error, also if *stop becomes true. */
struct block *block_merge(const char *dir, struct block *const *inputs, size_t n, int64_t width,
    uint32_t level, const atomic_bool *stop, struct error *error);

#endif
