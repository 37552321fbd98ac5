/* count_run: a sorted run of counts as blocks of bytes. Callbacks store and fetch the blocks.
 *
 * Blocks are numbered from 0 and hold records in order (docs/formats/slices.md). A record may continue in the next
 * block. The run's index holds the first key, the length and the checksum of each block. The index ends with a checksum
 * of itself.
 *
 * 1. A block is verified before any of its bytes is used. The numbers of the run and the block seed the block's
 *    checksum (XXH3). So a block that is in the wrong place or belongs to another run fails verification.
 * 2. A block or an index that does not parse causes an error that names the run and the block, never an assertion.
 * 3. A writer holds one block and the index in memory. A source holds one block and the key of the current record.
 */
#ifndef MILLRACE_COUNT_RUN_H
#define MILLRACE_COUNT_RUN_H

#include "counts/count_merge.h"

#define COUNT_BLOCK_BYTES 16000 /* a block is complete once it exceeds this size */
#define COUNT_NAME_MAX 255      /* bytes; the format stores the length of a name in one byte */

struct count_run_writer;

/* Stores a block. Returns 0. If storing failed, returns -1, which stops the writer. */
typedef int count_block_write(void *arg, uint32_t block, struct bytes data);

struct count_run_writer *count_run_writer_new(uint64_t run, count_block_write *write, void *arg);
void count_run_writer_free(struct count_run_writer **w);
/* Writes records of the merge until at least `max_bytes` are stored. Returns COUNT_END once the merge is complete, and
 * COUNT_FOUND if records remain. COUNT_FAILED with *write_failed set: a block could not be stored; otherwise the merge
 * failed. A name longer than COUNT_NAME_MAX makes the merge fail. */
enum count_next count_run_writer_copy(
    struct count_run_writer *w, struct count_merge *m, uint64_t max_bytes, bool *write_failed);
/* Stores the last block and appends the run's index. Returns 0, or -1 if storing failed. */
int count_run_writer_finish(struct count_run_writer *w, struct buf *index);
uint64_t count_run_writer_counts(const struct count_run_writer *w); /* values written */
uint64_t count_run_writer_bytes(const struct count_run_writer *w);  /* bytes stored in blocks */

struct count_run_index;

/* Returns NULL if the index is damaged. */
struct count_run_index *count_run_index_parse(uint64_t run, struct bytes data);
void count_run_index_free(struct count_run_index **i);
/* Estimates the number of counts to read for the keys from `from` to `last`. If `last` is empty, the keys have no upper
 * bound. The first and the last block need only a search, which takes as long as reading a fixed number of counts. Each
 * block between them has the average number of counts. */
size_t count_run_index_counts(const struct count_run_index *i, struct bytes from, struct bytes last);
/* Returns how many different keys begin the blocks that may hold keys from `from` to `last`. */
size_t count_run_index_records(const struct count_run_index *i, struct bytes from, struct bytes last);
uint64_t count_run_index_checksum(const struct count_run_index *i);

/* Fetches a block into the empty `out`. Returns 0, or -1 with an error. The error's code is COUNT_UNREADABLE if the
 * read failed, and COUNT_DAMAGED if the block is missing or damaged. */
typedef int count_block_read(void *arg, uint64_t run, uint32_t block, struct buf *out, struct error *error);

/* Returns a source that begins at the first record whose key is at or after `from`. Error texts show `name`, the name
 * of the run's file. The index, name and arg must outlive the source. */
struct count_source *count_run_source(const struct count_run_index *index, struct bytes from,
    const char *name, count_block_read *read, void *arg);

#endif
