/* external_sort: sorts records of any number within a bound of memory, and adds up the records of one key.
 *
 * Lines fill one of two blocks. A full block is sorted and written as a run (a temporary file) by a thread, while the
 * other block fills. The last block stays in memory. Runs and last block are then sources of counts for the merge.
 *
 * 1. A source yields each key once. Records of one key in one block are added up before they are written, so the runs
 *    of repeated keys are smaller than the input.
 * 2. Blocks and buffers stay within the bound. A group of records with one key, and a line longer than a block, need memory
 *    besides: such a line makes a block larger.
 * 3. A run has no name: its file is unlinked at once, so a killed process leaves nothing behind.
 * 4. A run's records, bytes and checksum are verified as it is read.
 *
 * Lines must have passed record_check. One thread calls; the thread inside is joined before each return that needs its result. */
#ifndef MILLRACE_EXTERNAL_SORT_H
#define MILLRACE_EXTERNAL_SORT_H

#include "compactor/result.h"
#include "counts/count_merge.h"

#define EXTERNAL_SORT_MEMORY_MIN ((size_t)1 << 20)

struct external_sort;

/* Runs are files in `directory`, which must exist. */
struct external_sort *external_sort_new(const char *directory, size_t memory);
void external_sort_free(struct external_sort **s);

/* Adds a line, given without LF. COMPACT_REFUSED: it has 2 GiB or more. */
enum compact_result external_sort_add(struct external_sort *s, struct bytes line, struct error *error);
/* Ends the input. The sort must outlive its sources, which the caller does not close. Call once. */
enum compact_result external_sort_finish(struct external_sort *s, struct error *error);
const struct count_sources *external_sort_sources(const struct external_sort *s);

/* Lookups of one hash with different texts inside one block. *key is the key of the latest, without separator. */
uint64_t external_sort_collisions(const struct external_sort *s, const char **key);

#endif
