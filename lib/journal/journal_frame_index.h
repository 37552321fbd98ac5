/* journal_frame_index: remembers where in a segment frames begin, so that a search need not start at the segment's beginning.
 * Owner thread only.
 *
 * Appends and readers add entries. The index covers the FRAME_INDEX_SEGMENTS_MAX segments of a set that were used last, with
 * FRAME_INDEX_ENTRIES_MAX entries each, so its memory is bounded. An unknown place costs time, never correctness. */
#ifndef MILLRACE_JOURNAL_FRAME_INDEX_H
#define MILLRACE_JOURNAL_FRAME_INDEX_H

#include "journal/journal_cursor.h"

#define FRAME_INDEX_SEGMENTS_MAX 256
#define FRAME_INDEX_ENTRIES_MAX 128

struct journal;
struct segment;

/* Bytes of file between entries, at least; doubled in a segment whose entries are full. Replaceable for tests. */
extern uint64_t journal_index_spacing;

void frame_index_add(struct journal *j, struct segment *s, const struct index_entry *p);
/* The last entry at or below `offset`, or the last before which all frames are older than `time`. Without one, the segment's
 * beginning. */
struct index_entry frame_index_find_offset(struct journal *j, struct segment *s, uint64_t offset);
struct index_entry frame_index_find_time(struct journal *j, struct segment *s, usec_t time);
void frame_index_drop(struct segment *s); /* before the segment is freed */
size_t frame_index_count(const struct segment *s);

#endif
