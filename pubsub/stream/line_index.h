/* line_index: counts the lines between an offset and the end of a stream without reading all these lines.
 *
 * The index is a list of points in the order of their offsets, up to the end of the stream. A point consists of an
 * offset and the number of lines between the beginning of the index and the offset. The module cursors adds points
 * before the beginning, with negative numbers. If an offset is between two points, the caller must read from the
 * offset to the next point and count the lines.
 *
 * When the index has LINE_INDEX_POINTS_MAX points, it drops every second point and doubles the spacing. */
#ifndef MILLRACE_PUBSUB_LINE_INDEX_H
#define MILLRACE_PUBSUB_LINE_INDEX_H

#include "base/bytes.h"

#define LINE_INDEX_POINTS_MAX ((size_t)2048)
#define LINE_INDEX_SPACING ((uint64_t)64 * 1024) /* initial bytes between points */

struct line_point {
    uint64_t offset;
    int64_t lines;
};
struct line_index {
    struct line_point end;
    struct line_point *points; /* below `end` */
    size_t n, cap;
    uint64_t spacing;
};

void line_index_begin(struct line_index *x, uint64_t end);
/* Call line_index_add when the stream has grown by `lines` lines to the offset `end`. */
void line_index_add(struct line_index *x, uint64_t end, uint64_t lines);
/* Returns the first point whose offset is at least `offset`, or `end` if no point follows. */
struct line_point line_index_at(const struct line_index *x, uint64_t offset);
/* Adds those `points` whose offset is below the first point of the index. `points` must be in the order of their
 * offsets. */
void line_index_prepend(struct line_index *x, const struct line_point *points, size_t n);
/* Drops the points before the offset. */
void line_index_trim(struct line_index *x, uint64_t offset);
void line_index_free(struct line_index *x);

#endif
