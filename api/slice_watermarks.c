#include "api/slice_watermarks.h"

#include <string.h>

void slice_watermarks_note(struct slice_watermarks *w, uint64_t open_slice, int64_t until)
{
    if (w->n > 0 && open_slice < w->slices[w->n - 1].slice)
        w->n = 0;
    if (w->n == 0 || open_slice > w->slices[w->n - 1].slice) {
        if (w->n == SLICE_WATERMARKS_MAX)
            memmove(w->slices, w->slices + 1, --w->n * sizeof *w->slices);
        w->slices[w->n++].slice = open_slice;
    }
    w->slices[w->n - 1].until = until;
}

int64_t slice_watermarks_until(const struct slice_watermarks *w, uint64_t through)
{
    int64_t until = 0;
    for (size_t i = 0; i < w->n && w->slices[i].slice <= through; i++)
        until = w->slices[i].until;
    return until;
}
