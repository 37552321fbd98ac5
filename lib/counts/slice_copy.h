/* slice_copy: copies a slice that may be in use, and verifies a whole slice. Both functions block. */
#ifndef MILLRACE_SLICE_COPY_H
#define MILLRACE_SLICE_COPY_H

#include "counts/slice_state.h"

/* Copies the last committed state of the slice, with its counts, to the new file `to`. The aggregator may commit
 * during the copy, and seal the slice. After each 16 MiB or less, slice_copy calls
 * `meanwhile`, which may be NULL. */
enum slice_result slice_copy(
    const char *from, const char *to, void (*meanwhile)(void *arg), void *arg, struct error *error);

/* Reads and verifies every block of a slice that no other process writes to. With SLICE_OK, *state is set if `state` is
 * not NULL. `pace`, which may be NULL, is called with the number of bytes read since its last call. If `pace` returns
 * false, the rest is not read. */
enum slice_result slice_verify(const char *path, bool (*pace)(void *arg, size_t bytes), void *arg,
    struct slice_state *state, struct error *error);

#endif
