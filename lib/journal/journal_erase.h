/* journal_erase: replaces payload bytes of an open journal, so that no file of the journal has the old bytes.
 *
 * Each segment with such bytes is copied, and the copy with the replaced bytes takes the segment's name. Offsets,
 * frames, times and marks do not change.
 *
 * 1. A crash leaves each segment either as it was or with all of its ranges replaced. A repeated erasure is harmless.
 * 2. Appends and reads continue. A read that is under way when a segment is replaced may return the old bytes; a read
 *    that begins after `done` has got JOURNAL_OK does not. Windows and files that callers hold keep the old bytes.
 * 3. The erasure first ends the newest segment. It also removes what recycled files have left: the bytes after the
 *    frames of recycled segments are not copied, and the files of all segments of before are deleted once trimmed.
 * 4. No byte is overwritten in place: a hard link of a backup keeps the old bytes.
 * 5. One segment at a time needs space on the disk for its copy. After any result but OK, the segments before may be
 *    replaced.
 *
 * Calls and threads as in journal.h. */
#ifndef MILLRACE_JOURNAL_ERASE_H
#define MILLRACE_JOURNAL_ERASE_H

#include "journal/journal.h"

struct journal_range {
    uint64_t offset, end; /* the bytes from offset to end - 1 */
};

struct journal_erasure {
    const struct journal_range *ranges; /* ascending, not empty, not overlapping; borrowed until `done` */
    size_t n;                           /* 0: only removes what recycled files have left */
    /* Replaces the bytes from..to-1 of a frame's payload, on the reader thread. is_part: the range has bytes of other
     * frames too. Returns false if these bytes must not be replaced: the erasure then ends with JOURNAL_CONFLICT. Not
     * called for ranges of bytes that were trimmed. */
    bool (*replace)(char *payload, size_t len, size_t from, size_t to, bool is_part);
};

/* OK; CONFLICT: see `replace`; NO_SPACE; LATCHED; DAMAGED or IO: `error` names the file; CLOSED: the journal is being
 * closed. */
typedef void journal_erased_fn(enum journal_result r, const char *error, void *arg);

/* OK: `done` will be called once. BUSY: another erasure is under way. LATCHED or CLOSED. */
enum journal_result journal_erase(
    struct journal *j, const struct journal_erasure *what, journal_erased_fn *done, void *arg);

/* Payload bytes of the segments that the erasure under way has examined, and of all that it examines; 0 and 0 without
 * one. */
void journal_erase_progress(const struct journal *j, uint64_t *examined, uint64_t *total);

/* Calls `done` once the files of all segments that are trimmed now are removed and no reader uses them: OK, IO with the
 * error, or CLOSED. */
void journal_await_removal(struct journal *j, journal_erased_fn *done, void *arg);

#endif
