/* journal_inspect: reads a journal's directory and reports segments, frames and damage. Takes no lock and changes
 * nothing.
 *
 * 1. The inspection visits every segment, beginning with the oldest, and verifies each frame. For damage in a segment,
 *    it reports the file and the byte, and continues with the next segment.
 * 2. The inspection needs as much memory for many segments as for one segment.
 * 3. A daemon may use the journal during the inspection. Bytes that are appended and segments that are trimmed during
 *    the inspection may be reported or not, but never as damaged. */
#ifndef MILLRACE_JOURNAL_INSPECT_H
#define MILLRACE_JOURNAL_INSPECT_H

#include "journal/journal.h"
#include "journal/journal_format.h"

enum inspect_kind {
    INSPECT_HEADER,  /* a segment begins; `header` is set */
    INSPECT_FRAME,   /* frame is filled */
    INSPECT_END,     /* the segment's frames end correctly */
    INSPECT_TAIL,    /* the segment ends in a torn frame that journal_open would cut off */
    INSPECT_DAMAGE,  /* `what` describes the damage */
    INSPECT_MISSING, /* the previous segment is missing */
    INSPECT_LOST,    /* the newest segments, from `sequence` to `last`, are missing */
    INSPECT_VERSION, /* an unknown format version */
};
struct inspect_event {
    enum inspect_kind kind;
    const char *path; /* path of the segment's file */
    uint64_t sequence;
    uint64_t
        last; /* INSPECT_LOST: see above; INSPECT_DAMAGE: offset up to which the journal was synced, or 0 */
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
 * names a file that cannot be read, or says that no journal exists. Without such a message, `error` is empty. */
enum journal_result journal_inspect(
    const char *dir, inspect_fn *fn, void *arg, char *error, size_t error_size);
/* Works like journal_inspect, without the segments before number `from`. */
enum journal_result journal_inspect_from(
    const char *dir, uint64_t from, inspect_fn *fn, void *arg, char *error, size_t error_size);

/* The totals over all events of an inspection. */
struct inspect_summary {
    uint64_t segments, frames, bytes, problems;
    uint64_t first, end;                 /* lowest and highest offset in the journal */
    uint64_t whole;                      /* end of the frames before the first damage */
    uint64_t headless;                   /* number of segments whose first offset is unknown */
    uint64_t bad_sequence, bad_position; /* the first damage */
};
void inspect_summarize(struct inspect_summary *sum, const struct inspect_event *e);

#endif
