/* sealed: the sealed slices that are not cleared yet, oldest first.
 *
 * Invariants
 * 1. Their numbers rise by one. So what is after slice n is there as long as n + 1 or an older one is.
 * 2. Each is settled: its log is folded into the file, which nobody writes any more; whoever reads it may open it
 *    immutable.
 * 3. Clearing unlinks the oldest first and syncs the directory: after a crash there is no gap.
 *
 * Owned by the aggregate; one thread.
 */
#ifndef MILLRACE_SEALED_H
#define MILLRACE_SEALED_H

#include "aggregator/slice_snapshot.h"

#define SEALED_MANY 1000 /* a read looks into each of them: more are not made */

struct sealed_slice {
    char *path;
    struct slice_state state; /* as it was sealed */
    struct slice_snapshot *snapshot;
};
struct sealed {
    size_t n, room;
    struct sealed_slice *slices;
};

/* Settles the slice and takes it in as the newest. Nobody else in the process may have it open. SLICE_FULL: it could not
 * be settled for want of room; it may be tried again. */
enum slice_result sealed_add(
    struct sealed *s, const char *path, uint64_t number, char error[SLICE_ERROR_TEXT]);
/* NULL when there is no such slice (any more, or yet). */
const struct sealed_slice *sealed_find(const struct sealed *s, uint64_t number);
/* Removes those up to `through`. */
enum slice_result sealed_clear(struct sealed *s, uint64_t through, char error[SLICE_ERROR_TEXT]);
void sealed_free(struct sealed *s);

#endif
