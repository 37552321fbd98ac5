/* block_writer: writes a block file.
 *
 * The pieces go to NAME.tmp as they are added; the index is in memory until block_writer_finish, which also
 * syncs the file, renames it to its name and syncs the directory. A crash leaves the whole block, or a .tmp
 * that is never read. */
#ifndef MILLRACE_METRICDB_BLOCK_WRITER_H
#define MILLRACE_METRICDB_BLOCK_WRITER_H

#include "metricdb/store/block_file.h"
#include "metricdb/store/bucket_code.h"

#define BLOCK_TEMPORARY ".tmp"

struct block_writer;

/* width, level, from, to, cut_at, horizon and cursor of *info are used. Returns NULL with the error. */
struct block_writer *block_writer_new(const char *dir, const struct block_info *info, struct error *error);
/* Adds a series, in the order of the labels. The texts of the labels are borrowed until block_writer_free.
 * `series` has the times, the number of buckets and the sealed pieces. `state` is NULL if the level is above
 * 0. Errors show at the end. */
void block_writer_add(struct block_writer *w, const struct metric_label *labels, size_t n_labels,
    const struct block_series *series, const struct block_state *state);
/* Returns the block, or NULL with the error. */
struct block *block_writer_finish(struct block_writer *w, struct error *error);
/* Deletes the temporary file of an unfinished block. *w may be NULL. */
void block_writer_free(struct block_writer **w);

#endif
