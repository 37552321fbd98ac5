/* count_run: a sorted run of counts as blocks of bytes, written to and read from any place that holds blocks.
 *
 * Blocks are numbered from 0 and hold records in order (docs/formats/slices.md). A record may continue in the next block.
 * The run's index names each block's first key, length and checksum, and ends with a checksum of its own. So the
 * index's checksum covers the whole run.
 *
 * 1. A block is verified before any of its bytes is used (XXH3, seeded with the run's number and the block's): a block
 *    from another place or another run does not fit.
 * 2. Nothing read is asserted: a block or an index that does not parse is an error that names the run and the block.
 * 3. Memory: a writer holds one block and the index; a source holds one block and the key of its record.
 */
#ifndef MILLRACE_COUNT_RUN_H
#define MILLRACE_COUNT_RUN_H

#include "counts/count_merge.h"

#define COUNT_BLOCK_BYTES 16000 /* a block is written once it is over this */

struct count_run_writer;

/* Stores a block; 0, or -1, which ends the writing. */
typedef int count_block_write(void *arg, uint32_t block, struct bytes data);

struct count_run_writer *count_run_writer_new(uint64_t run, count_block_write *write, void *arg);
void count_run_writer_free(struct count_run_writer **w);
/* Writes the merge's records until at least `max_bytes` more are stored. COUNT_END: the merge is over. COUNT_FOUND: call
 * again. COUNT_FAILED: the merge failed, or *write_failed. */
enum count_next count_run_writer_copy(
    struct count_run_writer *w, struct count_merge *m, uint64_t max_bytes, bool *write_failed);
/* Stores the last block and appends the index. 0, or -1 when storing failed. */
int count_run_writer_finish(struct count_run_writer *w, struct buf *index);
uint64_t count_run_writer_counts(const struct count_run_writer *w); /* values written */
uint64_t count_run_writer_bytes(const struct count_run_writer *w);  /* of blocks */

struct count_run_index;

/* NULL when the index is damaged. */
struct count_run_index *count_run_index_parse(uint64_t run, struct bytes data);
void count_run_index_free(struct count_run_index **i);
uint64_t count_run_index_checksum(const struct count_run_index *i);
uint32_t count_run_index_blocks(const struct count_run_index *i);

/* Fetches a block into `out`, which is empty. 0, or -1 with the reason in `error`. */
typedef int count_block_read(
    void *arg, uint64_t run, uint32_t block, struct buf *out, char error[COUNT_ERROR_TEXT]);

/* A source that begins at the first record whose key is at or after `from`. `name` is what errors call the container.
 * The index, name and arg must outlive the source. */
struct count_source *count_run_source(const struct count_run_index *index, struct bytes from,
    const char *name, count_block_read *read, void *arg);

#endif
