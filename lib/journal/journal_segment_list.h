/* journal_segment_list: a journal's segments in order of their sequence numbers. Owner thread only, except segment_new.
 *
 * The first n_trimmed segments are trimmed and wait for their readers to leave. They are removed in order, and each removal is
 * durable before the next, so the segments on disk never have a gap. */
#ifndef MILLRACE_JOURNAL_SEGMENT_LIST_H
#define MILLRACE_JOURNAL_SEGMENT_LIST_H

#include "journal/journal_internal.h"

struct segment *segment_new(const char *dir, const struct segment_header *h);
void segment_free(struct segment *s);

void segment_list_push(struct journal *j, struct segment *s);
struct segment *segment_list_last(const struct journal *j);
/* The segment after s; NULL after the last. */
struct segment *segment_list_after(const struct journal *j, const struct segment *s);
/* The segment that serves `offset`. OK, GONE (edges filled), BEYOND. */
enum journal_result segment_list_find(
    const struct journal *j, uint64_t offset, struct segment **out, struct journal_edges *edges);
/* Drops a reader's reference. */
void segment_list_leave(struct journal *j, struct segment *s);

#endif
