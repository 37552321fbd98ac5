/* journal: makes bytes durable. A journal is an append-only sequence of payload bytes, kept in a directory of segment files.
 * Each segment is a run of checksummed frames (docs/formats/journal.md).
 *
 * An *offset* counts payload bytes since the journal's beginning; it never repeats and never changes. A *frame* is one append.
 * *Committed* means written under JOURNAL_SYNC_NEVER (survives kill -9) and synced under the other policies (survives a power
 * cut). A *producer* is a name with a *mark*, which moves with the producer's appends and reveals a retry.
 *
 * 1. An append's callback reports JOURNAL_OK only when its frame is committed. Frames are committed in the order of the
 *    appends, each completely or not at all.
 * 2. Only committed bytes are read. Only committed frames count in journal_committed_end and journal_mark.
 * 3. A frame carries its producer's new mark. After a crash the marks are exactly those of the surviving frames.
 * 4. An append moves its producer from `mark` to `next`. If the producer is at `mark`, the append is stored. If the producer is
 *    at `next` or beyond, the append is a duplicate: it stores nothing, and is answered when the original is committed. In any
 *    other case the append gets JOURNAL_CONFLICT. This comparison includes accepted appends that are not committed yet.
 *    If one of them is refused later, the producer's later appends are refused too.
 * 5. Opening cuts a torn tail back to the last valid frame and reports the cut (journal_cut). Damage below a durable offset
 *    that an intact frame or the newest marker states gets JOURNAL_DAMAGED, with file and byte. After a clean stop this
 *    covers every commit; after a crash, every commit but the last ones. The loss of the newest segments gets
 *    JOURNAL_DAMAGED too.
 * 6. After a power cut under JOURNAL_SYNC_NEVER, new offsets begin at the next multiple of JOURNAL_HOLE. So an offset that was
 *    read before the power cut never gets other bytes. The skipped offsets are a hole.
 * 7. ENOSPC and EDQUOT refuse the appends concerned and undo them in file and marks; the next append tries again. Any
 *    other failed write and any failed sync latches the journal: later appends get JOURNAL_LATCHED, and reads continue.
 * 8. A segment's file is removed or reused only when no reader uses it. A file that was given out (journal_file) is
 *    never reused. A file is never truncated or punched under a reader.
 * 9. A journal of a newer format version is left untouched, with JOURNAL_NEWER. An unfinished repair is reported as
 *    JOURNAL_DAMAGED.
 * 10. A directory has one opener at a time, in any process; others get JOURNAL_IN_USE.
 * 11. A shortage of descriptors or memory does not count as a storage failure: the read or seek is retried. All readers of a
 *     set share eight descriptors.
 *
 * Threads: one owner thread (the daemon's loop) makes every call and receives every callback, inside journal_set_poll. The
 * set's own threads call only `notify`. docs/internals/journal.md describes them.
 */
#ifndef MILLRACE_JOURNAL_H
#define MILLRACE_JOURNAL_H

#include "base/bytes.h"
#include "base/clock.h"

#define JOURNAL_SYNC_NEVER (-1)
#define JOURNAL_HOLE (UINT64_C(1) << 40)
#define JOURNAL_FRAME_MAX (64u << 20) /* payload bytes of one append */
#define JOURNAL_ID_TEXT 33            /* 32 hex digits and NUL */
#define JOURNAL_ERROR_TEXT 512        /* of an error text with NUL; longer texts are cut */

struct journal_set;
struct journal;
struct journal_reader;

enum journal_result {
    JOURNAL_OK,
    JOURNAL_CONFLICT, /* the producer's mark differs */
    JOURNAL_TOO_MANY_PRODUCERS,
    JOURNAL_TOO_LARGE,      /* over JOURNAL_FRAME_MAX */
    JOURNAL_BUSY,           /* over max_pending: try again later */
    JOURNAL_NO_SPACE,       /* refused and undone; try again later */
    JOURNAL_LATCHED,        /* storage failed; see journal_failure */
    JOURNAL_GONE,           /* the offset lies in a hole or below the earliest: see struct journal_edges */
    JOURNAL_BEYOND,         /* the offset is past the committed end */
    JOURNAL_END,            /* reading: at the committed end */
    JOURNAL_DAMAGED,        /* the error text, or journal_failure, states file and position */
    JOURNAL_NEWER,          /* a newer format version */
    JOURNAL_IN_USE,         /* another process has the directory open */
    JOURNAL_IO,             /* a system call failed: see the error text */
    JOURNAL_NO_DESCRIPTORS, /* opening: out of descriptors; try again later */
    JOURNAL_CLOSED,         /* the set is being freed */
};
const char *journal_strerror(enum journal_result r);

/* A set contains all journals of a daemon, which share threads and commits. */
struct journal_set_config {
    int64_t
        sync_ms; /* JOURNAL_SYNC_NEVER; 0: sync each commit; otherwise: minimum milliseconds between syncs */
    size_t max_pending;        /* bytes of appends not yet committed; 0: 64 MiB */
    void (*notify)(void *arg); /* called from any thread: the owner must call journal_set_poll soon */
    void *notify_arg;
};

struct journal_set *journal_set_new(const struct journal_set_config *config);
/* Commits pending appends, runs the remaining callbacks, stops the threads, closes the journals. The next opening of these
 * journals makes no hole. */
void journal_set_free(struct journal_set **set);
/* Starts a commit of all appends so far, and runs the callbacks of finished commits and reads. */
void journal_set_poll(struct journal_set *set);
/* Polls until every append so far is committed or refused. For stopping and tests. */
void journal_set_flush(struct journal_set *set);
uint64_t journal_set_syncs(struct journal_set *set); /* syncs of commits so far */
/* When a read was last postponed for want of descriptors or memory (monotonic); 0: never. */
usec_t journal_set_last_shortage(struct journal_set *set);

struct journal_config {
    const char *dir;        /* created if missing; its parent must exist */
    uint64_t segment_bytes; /* a segment ends once it exceeds this size; 0: 64 MiB */
    size_t max_producers;   /* 0: 4096 */
    /* Offsets below this may have been used and lost, so new offsets begin above it, after a hole. 0: none. */
    uint64_t lost_below;
    bool shares_files; /* earlier sessions may have given out files, so never reuse those */
    /* Counts what a payload holds, for the report of a cut; the payload may be damaged. `counted` is the noun in the plural.
     * NULL: not counted. */
    uint64_t (*count)(struct bytes payload);
    const char *counted;
};

/* Opens or creates a journal. Blocks: verifies the newest segment and every segment's header, and syncs everything not known
 * to be synced. `error` receives a message for any result except OK. */
enum journal_result journal_open(struct journal_set *set, const struct journal_config *config,
    struct journal **out, char *error, size_t error_size);
/* Commits pending appends first. Before the call, close the journal's readers and cancel its seeks. Do not call this
 * from a callback of the same set. */
void journal_close(struct journal **j);

const char *journal_id(const struct journal *j); /* 32 hex digits; random, created with the journal */
uint64_t journal_earliest(const struct journal *j);
/* The present end of the earliest segment. A trim to this offset or above removes the segment, unless it is the
 * newest. */
uint64_t journal_earliest_end(const struct journal *j);
uint64_t journal_committed_end(const struct journal *j);
/* Bytes on disk of all segments and of the file prepared for the next segment. */
uint64_t journal_disk_bytes(const struct journal *j);
/* The part of journal_disk_bytes that is trimmed and waits for readers to leave. */
uint64_t journal_trimmed_bytes(const struct journal *j);
/* Payload bytes in [from, to), without holes and trimmed bytes. */
uint64_t journal_bytes_between(const struct journal *j, uint64_t from, uint64_t to);
usec_t journal_last_time(const struct journal *j);   /* of the last committed frame, wall clock; 0: empty */
uint64_t journal_cut_bytes(const struct journal *j); /* bytes of files that opening cut off the tail */
/* What opening cut: file, byte, offset, bytes and, if known, the count. NULL: nothing. The cut bytes were torn by a crash, or
 * damaged after the last commits were acknowledged; nothing distinguishes the two. */
const char *journal_cut(const struct journal *j);
const char *journal_failure(
    const struct journal *j); /* why writes are latched or reads stop; NULL: no failure */

struct journal_append {
    struct bytes producer;      /* a name; empty: no producer, and mark and next are ignored */
    uint64_t mark, next;        /* mark < next, asserted */
    const struct bytes *pieces; /* the payload, in pieces; copied before journal_append returns */
    size_t n_pieces;            /* 0 with a producer: only the mark moves */
    /* Bytes of disk to allocate after this append, for later appends with reserve 0 on a full disk. If there is no
     * room, the append is refused. */
    size_t reserve;
};
struct journal_commit {
    enum journal_result result; /* OK, NO_SPACE, LATCHED or CLOSED */
    bool duplicate;
    uint64_t start, end;  /* offsets of the payload: [start, end); both 0 for a duplicate */
    struct bytes payload; /* if OK and not a duplicate; borrowed until the callback returns */
};
typedef void journal_append_fn(const struct journal_commit *commit, void *arg);

/* JOURNAL_OK: accepted; `done` will be called exactly once. Any other result: refused, and `done` will not be called. *mark
 * (may be NULL) receives the producer's committed mark. `time` is the wall clock; a later frame may have an earlier time. */
enum journal_result journal_append(struct journal *j, const struct journal_append *a, usec_t time,
    journal_append_fn *done, void *arg, uint64_t *mark);

/* The committed mark; for a new producer 0, and *known (may be NULL) is false. */
uint64_t journal_mark(const struct journal *j, struct bytes producer, bool *known);

/* Sets the journal's one observer. It is called after each commit that moved the committed end, after the appends' own
 * callbacks. */
void journal_on_commit(struct journal *j, void (*fn)(struct journal *j, void *arg), void *arg);

struct journal_edges {
    uint64_t before; /* the last valid offset before the gap */
    uint64_t after;  /* the first valid offset after the gap */
};
/* Payload of one frame in a segment's file, for sendfile. */
struct journal_span {
    uint64_t offset;   /* of its first byte */
    uint64_t position; /* in the file */
    size_t len;
    uint64_t count; /* result of the request's count function */
};
struct journal_file;
struct journal_window {
    enum journal_result result; /* OK, END, GONE (edges filled), DAMAGED, IO, CLOSED */
    uint64_t offset;            /* of data.ptr[0] */
    struct bytes data;          /* verified payload, valid during the callback */
    struct buf *memory;         /* holds data; the callback may take it over */
    bool frame_starts;          /* data begins at the beginning of a frame */
    usec_t time;                /* of the frame in which data begins */
    struct journal_edges edges;
    /* Only from journal_reader_spans: verified spans instead of data, valid during the callback. */
    const struct journal_span *spans;
    size_t n_spans;
    struct journal_file *file; /* hold it to keep it longer */
    uint64_t stamp;            /* the file's change time before the spans were verified */
};
typedef void journal_read_fn(const struct journal_window *w, void *arg);

/* OK, GONE (edges filled), BEYOND. The committed end is a valid offset. At the near edge of a hole, the reader's next read gets
 * GONE. A reader keeps its segment from being removed. */
enum journal_result journal_reader_open(
    struct journal *j, uint64_t offset, struct journal_reader **out, struct journal_edges *edges);
/* Reads up to max_bytes (at least one) and advances the reader. A reader allows one read at a time. Closing the reader cancels
 * the call of `done`. */
void journal_reader_read(struct journal_reader *r, size_t max_bytes, journal_read_fn *done, void *arg);
/* As journal_reader_read, but frames that average JOURNAL_SPAN_MIN bytes or more are verified in the file and not
 * copied. The window receives contiguous spans, up to and including the frame that exceeds JOURNAL_SPANS_MAX bytes. The
 * reader takes over `memory` for smaller frames, which it copies. */
#define JOURNAL_SPAN_MIN ((size_t)16 << 10)
#define JOURNAL_SPANS_MAX ((size_t)1 << 20)
struct journal_span_request {
    size_t max_bytes;                        /* of a copy */
    uint64_t (*count)(struct bytes payload); /* called on the reader thread for each span; may be NULL */
};
void journal_reader_spans(struct journal_reader *r, const struct journal_span_request *how,
    struct buf *memory, journal_read_fn *done, void *arg);
uint64_t journal_reader_offset(const struct journal_reader *r);
void journal_reader_close(struct journal_reader **r);

/* A segment's file, open for sendfile; owner thread only. It may outlive the segment and the journal.
 *
 * While the file's stamp (its change time) stays the same, verified bytes are unchanged as far as the system can tell.
 * The stamp cannot expose a disk that returns other bytes on a second read, so verify again from time to time. */
int journal_file_fd(const struct journal_file *f);
struct journal_file *journal_file_hold(struct journal_file *f);
void journal_file_release(struct journal_file *f);
bool journal_file_is_unchanged(const struct journal_file *f, uint64_t stamp);

/* Calls fn for every committed frame with a payload from `offset` on, in order, on the calling thread. Blocks: for recovery.
 * fn returns false to stop. */
typedef bool journal_scan_fn(uint64_t offset, usec_t time, struct bytes payload, void *arg);
enum journal_result journal_scan(struct journal *j, uint64_t offset, journal_scan_fn *fn, void *arg);

/* Finds the first frame with a payload at or after `time`, on the reader thread. A frame later than `now` was written while
 * the clock was ahead: it counts as no later than the frame after it. So a clock that was ahead does not hide the later frames.
 *
 * `done` is called once, unless the seek is cancelled. Its result is DAMAGED, IO, or OK with the frame's offset. If there is
 * no such frame, the offset is the committed end at the time of the call. The offset is never below the earliest. The seek is
 * freed before `done`. */
struct journal_seek;
typedef void journal_seek_fn(enum journal_result r, uint64_t offset, void *arg);
struct journal_seek *journal_seek_time(
    struct journal *j, usec_t time, usec_t now, journal_seek_fn *done, void *arg);
void journal_seek_cancel(struct journal_seek **seek);

struct journal_scrubbed {
    uint64_t bytes;     /* read */
    uint64_t segments;  /* verified to the end */
    uint64_t passes;    /* over all segments of the set */
    uint64_t damaged;   /* segments, each counted once */
    const char *damage; /* the first damage with file and byte, valid as long as the set; NULL: none */
};
/* Re-reads sealed segments from the disk, to find damage before the data is needed. Call it several times a second with the
 * monotonic clock. It reads at most bytes_a_second on average, and a pass begins once an hour. Reads and trims wait for
 * at most one piece of this work. Damage is logged and counted; appends continue, and so do reads up to the damage. */
void journal_set_scrub(struct journal_set *set, uint64_t bytes_a_second, usec_t now);
struct journal_scrubbed journal_set_scrubbed(const struct journal_set *set);

/* Removes segments that lie completely below `offset`, never the newest. Marks are kept. */
void journal_trim(struct journal *j, uint64_t offset);

struct journal_retention {
    uint64_t max_bytes; /* of journal_disk_bytes; 0: unlimited */
    usec_t max_age;     /* 0: unlimited */
    uint64_t hold;      /* the lowest cursor: nothing at or above it is removed; UINT64_MAX: none */
};
/* Removes the earliest segments, up to `hold`, while the journal exceeds max_bytes or they ended before now - max_age. A segment
 * ended at its latest frame, or when its successor was created, whichever is earlier. If that is later than `now`, the clock was
 * ahead, and the segment counts as ended with its successor. */
void journal_retain(struct journal *j, const struct journal_retention *keep, usec_t now);
/* Bytes of files that only `hold` keeps. */
uint64_t journal_held_bytes(const struct journal *j, const struct journal_retention *keep, usec_t now);

#endif
