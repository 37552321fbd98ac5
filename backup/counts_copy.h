/* counts_copy: copies the archive's current generation, the later slices and the rejects, while the aggregator and the
 * compactor run.
 *
 * 1. The generation is linked before the slices. The aggregator deletes a slice only after the archive includes the
 *    slice. If a slice is missing and is not in the linked generation, a later compaction has included the slice, and
 *    the result is BACKUP_CHANGED.
 * 2. The copy of the newest slice contains the slice's last commit, including the cursors. All older slices are sealed
 *    and are linked.
 * 3. The files of rejects are linked before the newest slice is copied, and copied after the slice. Therefore they
 *    contain every entry that the slice has recorded. The aggregator cuts off later entries when it opens the copy. */
#ifndef MILLRACE_COUNTS_COPY_H
#define MILLRACE_COUNTS_COPY_H

#include "backup/file_tree.h"
#include "counts/manifest.h"
#include "counts/slice_files.h"
#include "counts/slice_state.h"

struct counts_copy {
    const char *archive, *aggregator; /* data directories; NULL: the daemon runs on another host */
    const char *archive_stage, *aggregator_stage; /* directories to create for the copies */
    void (*meanwhile)(void *arg); /* called several times per second while a slice is being copied */
    void *arg;
    struct manifest archived;  /* of the archive's generation; its numbers are 0 without an archive */
    struct slice_range slices; /* the slices after the archive */
    struct slice_state state;  /* cursors and other data of the newest slice */
};

/* Makes the copies. After BACKUP_CHANGED, the caller may remove the stages and call counts_copy again. */
enum backup_result counts_copy(struct counts_copy *c, struct error *error);
/* Verifies the staged slices by reading every count, and sets c->state. */
enum backup_result counts_copy_verify(struct counts_copy *c, struct error *error);
/* Compares the checksums of the files of the archive's stage with the manifest of the generation. `files` has each file
 * of the stage, with its checksum. */
enum backup_result counts_copy_verify_archive(
    const struct counts_copy *c, const struct tree_list *files, struct error *error);
void counts_copy_free(struct counts_copy *c);

#endif
