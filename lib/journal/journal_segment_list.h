/* journal_segment_list: a journal's segments, by sequence. Owner thread only.
 *
 * The first n_trimmed of them are trimmed and only wait for readers to leave. They are removed in order, each removal made
 * durable before the next: what is on disk is always an unbroken run. */
#ifndef MILLRACE_JOURNAL_SEGMENT_LIST_H
#define MILLRACE_JOURNAL_SEGMENT_LIST_H

#include "journal/journal_internal.h"

void segment_list_push(struct journal *j, struct segment *s);
struct segment *segment_list_last(const struct journal *j);
struct segment *segment_list_after(
    const struct journal *j, const struct segment *s); /* NULL: s is the last */
/* The segment that serves `offset`. OK, GONE (edges filled), BEYOND. */
enum journal_result segment_list_find(
    const struct journal *j, uint64_t offset, struct segment **out, struct journal_edges *edges);
/* Gives a reference back. */
void segment_list_leave(struct journal *j, struct segment *s);

#endif
