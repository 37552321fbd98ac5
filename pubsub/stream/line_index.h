/* line_index: how many lines lie between an offset and a stream's end, without reading them.
 *
 * A list of points (offset, number of lines before it) in the order of their offsets; the stream's end is always one. Numbers
 * count from where the index began, so points before that, which lag.h adds, have negative ones.
 *
 * At most LINE_INDEX_POINTS_MAX points are kept; beyond that every second one goes, and the spacing doubles. For an offset
 * between two points, read from there to the next one and count.
 */
#ifndef MILLRACE_PUBSUB_LINE_INDEX_H
#define MILLRACE_PUBSUB_LINE_INDEX_H

#include "base/bytes.h"

#define LINE_INDEX_POINTS_MAX ((size_t)2048)
#define LINE_INDEX_SPACING ((uint64_t)64 * 1024) /* bytes between points, at first */

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
/* The first point at or above the offset; the end when there is none. */
struct line_point line_index_at(const struct line_index *x, uint64_t offset);
/* Adds the points below the first one, in the order of their offsets. */
void line_index_prepend(struct line_index *x, const struct line_point *points, size_t n);
/* Drops the points below the offset. */
void line_index_trim(struct line_index *x, uint64_t offset);
void line_index_free(struct line_index *x);

#endif
