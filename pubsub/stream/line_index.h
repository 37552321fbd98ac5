/* line_index: the number of lines between an offset and the end of a stream, without reading them.
 *
 * The index is a list of points (offset, number of lines before it) in the order of their offsets, up to the stream's
 * end. Numbers count from the offset where the index began. cursors.h adds points below that offset, with negative
 * numbers. For an offset between two points, the caller reads from there to the next point and counts.
 *
 * At LINE_INDEX_POINTS_MAX points every second one is dropped and the spacing doubles. */
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
/* The stream has grown by `lines` lines to `end`. */
void line_index_add(struct line_index *x, uint64_t end, uint64_t lines);
/* Returns the first point at or above the offset, or the end if there is none. */
struct line_point line_index_at(const struct line_index *x, uint64_t offset);
/* Adds the points below the first one of the index. The points must be in the order of their offsets. */
void line_index_prepend(struct line_index *x, const struct line_point *points, size_t n);
/* Drops the points below the offset. */
void line_index_trim(struct line_index *x, uint64_t offset);
void line_index_free(struct line_index *x);

#endif
