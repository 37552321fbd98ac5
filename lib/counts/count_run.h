/* count_run: a sorted run of counts as blocks of bytes. Callbacks store and fetch the blocks.
 *
 * Blocks are numbered from 0 and hold records in order (docs/formats/slices.md). A record may continue in the next block.
 * The run's index holds each block's first key, length and checksum, and ends with a checksum of the index itself.
 *
 * 1. A block is verified before any of its bytes is used. Its checksum (XXH3) is seeded with the run's and the block's
 *    number, so a block in the wrong place or of another run fails.
 * 2. A block or an index that does not parse causes an error that names the run and the block, never an assertion.
 * 3. A writer holds one block and the index in memory; a source holds one block and the key of its record.
 */
#ifndef MILLRACE_COUNT_RUN_H
#define MILLRACE_COUNT_RUN_H

#include "counts/count_merge.h"

#define COUNT_BLOCK_BYTES 16000 /* a block that exceeds this size is written */
#define COUNT_NAME_MAX 255      /* bytes; the format stores the length in one byte */

struct count_run_writer;

/* Stores a block. Returns 0, or -1 to stop the writer. */
typedef int count_block_write(void *arg, uint32_t block, struct bytes data);

struct count_run_writer *count_run_writer_new(uint64_t run, count_block_write *write, void *arg);
void count_run_writer_free(struct count_run_writer **w);
/* Writes records of the merge until at least `max_bytes` are stored. COUNT_END: the merge is complete. COUNT_FOUND:
 * call again. COUNT_FAILED: if *write_failed is set, a block could not be stored; otherwise the merge failed. A name
 * longer than COUNT_NAME_MAX makes the merge fail. */
enum count_next count_run_writer_copy(
    struct count_run_writer *w, struct count_merge *m, uint64_t max_bytes, bool *write_failed);
/* Stores the last block and appends the index. Returns 0, or -1 if storing failed. */
int count_run_writer_finish(struct count_run_writer *w, struct buf *index);
uint64_t count_run_writer_counts(const struct count_run_writer *w); /* values written */
uint64_t count_run_writer_bytes(const struct count_run_writer *w);  /* stored in blocks */

struct count_run_index;

/* Returns NULL if the index is damaged. */
struct count_run_index *count_run_index_parse(uint64_t run, struct bytes data);
void count_run_index_free(struct count_run_index **i);
/* An estimate of the counts of the keys from `from` to `last` (empty: no upper bound): those of average blocks between the first and
 * the last, and in these two as many as can be read in the time of a search in a block. */
size_t count_run_index_counts(const struct count_run_index *i, struct bytes from, struct bytes last);
/* The number of blocks that may hold these keys, and that begin with another key than the block before. */
size_t count_run_index_records(const struct count_run_index *i, struct bytes from, struct bytes last);
uint64_t count_run_index_checksum(const struct count_run_index *i);

/* Fetches a block into the empty `out`. Returns 0, or -1 with an error of code COUNT_UNREADABLE if the read failed,
 * COUNT_DAMAGED if the block is missing or damaged. */
typedef int count_block_read(void *arg, uint64_t run, uint32_t block, struct buf *out, struct error *error);

/* Returns a source that begins at the first record whose key is at or after `from`. `name` names the run's file in
 * error texts. The index, name and arg must outlive the source. */
struct count_source *count_run_source(const struct count_run_index *index, struct bytes from,
    const char *name, count_block_read *read, void *arg);

#endif
