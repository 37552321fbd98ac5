/* journal_inspect: looks at a journal's directory from outside, without opening it for writing and without changing it.
 *
 * 1. Every segment of the directory is visited, oldest first, each frame verified; what is damaged is named by file
 *    and byte, and looking goes on with the next segment.
 * 2. Memory does not grow with the journal: one segment's read buffer, one frame, the names of the files.
 *
 * The directory must not be in use: whoever calls holds its lock. */
#ifndef MILLRACE_JOURNAL_INSPECT_H
#define MILLRACE_JOURNAL_INSPECT_H

#include "journal.h"
#include "journal_format.h"

enum inspect_kind {
    INSPECT_HEADER, /* a segment begins; header is filled */
    INSPECT_FRAME,  /* frame is filled */
    INSPECT_END,    /* the segment's frames end here, as they should */
    INSPECT_TAIL, /* they end here; what follows is no frame and nothing says that it was synced: an opening cuts it */
    INSPECT_DAMAGE,  /* something is wrong here: `what` */
    INSPECT_MISSING, /* the segment before this one is not there */
    INSPECT_NEWER,   /* of a format version this program does not know */
};
struct inspect_event {
    enum inspect_kind kind;
    const char *path; /* of the segment's file */
    uint64_t sequence;
    uint64_t position; /* in the file */
    uint64_t offset;   /* logical */
    const struct segment_header *header;
    const struct frame *frame;
    const char *what;
    bool newest; /* no segment comes after this one */
};
typedef void inspect_fn(const struct inspect_event *e, void *arg);

/* JOURNAL_OK: nothing is damaged, missing or newer (a tail to cut is no damage). JOURNAL_DAMAGED, JOURNAL_NEWER; JOURNAL_IO
 * with a message in `error` when the directory or a file cannot be read, or holds no journal. */
enum journal_result journal_inspect(
    const char *dir, inspect_fn *fn, void *arg, char *error, size_t error_size);

#endif
