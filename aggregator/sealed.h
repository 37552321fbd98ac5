/* sealed: the sealed slices that are not cleared yet, oldest first.
 *
 * Invariants
 * 1. Their numbers rise by one. So every slice after n is there as long as n + 1 or an older one is.
 * 2. The log of each is folded into the file, which does not change any more: readers open it as immutable.
 * 3. Clearing unlinks the oldest first and syncs the directory: a crash leaves no gap.
 *
 * Owned by the aggregate; one thread.
 */
#ifndef MILLRACE_SEALED_H
#define MILLRACE_SEALED_H

#include "counts/slice_reader.h"

#define SEALED_MAX 1000 /* a read looks into each of them */

struct sealed_slice {
    char *path;
    struct slice_state state; /* as it was sealed */
    struct slice_reader *reader;
};
struct sealed {
    size_t n, room;
    struct sealed_slice *slices;
};

/* Adds a slice as the newest, with its reader, which it owns from here. */
void sealed_add(struct sealed *s, const char *path, struct slice_reader *reader);
/* NULL when there is no such slice (any more, or yet). */
const struct sealed_slice *sealed_find(const struct sealed *s, uint64_t number);
/* Removes those up to `through`. */
enum slice_result sealed_clear(struct sealed *s, uint64_t through, char error[SLICE_ERROR_TEXT]);
void sealed_free(struct sealed *s);

#endif
