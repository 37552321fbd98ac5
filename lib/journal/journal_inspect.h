/* journal_inspect: reads a journal's directory and reports its segments, frames and damage. It takes no lock and changes nothing.
 *
 * 1. It visits every segment, beginning with the oldest, and verifies each frame. For each damage it reports the file
 *    and the byte, and then continues with the next segment.
 * 2. It needs no more memory for many segments than for one.
 * 3. The journal may be in use. In this case the report may or may not include bytes that are appended and segments
 *    that are trimmed during the inspection, but it never calls them damaged. */
#ifndef MILLRACE_JOURNAL_INSPECT_H
#define MILLRACE_JOURNAL_INSPECT_H

#include "journal/journal.h"
#include "journal/journal_format.h"

enum inspect_kind {
    INSPECT_HEADER,  /* a segment begins; header is filled */
    INSPECT_FRAME,   /* frame is filled */
    INSPECT_END,     /* the segment's frames end correctly */
    INSPECT_TAIL,    /* the segment ends in a torn frame that journal_open would cut off */
    INSPECT_DAMAGE,  /* `what` describes the damage */
    INSPECT_MISSING, /* the segment before this one is missing */
    INSPECT_LOST,    /* the newest segments, from this one to number `last`, are missing */
    INSPECT_VERSION, /* an unknown format version */
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

/* OK: the journal has no damage, no missing segment and no unknown version. A torn tail does not count as damage.
 * DAMAGED or VERSION: fn got an event for each problem, or `error` says that a repair was interrupted. IO: `error`
 * names a file that cannot be read, or says that there is no journal. In all other cases `error` is empty. */
enum journal_result journal_inspect(
    const char *dir, inspect_fn *fn, void *arg, char *error, size_t error_size);
/* The same, without the segments before number `from`. */
enum journal_result journal_inspect_from(
    const char *dir, uint64_t from, inspect_fn *fn, void *arg, char *error, size_t error_size);

/* Totals over all events. */
struct inspect_summary {
    uint64_t segments, frames, bytes, problems;
    uint64_t first, end;                 /* the lowest offset, and the highest offset found anywhere */
    uint64_t whole;                      /* offset at which the frames before the first damage end */
    uint64_t headless;                   /* segments whose first offset is unknown */
    uint64_t bad_sequence, bad_position; /* the first damage */
};
void inspect_summarize(struct inspect_summary *sum, const struct inspect_event *e);

#endif
