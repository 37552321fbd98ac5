/* journal_inspect: looks at a journal's directory from outside, without opening it for writing and without changing it.
 *
 * 1. Every segment of the directory is visited, oldest first, each frame verified; what is damaged is named by file
 *    and byte, and looking goes on with the next segment.
 * 2. Memory does not grow with the journal: one segment's bytes, one frame, the names of the files.
 * 3. The journal may be in use. Then what is told is true of some moment between call and return: what is appended meanwhile may
 *    be missing from it, a segment that is trimmed meanwhile is passed over. Neither is taken for damage: bytes are judged that were there
 *    when a later frame said so, in a file that had its name when they had been read. */
#ifndef MILLRACE_JOURNAL_INSPECT_H
#define MILLRACE_JOURNAL_INSPECT_H

#include "journal/journal.h"
#include "journal/journal_format.h"

enum inspect_kind {
    INSPECT_HEADER, /* a segment begins; header is filled */
    INSPECT_FRAME,  /* frame is filled */
    INSPECT_END,    /* the segment's frames end here, as they should */
    INSPECT_TAIL, /* they end here; what follows is no frame and nothing says that it was synced: an opening cuts it */
    INSPECT_DAMAGE,  /* something is wrong here: `what` */
    INSPECT_MISSING, /* the segment before this one is not there */
    INSPECT_LOST,    /* the newest segments, from this one to number `last`, are not there */
    INSPECT_NEWER,   /* of a format version this program does not know */
};
struct inspect_event {
    enum inspect_kind kind;
    const char *path; /* of the segment's file */
    uint64_t sequence, last;
    uint64_t position; /* in the file */
    uint64_t offset;   /* logical */
    const struct segment_header *header;
    const struct frame *frame;
    const char *what;
    bool newest; /* no segment comes after this one */
};
typedef void inspect_fn(const struct inspect_event *e, void *arg);

/* JOURNAL_OK: nothing is damaged, missing or newer (a tail to cut is no damage). JOURNAL_DAMAGED, JOURNAL_NEWER: fn was told
 * what, or `error` says it: a repair was interrupted. JOURNAL_IO, with a message in `error`: the directory or a file cannot be read,
 * or it holds no journal. Without a message `error` is empty. */
enum journal_result journal_inspect(
    const char *dir, inspect_fn *fn, void *arg, char *error, size_t error_size);

/* All that was told, in numbers. */
struct inspect_summary {
    uint64_t segments, frames, bytes, problems;
    uint64_t first, end;                 /* offsets: the lowest, and the highest that anything names */
    uint64_t whole;                      /* where the frames before the first damage end */
    uint64_t headless;                   /* segments of which not even the first offset is known */
    uint64_t bad_sequence, bad_position; /* the first damage */
    bool newer;
};
void inspect_summarize(struct inspect_summary *sum, const struct inspect_event *e);

#endif
