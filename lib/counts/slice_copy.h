/* slice_copy: copies a slice that may be in use, and verifies a slice from beginning to end. Both block. */
#ifndef MILLRACE_SLICE_COPY_H
#define MILLRACE_SLICE_COPY_H

#include "counts/slice_state.h"

/* Copies the last committed state, with its counts, to the new file `to`. The aggregator may commit meanwhile. A seal of
 * the slice waits until the copy is complete. `meanwhile` is called after each 16 MiB or less; it may be NULL. */
enum slice_result slice_copy(
    const char *from, const char *to, void (*meanwhile)(void *arg), void *arg, struct error *error);

/* Reads every block of a slice that no other process writes to. With SLICE_OK, *state is set if it is not NULL. `pace` is
 * called with the bytes read since its last call; if it returns false, the rest is not read. It may be NULL. */
enum slice_result slice_verify(const char *path, bool (*pace)(void *arg, size_t bytes), void *arg,
    struct slice_state *state, struct error *error);

#endif
