/* slice_watermarks: up to which time the archive alone is complete.
 *
 * Each reply of the aggregator names its open slice and the watermark of committed counts: all events before the watermark are in this
 * slice or in earlier ones, and remain there. An archive that includes the slice is therefore complete until that watermark.
 *
 * The last SLICE_WATERMARKS_MAX slices are kept. An open slice that is earlier than before belongs to other data and discards
 * them. */
#ifndef MILLRACE_SLICE_WATERMARKS_H
#define MILLRACE_SLICE_WATERMARKS_H

#include <stddef.h>
#include <stdint.h>

#define SLICE_WATERMARKS_MAX 16

struct slice_watermarks {
    size_t n;
    struct {
        uint64_t slice;
        int64_t until;              /* Unix seconds */
    } slices[SLICE_WATERMARKS_MAX]; /* ascending */
};

void slice_watermarks_note(struct slice_watermarks *w, uint64_t open_slice, int64_t until);
/* The time until which an archive with the slices up to `through` is complete; 0: not known. */
int64_t slice_watermarks_until(const struct slice_watermarks *w, uint64_t through);

#endif
