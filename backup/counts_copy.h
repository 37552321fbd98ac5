/* counts_copy: copies the archive's current generation, the slices after it and the rejects, while the aggregator and the
 * compactor run.
 *
 * 1. The generation is linked before the slices. A slice is deleted only after the archive includes it, so a slice that
 *    is neither in the linked generation nor linked was deleted by a later compaction: BACKUP_CHANGED.
 * 2. The newest slice is copied as of its last commit, which contains its cursors. All others are sealed and are linked.
 * 3. The rejects are linked before the newest slice is copied and copied after it, so that they contain every entry that
 *    the slice has recorded. The aggregator cuts off later entries when it opens the copy.
 */
#ifndef MILLRACE_COUNTS_COPY_H
#define MILLRACE_COUNTS_COPY_H

#include "backup/backup_result.h"
#include "counts/slice_files.h"
#include "counts/slice_state.h"

struct counts_copy {
    const char *archive, *aggregator;             /* directories; NULL: not here */
    const char *archive_stage, *aggregator_stage; /* directories that do not exist yet */
    void (*meanwhile)(void *arg);                 /* called several times a second while a slice is copied */
    void *arg;
    uint64_t generation, through; /* of the archive */
    struct slice_range slices;    /* after the archive */
    struct slice_state state;     /* of the newest slice, with its cursors */
};

/* BACKUP_CHANGED: remove the stages and call again. */
enum backup_result counts_copy(struct counts_copy *c, struct error *error);
/* Reads every count of the staged slices. */
enum backup_result counts_copy_verify(struct counts_copy *c, struct error *error);
void counts_copy_free(struct counts_copy *c);

#endif
