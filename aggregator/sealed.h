/* sealed: the list of sealed slices that are not cleared yet, oldest first.
 *
 * Invariants
 * 1. Numbers are consecutive.
 * 2. The counts of a sealed slice never change. If another process read the slice during its seal, the slice keeps its
 *    log until the clear or the next start.
 * 3. A clear unlinks the oldest slice first and syncs the directory, so a crash leaves no gap between slices.
 *
 * The aggregate owns the list and uses it from one thread.
 */
#ifndef MILLRACE_SEALED_H
#define MILLRACE_SEALED_H

#include "counts/slice_reader.h"

#define SEALED_MAX 1000 /* limit of sealed slices, because every read reads all of them */

struct sealed_slice {
    char *path;
    struct slice_state state; /* state of the slice at its seal */
    struct slice_reader *reader;
};
struct sealed {
    size_t n, room;
    struct sealed_slice *slices;
};

/* Adds the newest slice and takes ownership of its reader. */
void sealed_add(struct sealed *s, const char *path, struct slice_reader *reader);
/* Finds a sealed slice. Returns NULL if the slice was cleared or is not sealed yet. */
const struct sealed_slice *sealed_find(const struct sealed *s, uint64_t number);
/* Deletes the files of the slices up to `through`, inclusive, and sets *removed to their number. Blocks. Does not
 * change the list, so that another thread may read the list at the same time. */
enum slice_result sealed_unlink(
    const struct sealed *s, uint64_t through, size_t *removed, struct error *error);
/* Removes the oldest `n` slices from the list. Returns an array of their readers. The last close of a deleted file
 * blocks because it frees the file's space. Therefore the caller passes the array to a thread that may block. */
struct slice_reader **sealed_forget(struct sealed *s, size_t n);
/* Closes the readers and frees the array. */
void sealed_close_readers(struct slice_reader **readers, size_t n);
void sealed_free(struct sealed *s);

#endif
