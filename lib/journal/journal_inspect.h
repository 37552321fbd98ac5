/* journal_inspect: reads a journal's directory and reports its segments, frames and damage. It takes no lock and changes nothing.
 *
 * 1. It visits every segment, oldest first, and verifies each frame. It reports damage by file and byte, and continues with the
 *    next segment.
 * 2. Memory does not grow with the number of segments.
 * 3. The journal may be in use. The report may then miss bytes appended and segments trimmed during the inspection, but it
 *    never calls them damaged. */
#ifndef MILLRACE_JOURNAL_INSPECT_H
#define MILLRACE_JOURNAL_INSPECT_H

#include "journal/journal.h"
#include "journal/journal_format.h"

enum inspect_kind {
    INSPECT_HEADER,  /* a segment begins; header is filled */
    INSPECT_FRAME,   /* frame is filled */
    INSPECT_END,     /* the segment's frames end correctly */
    INSPECT_TAIL,    /* the segment's frames end in a torn tail, which an opening would cut */
    INSPECT_DAMAGE,  /* the field `what` describes the damage */
    INSPECT_MISSING, /* the segment before this one is missing */
    INSPECT_LOST,    /* the newest segments, from this one to number `last`, are missing */
    INSPECT_NEWER,   /* a newer format version */
};
struct inspect_event {
    enum inspect_kind kind;
    const char *path; /* of the segment's file */
    uint64_t sequence;
    uint64_t last;     /* LOST: see above. DAMAGE: an offset up to which the journal was synced, or 0 */
    uint64_t position; /* in the file */
    uint64_t offset;   /* logical */
    const struct segment_header *header;
    const struct frame *frame;
    const char *what;
    bool newest; /* the last segment */
};
typedef void inspect_fn(const struct inspect_event *e, void *arg);

/* OK: no damage, nothing missing, no newer version; a torn tail is not damage. DAMAGED, NEWER: fn received the event,
 * or `error` states that a repair was interrupted. IO: `error` names the file that cannot be read, or states that there
 * is no journal. Otherwise `error` is empty. */
enum journal_result journal_inspect(
    const char *dir, inspect_fn *fn, void *arg, char *error, size_t error_size);

/* Totals over all events. */
struct inspect_summary {
    uint64_t segments, frames, bytes, problems;
    uint64_t first, end;                 /* the lowest offset, and the highest offset found anywhere */
    uint64_t whole;                      /* end of the frames before the first damage */
    uint64_t headless;                   /* segments whose first offset is unknown */
    uint64_t bad_sequence, bad_position; /* the first damage */
    bool newer;
};
void inspect_summarize(struct inspect_summary *sum, const struct inspect_event *e);

#endif
