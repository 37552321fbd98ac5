/* journal_frame_index: remembers positions in a segment at which frames begin, so that a search need not start at the segment's
 * beginning. Owner thread only.
 *
 * Appends and readers add entries. The index covers the FRAME_INDEX_SEGMENTS_MAX most recently used segments of a set, with at
 * most FRAME_INDEX_ENTRIES_MAX entries each, so its memory is bounded. A missing entry costs time, never correctness. */
#ifndef MILLRACE_JOURNAL_FRAME_INDEX_H
#define MILLRACE_JOURNAL_FRAME_INDEX_H

#include "journal/journal_cursor.h"

#define FRAME_INDEX_SEGMENTS_MAX 256
#define FRAME_INDEX_ENTRIES_MAX 128

struct journal;
struct segment;

struct frame_index {
    struct segment *segment; /* NULL: free */
    uint64_t used;           /* by the set's index_clock */
    uint64_t spacing;        /* bytes of file between entries, at least; doubles when the entries are full */
    size_t n;
    struct index_entry at[FRAME_INDEX_ENTRIES_MAX]; /* ascending */
};
extern uint64_t journal_index_spacing; /* of a new index; replaceable for tests */

void frame_index_add(struct journal *j, struct segment *s, const struct index_entry *p);
/* The last entry at or below `offset` before which all frames are older than `time`. Without an entry, the segment's
 * beginning. */
struct index_entry frame_index_find(struct journal *j, struct segment *s, uint64_t offset, usec_t time);

#endif
