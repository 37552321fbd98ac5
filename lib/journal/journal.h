/* journal: the one way bytes become durable. An append-only sequence of payload bytes, kept in a directory
 * of segment files, each a run of checksummed frames. docs/formats/journal.md has the layout.
 *
 * Words: the *offset* of a byte counts payload bytes since the journal's beginning; it never repeats and
 * never changes. A *frame* is what one append made. *Committed* means as safe as the policy in force promises
 * (JOURNAL_SYNC_NEVER: written, survives kill -9; else: synced, survives a power cut). A *producer* is a name
 * whose *mark* moves with its appends, so that a retry is recognised.
 *
 * Invariants
 * 1. An append's done callback says JOURNAL_OK only when its frame is committed; frames are committed in the
 *    order of the appends, each wholly or not at all.
 * 2. Only committed bytes are ever read, seen by journal_committed_end, or counted in a mark told to anyone.
 * 3. A frame carries its producer's new mark. After any crash, marks are exactly those of the frames kept.
 * 4. For an append with producer P, mark A, next B (A < B, asserted) and P's mark M (0 if never seen):
 *    M == A: stored, M becomes B.  M >= B: a duplicate, nothing is stored, done is called with
 *    duplicate = true when what moved the mark there is committed.  Else JOURNAL_CONFLICT, with M.
 *    M counts appends accepted but not committed; when one of those is refused, so are all behind it that
 *    relied on it.
 * 5. Opening cuts the tail back to the last valid frame and reports what it cut; damage below the durable
 *    offset that an intact frame names is JOURNAL_DAMAGED, by file and offset, never skipped. So are newest segments
 *    whose files were deleted.
 * 6. After an unclean end under JOURNAL_SYNC_NEVER, offsets go on at the next multiple of JOURNAL_HOLE: bytes
 *    that someone was shown and a power cut took are never replaced by others under the same offset.
 * 7. ENOSPC and EDQUOT refuse the appends concerned (JOURNAL_NO_SPACE), are undone in the file and in the
 *    marks, and the next append tries again. Any other failed write and any failed sync latches: every
 *    later append gets JOURNAL_LATCHED; reads go on.
 * 8. A segment is unlinked, or its file used again, only when no reader is inside it; never truncated or
 *    punched. A file that was given out (journal_file) is not used again.
 * 9. A directory written by a newer format version is JOURNAL_NEWER and left untouched.
 * 10. A directory has one opener at a time, in whatever process: it is locked, and the kernel gives the lock back however its
 *    holder ends. Anyone else gets JOURNAL_IN_USE, after a second in which one that was killed would have let go.
 *    Who only looks (journal_inspect) needs no lock.
 * 11. A lack of descriptors or memory says nothing of the storage. A read or a seek that meets one waits and is tried again,
 *    while others go on; nothing is called damaged, nothing latches. Without a descriptor for the next segment the
 *    newest grows. Reads of a set share eight descriptors, however many its readers are, and segments' files are given out
 *    32 at a time: what would be one more is copied.
 * 12. What a repair left half done is JOURNAL_DAMAGED until another has finished it (journal_repair).
 *
 * Threads: one owner thread (the daemon's loop) makes every call here and gets every callback, from inside
 * journal_set_poll. A set has four threads of its own: two committers, a reader, and a filler that prepares files. They
 * call only `notify`, which must arrange that the owner calls journal_set_poll soon (an eventfd).
 *
 * Appends of one turn of the loop are one commit: journal_append calls `notify`, and the next journal_set_poll starts the
 * commit. Appends made inside a callback are committed when that poll ends. Under JOURNAL_SYNC_NEVER the poll makes the
 * commit itself, if it is a copy into the page cache and no more. docs/internals/journal.md has the details.
 */
#ifndef MILLRACE_JOURNAL_H
#define MILLRACE_JOURNAL_H

#include "base/bytes.h"
#include "base/clock.h"

#define JOURNAL_SYNC_NEVER (-1)
#define JOURNAL_HOLE (UINT64_C(1) << 40)
#define JOURNAL_FRAME_MAX (64u << 20) /* payload bytes of one append */
#define JOURNAL_ID_TEXT 33            /* 32 hex digits and NUL */

struct journal_set;
struct journal;
struct journal_reader;

enum journal_result {
    JOURNAL_OK,
    JOURNAL_CONFLICT, /* the producer's mark is another */
    JOURNAL_TOO_MANY_PRODUCERS,
    JOURNAL_TOO_LARGE, /* over JOURNAL_FRAME_MAX */
    JOURNAL_BUSY,      /* over max_pending: try again later */
    JOURNAL_NO_SPACE,  /* refused and undone; heals by itself */
    JOURNAL_LATCHED,   /* storage failed; see journal_failure */
    JOURNAL_GONE,      /* the offset lies in a hole or before the earliest: see struct journal_edges */
    JOURNAL_BEYOND,    /* the offset is past the committed end */
    JOURNAL_END,       /* reading: at the committed end, nothing there yet */
    JOURNAL_DAMAGED,   /* see journal_failure: names file and position */
    JOURNAL_NEWER,
    JOURNAL_IN_USE,         /* another opener has the directory */
    JOURNAL_IO,             /* the system refused: see the error text */
    JOURNAL_NO_DESCRIPTORS, /* opening: out of descriptors at present; it can be tried again */
    JOURNAL_CLOSED,         /* the set is being freed */
};
const char *journal_strerror(enum journal_result r);

struct journal_set_config {
    int64_t sync_ms;    /* JOURNAL_SYNC_NEVER, 0: each commit, else at most one sync every so many ms */
    size_t max_pending; /* bytes of appends not yet committed; 0: 64 MiB */
    void (*notify)(void *arg); /* from the threads, and from the owner's calls; see above */
    void *notify_arg;
};

struct journal_set *journal_set_new(const struct journal_set_config *config);
/* Commits what is pending, stops the threads, runs what callbacks are left, closes the journals. A journal
 * closed so is clean: its next opening makes no hole. */
void journal_set_free(struct journal_set **set);
/* Runs the callbacks of what was committed and read since, and under JOURNAL_SYNC_NEVER of what it commits now. Has what was
 * appended committed. */
void journal_set_poll(struct journal_set *set);
/* Waits until everything appended so far is committed (or refused), polling meanwhile. For stopping and tests. */
void journal_set_flush(struct journal_set *set);
/* Bytes appended and not yet committed. */
size_t journal_set_pending(const struct journal_set *set);
/* Commits that were synced so far, of all its journals. */
uint64_t journal_set_syncs(struct journal_set *set);
/* When a read last had to wait for what the system lacks (monotonic); 0: never. While one waits it is of just now. */
usec_t journal_set_last_shortage(struct journal_set *set);

struct journal_config {
    const char *dir;        /* made if missing (its parent must be there) */
    uint64_t segment_bytes; /* 0: 64 MiB; a new segment begins once the current one is over this */
    size_t max_producers;   /* 0: 4096 */
    uint64_t
        lost_below; /* offsets below may have been given out and lost: go on above, after a hole; 0: none */
    bool
        shares_files; /* sessions before may have given out files (journal_file): theirs are not used again */
};

/* Opens or makes a journal. Blocking (verifies the newest segment and every segment's header; syncs what was
 * not known to be synced). `error` gets the message for anything but JOURNAL_OK. */
enum journal_result journal_open(struct journal_set *set, const struct journal_config *config,
    struct journal **out, char *error, size_t error_size);
/* What is pending is committed first. Readers and seeks of it must be closed. Not from a callback of the same set:
 * it polls. */
void journal_close(struct journal **j);

const char *journal_id(const struct journal *j); /* 32 hex digits; random, made with the journal */
uint64_t journal_earliest(const struct journal *j);
/* Where the earliest segment ends so far: trimmed from there on, it goes, unless it is the newest. */
uint64_t journal_earliest_end(const struct journal *j);
uint64_t journal_committed_end(const struct journal *j);
/* Bytes on disk, of all segments and of the file kept ready for the next. */
uint64_t journal_disk_bytes(const struct journal *j);
/* Of those, what was trimmed and goes as soon as the reads that are under way in it are done. */
uint64_t journal_trimmed_bytes(const struct journal *j);
/* Whether the files of all that was trimmed are removed. */
bool journal_trim_is_done(const struct journal *j);
/* Bytes of payload that are there from `from` to below `to`: what is in holes and what was trimmed does not count. */
uint64_t journal_bytes_between(const struct journal *j, uint64_t from, uint64_t to);
/* Time of the last committed frame, wall clock; 0 when empty. */
usec_t journal_last_time(const struct journal *j);
/* Bytes of the last file, frames and their headers, that opening cut off the tail: a torn or refused write. */
uint64_t journal_cut_bytes(const struct journal *j);
/* NULL, or why writes are latched or reads stop: lives as long as the journal. */
const char *journal_failure(const struct journal *j);

struct journal_append {
    struct bytes producer; /* a name; empty: none, and mark and next are ignored */
    uint64_t mark, next;
    const struct bytes *pieces; /* the payload, in pieces; copied before journal_append returns */
    size_t n_pieces;            /* 0 with a producer: only the mark moves */
    size_t
        reserve; /* bytes of disk allocated behind it, or it is refused (JOURNAL_NO_SPACE): for later appends whose own
                     * reserve is 0, which may use them. So what must be said of it later can be said on a full disk */
};
struct journal_commit {
    enum journal_result result; /* OK, NO_SPACE, LATCHED or CLOSED */
    bool duplicate;
    uint64_t start, end;  /* offsets of the payload: [start, end); for a duplicate both 0 */
    struct bytes payload; /* when JOURNAL_OK; borrowed until the callback returns; of a duplicate none */
};
typedef void journal_append_fn(const struct journal_commit *commit, void *arg);

/* JOURNAL_OK: accepted, `done` will be called exactly once from journal_set_poll. Anything else: refused, it
 * will not be called. With JOURNAL_CONFLICT *mark (may be NULL) is the producer's committed mark. `time` is
 * the wall clock; stored times never decrease, an earlier one is raised. */
enum journal_result journal_append(struct journal *j, const struct journal_append *a, usec_t time,
    journal_append_fn *done, void *arg, uint64_t *mark);

/* The committed mark; 0 for a producer never seen (and *known, which may be NULL, false). */
uint64_t journal_mark(const struct journal *j, struct bytes producer, bool *known);
size_t journal_producers(const struct journal *j);

/* Called (from journal_set_poll) after each commit that moved the committed end, after the appends' own
 * callbacks. One observer a journal. */
void journal_on_commit(struct journal *j, void (*fn)(struct journal *j, void *arg), void *arg);

struct journal_edges {
    uint64_t before; /* the last offset that was good before the gap (the end of what is there) */
    uint64_t after;  /* where bytes go on */
};
/* Where payload of one frame lies in a segment's file, for whoever sends it from there without a copy. */
struct journal_span {
    uint64_t offset;   /* of its first byte */
    uint64_t position; /* in the file */
    size_t len;
    uint64_t count; /* what the reader's count function said of these bytes */
};
struct journal_file;
struct journal_window {
    enum journal_result result; /* OK, END, GONE (edges filled), DAMAGED, IO, CLOSED */
    uint64_t offset;            /* of data.ptr[0] */
    struct bytes data;          /* verified payload, valid during the callback */
    struct buf *memory;         /* that it is in, from the beginning: the callback may take it over */
    bool frame_starts;          /* data begins at a frame's beginning */
    usec_t time;                /* of the frame the data begins in */
    struct journal_edges edges;
    /* journal_reader_spans only: instead of data, verified spans, valid during the callback. */
    const struct journal_span *spans;
    size_t n_spans;
    struct journal_file *file; /* hold it for longer */
    uint64_t stamp;            /* the file's before it was read */
};
typedef void journal_read_fn(const struct journal_window *w, void *arg);

/* OK, GONE (edges filled), BEYOND. An offset equal to the committed end is good, and so is the first offset
 * of every part. A reader at a hole's near edge reports GONE on its next read. It holds its segment against
 * unlinking. */
enum journal_result journal_reader_open(
    struct journal *j, uint64_t offset, struct journal_reader **out, struct journal_edges *edges);
/* Reads up to max_bytes (at least one) from where the reader is, and moves it on. One read at a time a reader.
 * `done` comes from journal_set_poll, unless the reader is closed first. */
void journal_reader_read(struct journal_reader *r, size_t max_bytes, journal_read_fn *done, void *arg);
/* As journal_reader_read, but where frames are large, JOURNAL_SPAN_MIN bytes and more on the average, they are verified
 * and not copied: spans follow each other without a gap, and end with the frame that passes JOURNAL_SPANS_MAX bytes.
 * `count` (may be NULL) is called on the reader thread with the bytes of each. `memory` is taken over: what is copied goes
 * there, and so none need be had for each read. */
#define JOURNAL_SPAN_MIN ((size_t)16 << 10)
#define JOURNAL_SPANS_MAX ((size_t)1 << 20)
struct journal_span_request {
    size_t max_bytes; /* of what is copied after all */
    uint64_t (*count)(struct bytes payload);
};
void journal_reader_spans(struct journal_reader *r, const struct journal_span_request *how,
    struct buf *memory, journal_read_fn *done, void *arg);
uint64_t journal_reader_offset(const struct journal_reader *r);
void journal_reader_close(
    struct journal_reader **r); /* a read in flight is dropped, its callback not called */

/* A segment's file, open for sendfile; the owner thread only. It may outlive the segment, and the journal. Bytes that
 * were sent from a file lie in sockets as pages of it for as long as their receivers take, so a segment whose file was
 * ever given out is never used again for other bytes: it is unlinked.
 *
 * What was verified in the file stays so as far as the system can tell while its stamp is the same: whoever writes to a
 * file changes that, also the journal itself while the segment is its newest. What it cannot tell is a disk that gives
 * back other bytes when the system reads them again; so nobody should rely on one check for long. */
int journal_file_fd(const struct journal_file *f);
struct journal_file *journal_file_hold(struct journal_file *f);
void journal_file_release(struct journal_file *f);
bool journal_file_is_unchanged(const struct journal_file *f, uint64_t stamp);

/* Every committed frame with a payload from `offset` on, in order, on the calling thread (it blocks: for recovery, before
 * the daemon is ready). fn returns false to stop. */
typedef bool journal_scan_fn(uint64_t offset, usec_t time, struct bytes payload, void *arg);
enum journal_result journal_scan(struct journal *j, uint64_t offset, journal_scan_fn *fn, void *arg);

/* Looks for the first frame with a payload whose time is at or after `time`, on the reader thread, in steps between which
 * others read. `done` comes once, from journal_set_poll, unless the seek is cancelled first: OK with that frame's offset,
 * which is the end as committed when the seek began when no frame was so late, and the earliest when what was found has
 * been trimmed since; DAMAGED, IO. The seek is gone before `done` is called. */
struct journal_seek;
typedef void journal_seek_fn(enum journal_result r, uint64_t offset, void *arg);
struct journal_seek *journal_seek_time(struct journal *j, usec_t time, journal_seek_fn *done, void *arg);
void journal_seek_cancel(struct journal_seek **seek); /* before the journal is closed */

struct journal_scrubbed {
    uint64_t bytes, segments,
        passes;         /* read; verified to the end; times that all the set's segments were gone through */
    uint64_t damaged;   /* segments found damaged or unreadable, each counted once */
    const char *damage; /* NULL, or the first of them with file and byte; lives as long as the set */
};
/* Reads sealed segments again, from the disk, so that damage is found before somebody needs what it took. To be called
 * some times a second (with the monotonic clock): each call lets the reader thread verify a piece, so that at most
 * bytes_a_second are read on the average; reads and trims wait for one piece, or one frame, at most. A pass begins an hour
 * after the last began. What is found is logged and counted; nothing is latched: appends
 * go on, and so do reads, up to the damage. */
void journal_set_scrub(struct journal_set *set, uint64_t bytes_a_second, usec_t now);
struct journal_scrubbed journal_set_scrubbed(const struct journal_set *set);

/* Unlinks segments wholly below `offset` (never the newest). Marks are kept: each segment begins with them. */
enum journal_result journal_trim(struct journal *j, uint64_t offset);

struct journal_retention {
    uint64_t max_bytes; /* of what journal_disk_bytes counts; 0: no limit */
    usec_t max_age;     /* 0: no limit */
    uint64_t hold;      /* the lowest cursor: nothing at or above it goes; UINT64_MAX: none */
};
/* Trims whole segments from the earliest on while the rest is over max_bytes or their last frame is older than
 * max_age; stops before `hold`. */
enum journal_result journal_retain(struct journal *j, const struct journal_retention *keep, usec_t now);
/* Bytes of files that it would let go if nothing were held. */
uint64_t journal_held_bytes(const struct journal *j, const struct journal_retention *keep, usec_t now);

#endif
