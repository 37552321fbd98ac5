/* line_index: tells how many lines are between an offset and the end of a stream, without reading all of these lines.
 *
 * The index is a list of points in the order of their offsets, up to the end of the stream. Each point is an offset
 * and the number of lines between the beginning of the index and this offset. The module cursors adds points before
 * the beginning, with negative numbers. If an offset is between two points, the caller must read from the offset to
 * the next point and count the lines.
 *
 * When there are LINE_INDEX_POINTS_MAX points, every second point is dropped and the spacing is doubled. */
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
/* Call this when the stream has grown by `lines` lines to the offset `end`. */
void line_index_add(struct line_index *x, uint64_t end, uint64_t lines);
/* Returns the first point whose offset is at least `offset`, or the end if there is none. */
struct line_point line_index_at(const struct line_index *x, uint64_t offset);
/* Adds those of the points whose offset is below the first point of the index. The points must be in the order of
 * their offsets. */
void line_index_prepend(struct line_index *x, const struct line_point *points, size_t n);
/* Drops the points below the offset. */
void line_index_trim(struct line_index *x, uint64_t offset);
void line_index_free(struct line_index *x);

#endif
