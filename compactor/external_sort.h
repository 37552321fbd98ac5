/* external_sort: sorts any number of records in bounded memory, and adds up records with the same key.
 *
 * Lines are added to one of two blocks. A thread sorts each full block and writes it as a run (a temporary file), while
 * lines are added to the other block. The last block stays in memory. The runs and the last block are the sources of
 * counts for the merge.
 *
 * 1. A source returns each key once. Records with the same key in one block are added up before the block is written,
 *    so repeated keys make the runs smaller than the input.
 * 2. Blocks and buffers stay within the bound. A group of records with the same key may need more memory. A line longer
 *    than a block enlarges the block.
 * 3. A run's file is unlinked at once, so a killed process leaves no files.
 * 4. A run's record count, size and checksum are verified while the run is read.
 *
 * Lines must have passed record_check. Only one thread may call these functions. A function that needs the result of
 * the internal thread joins this thread before it returns. */
#ifndef MILLRACE_EXTERNAL_SORT_H
#define MILLRACE_EXTERNAL_SORT_H

#include "compactor/result.h"
#include "counts/count_merge.h"

#define EXTERNAL_SORT_MEMORY_MIN ((size_t)1 << 20)

struct external_sort;

/* Runs are files in `directory`, which must exist. */
struct external_sort *external_sort_new(const char *directory, size_t memory);
void external_sort_free(struct external_sort **s);

/* Adds a line, given without LF. COMPACT_REFUSED: the line has 2 GiB or more. */
enum compact_result external_sort_add(struct external_sort *s, struct bytes line, struct error *error);
/* Ends the input. Call external_sort_finish once. The sort must outlive its sources, and the caller must not close
 * the sources. */
enum compact_result external_sort_finish(struct external_sort *s, struct error *error);
const struct count_sources *external_sort_sources(const struct external_sort *s);

/* The number of lookups in one block that have the same hash but different texts. *key is the key of the latest such
 * lookup, without separator. */
uint64_t external_sort_collisions(const struct external_sort *s, const char **key);

#endif
