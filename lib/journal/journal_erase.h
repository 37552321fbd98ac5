/* journal_erase: replaces payload bytes of an open journal, so that no file of the journal has the old bytes.
 *
 * Each segment with bytes to replace is copied, and the copy with the replaced bytes takes the segment's name. Offsets,
 * frames, times and marks do not change.
 *
 * 1. After a crash, each segment is either unchanged or has all of its ranges replaced. A repeated erasure is harmless.
 * 2. Appends and reads continue. A read that is in progress when a segment is replaced may return the old bytes. A read
 *    that begins after `done` got JOURNAL_OK returns the new bytes. Windows and files of callers keep the old bytes.
 * 3. The erasure first ends the newest segment. The erasure also removes old bytes in recycled files, because it does
 *    not copy the bytes after the frames of a recycled segment. The files of all segments before the new segment are
 *    deleted when trimmed, not recycled.
 * 4. No byte is overwritten in place, so a hard link of a backup keeps the old bytes.
 * 5. The erasure needs disk space for the copy of one segment. If the erasure fails at a segment, earlier segments may
 *    already be replaced.
 *
 * The rules of journal.h about calls and threads apply. */
#ifndef MILLRACE_JOURNAL_ERASE_H
#define MILLRACE_JOURNAL_ERASE_H

#include "journal/journal.h"

struct journal_range {
    uint64_t offset, end; /* the bytes from offset to end - 1 */
};

struct journal_erasure {
    const struct journal_range *ranges; /* ascending, not empty, not overlapping; valid until `done` */
    size_t n;                           /* 0: the erasure only removes old bytes in recycled files */
    /* Replaces the bytes from `from` to `to` - 1 of a frame's payload, in the reader thread. is_part is true if the
     * range also has bytes of other frames. If the result is false, these bytes must not be replaced, and the erasure
     * ends with JOURNAL_CONFLICT. The erasure does not call `replace` for trimmed bytes. */
    bool (*replace)(char *payload, size_t len, size_t from, size_t to, bool is_part);
};

/* Gets JOURNAL_OK, JOURNAL_CONFLICT (see `replace`), JOURNAL_NO_SPACE, JOURNAL_LATCHED, or JOURNAL_CLOSED if the
 * journal is being closed. For JOURNAL_DAMAGED and JOURNAL_IO, `error` names the file. */
typedef void journal_erased_fn(enum journal_result r, const char *error, void *arg);

/* Starts an erasure. JOURNAL_OK: `done` will be called once. Errors: JOURNAL_BUSY (an erasure runs), _LATCHED,
 * _CLOSED. */
enum journal_result journal_erase(
    struct journal *j, const struct journal_erasure *what, journal_erased_fn *done, void *arg);

/* Payload bytes of the segments that the erasure has examined, and of all segments to examine; 0: no erasure. */
void journal_erase_progress(const struct journal *j, uint64_t *examined, uint64_t *total);

/* Calls `done` once no reader uses the segments that are trimmed now and their files are removed. `done` gets
 * JOURNAL_OK, JOURNAL_IO with the error, or JOURNAL_CLOSED. */
void journal_await_removal(struct journal *j, journal_erased_fn *done, void *arg);

#endif
