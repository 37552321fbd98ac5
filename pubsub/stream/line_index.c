#include "pubsub/stream/line_index.h"

#include "base/lower_bound.h"

#include <stdlib.h>

void line_index_begin(struct line_index *x, uint64_t end)
{
    *x = (struct line_index){.end = {.offset = end}, .spacing = LINE_INDEX_SPACING};
}

/* Drops every second point and keeps the first point, so that the index still covers the same range. */
static void thin(struct line_index *x)
{
    size_t kept = 0;
    for (size_t i = 0; i < x->n; i += 2)
        x->points[kept++] = x->points[i];
    x->n = kept;
    x->spacing *= 2;
}

void line_index_add(struct line_index *x, uint64_t end, uint64_t lines)
{
    if (x->n == 0 || x->end.offset - x->points[x->n - 1].offset >= x->spacing) {
        if (x->n >= LINE_INDEX_POINTS_MAX)
            thin(x);
        *ARRAY_ADD(x->points, x->n, x->cap) = x->end;
    }
    x->end.offset = end;
    x->end.lines += (int64_t)lines;
}

struct line_point line_index_at(const struct line_index *x, uint64_t offset)
{
    size_t k = LOWER_BOUND(i, 0, x->n, x->points[i].offset < offset);
    return k < x->n ? x->points[k] : x->end;
}

void line_index_prepend(struct line_index *x, const struct line_point *points, size_t n)
{
    uint64_t first = x->n ? x->points[0].offset : x->end.offset;
    while (n && points[n - 1].offset >= first)
        n--;
    if (n == 0)
        return;
    ARRAY_ROOM(x->points, x->cap, x->n + n);
    memmove(x->points + n, x->points, x->n * sizeof *x->points);
    memcpy(x->points, points, n * sizeof *points);
    x->n += n;
    while (x->n > LINE_INDEX_POINTS_MAX)
        thin(x);
}

void line_index_trim(struct line_index *x, uint64_t offset)
{
    size_t below = 0;
    while (below < x->n && x->points[below].offset < offset)
        below++;
    if (below == 0)
        return;
    x->n -= below;
    memmove(x->points, x->points + below, x->n * sizeof *x->points);
}

void line_index_free(struct line_index *x)
{
    free(x->points);
    *x = (struct line_index){0};
}
