/* journal: the one way bytes become durable. A journal is an append-only sequence of payload bytes, kept in a directory of
 * segment files. Each segment is a run of checksummed frames (docs/formats/journal.md).
 *
 * An *offset* counts payload bytes since the journal's beginning; it never repeats and never changes. A *frame* is one
 * append. *Committed* means as safe as the policy promises: written under JOURNAL_SYNC_NEVER (survives kill -9), else
 * synced (survives a power cut). A *producer* is a name with a *mark* that moves with its appends, so that a retry is
 * recognised.
 *
 * 1. An append's callback says JOURNAL_OK only when its frame is committed. Frames are committed in the order of the
 *    appends, each completely or not at all.
 * 2. Only committed bytes are read, only they count in journal_committed_end and in marks.
 * 3. A frame carries its producer's new mark. After a crash the marks are exactly those of the frames that were kept.
 * 4. An append with producer P, mark A and next B meets P's mark M (0 for a new producer). M == A: it is stored and M
 *    becomes B. M >= B: a duplicate; nothing is stored, and it is answered once the original is committed. Else
 *    JOURNAL_CONFLICT. M includes accepted appends; if one of them is refused, later appends of the producer are refused too.
 * 5. Opening cuts a torn tail back to the last valid frame and reports the cut. Damage below the durable offset that an
 *    intact frame names is JOURNAL_DAMAGED, by file and byte. So is the loss of the newest segments.
 * 6. After an unclean end under JOURNAL_SYNC_NEVER and a reboot, offsets go on at the next multiple of JOURNAL_HOLE: no
 *    offset that was ever read stands for other bytes.
 * 7. ENOSPC and EDQUOT refuse the appends concerned, undo them in file and marks, and the next append tries again. Any
 *    other failed write and any failed sync latches: later appends get JOURNAL_LATCHED, reads go on.
 * 8. A segment's file is removed or reused only when no reader is inside; it is never truncated or punched. A file that was
 *    given out (journal_file) is never reused.
 * 9. A newer format version is JOURNAL_NEWER and left untouched. An unfinished repair is JOURNAL_DAMAGED.
 * 10. A directory has one opener at a time, in any process; others get JOURNAL_IN_USE.
 * 11. A shortage of descriptors or memory says nothing about the storage: a read or seek that meets one is retried. All
 *    readers of a set share eight descriptors.
 *
 * Threads: one owner thread (the daemon's loop) makes every call and gets every callback, inside journal_set_poll. The
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
    JOURNAL_DAMAGED,        /* journal_failure names file and position */
    JOURNAL_NEWER,          /* a newer format version */
    JOURNAL_IN_USE,         /* another process has the directory open */
    JOURNAL_IO,             /* a system call failed: see the error text */
    JOURNAL_NO_DESCRIPTORS, /* opening: out of descriptors; try again later */
    JOURNAL_CLOSED,         /* the set is being freed */
};
const char *journal_strerror(enum journal_result r);

/* A set is all journals of a daemon; they share threads and commits. */
struct journal_set_config {
    int64_t sync_ms;    /* JOURNAL_SYNC_NEVER; 0: sync each commit; else: at most one sync every so many ms */
    size_t max_pending; /* bytes of appends not yet committed; 0: 64 MiB */
    void (*notify)(void *arg); /* from any thread: arrange that the owner calls journal_set_poll soon */
    void *notify_arg;
};

struct journal_set *journal_set_new(const struct journal_set_config *config);
/* Commits what is pending, runs the remaining callbacks, stops the threads, closes the journals. A journal closed so makes
 * no hole at its next opening. */
void journal_set_free(struct journal_set **set);
/* Starts a commit of all appends so far, and runs the callbacks of commits and reads that have finished. */
void journal_set_poll(struct journal_set *set);
/* Waits until everything appended so far is committed or refused, and polls meanwhile. For stopping and tests. */
void journal_set_flush(struct journal_set *set);
size_t journal_set_pending(const struct journal_set *set); /* bytes appended and not yet committed */
uint64_t journal_set_syncs(struct journal_set *set);       /* syncs of commits so far */
/* When a read was last put off for want of descriptors or memory (monotonic); 0: never. */
usec_t journal_set_last_shortage(struct journal_set *set);

struct journal_config {
    const char *dir;        /* created if missing; its parent must exist */
    uint64_t segment_bytes; /* a segment over this size is followed by the next; 0: 64 MiB */
    size_t max_producers;   /* 0: 4096 */
    uint64_t lost_below; /* offsets below may have been used and lost: go on above, after a hole; 0: none */
    bool shares_files;   /* earlier sessions may have given out files: never reuse theirs */
};

/* Opens or creates a journal. Blocks: verifies the newest segment and every segment's header, and syncs what was not known to
 * be synced. `error` gets a message for any result but OK. */
enum journal_result journal_open(struct journal_set *set, const struct journal_config *config,
    struct journal **out, char *error, size_t error_size);
/* Commits what is pending first. Its readers and seeks must be closed. Not from a callback of the same set: it polls. */
void journal_close(struct journal **j);

const char *journal_id(const struct journal *j); /* 32 hex digits; random, made with the journal */
uint64_t journal_earliest(const struct journal *j);
/* End of the earliest segment so far. A trim from there on removes the segment, unless it is the newest. */
uint64_t journal_earliest_end(const struct journal *j);
uint64_t journal_committed_end(const struct journal *j);
/* Bytes on disk, of all segments and of the file prepared for the next. */
uint64_t journal_disk_bytes(const struct journal *j);
/* Of those, trimmed bytes that only wait for reads to leave. */
uint64_t journal_trimmed_bytes(const struct journal *j);
/* Payload bytes in [from, to), without holes and trimmed bytes. */
uint64_t journal_bytes_between(const struct journal *j, uint64_t from, uint64_t to);
usec_t journal_last_time(const struct journal *j);    /* of the last committed frame, wall clock; 0: empty */
uint64_t journal_cut_bytes(const struct journal *j);  /* bytes of the file that opening cut off the tail */
const char *journal_failure(const struct journal *j); /* NULL, or why writes are latched or reads stop */

struct journal_append {
    struct bytes producer;      /* a name; empty: none, and mark and next are ignored */
    uint64_t mark, next;        /* mark < next, asserted */
    const struct bytes *pieces; /* the payload, in pieces; copied before journal_append returns */
    size_t n_pieces;            /* 0 with a producer: only the mark moves */
    /* Bytes of disk to allocate behind this append, for later appends without a reserve of their own; without room the append
     * is refused. So a full disk still takes the later ones. */
    size_t reserve;
};
struct journal_commit {
    enum journal_result result; /* OK, NO_SPACE, LATCHED or CLOSED */
    bool duplicate;
    uint64_t start, end;  /* offsets of the payload: [start, end); of a duplicate both 0 */
    struct bytes payload; /* if OK and no duplicate; borrowed until the callback returns */
};
typedef void journal_append_fn(const struct journal_commit *commit, void *arg);

/* JOURNAL_OK: accepted; `done` will be called exactly once. Anything else: refused, and `done` will not be called. *mark (may
 * be NULL) is the producer's committed mark. `time` is the wall clock; stored times never decrease. */
enum journal_result journal_append(struct journal *j, const struct journal_append *a, usec_t time,
    journal_append_fn *done, void *arg, uint64_t *mark);

/* The committed mark. 0 for a new producer, and *known (may be NULL) is false. */
uint64_t journal_mark(const struct journal *j, struct bytes producer, bool *known);

/* One observer a journal, called after each commit that moved the committed end, behind the appends' own callbacks. */
void journal_on_commit(struct journal *j, void (*fn)(struct journal *j, void *arg), void *arg);

struct journal_edges {
    uint64_t before; /* the last valid offset before the gap */
    uint64_t after;  /* the first valid offset behind it */
};
/* Payload of one frame in a segment's file, to be sent from there. */
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
    struct buf *memory;         /* that holds it; the callback may take it over */
    bool frame_starts;          /* data begins where a frame begins */
    usec_t time;                /* of the frame in which data begins */
    struct journal_edges edges;
    /* journal_reader_spans only: verified spans instead of data, valid during the callback. */
    const struct journal_span *spans;
    size_t n_spans;
    struct journal_file *file; /* hold it to keep it longer */
    uint64_t stamp;            /* the file's change time before the spans were verified */
};
typedef void journal_read_fn(const struct journal_window *w, void *arg);

/* OK, GONE (edges filled), BEYOND. The committed end is a valid offset. A reader at the near edge of a hole gets GONE from
 * its next read. A reader keeps its segment from being removed. */
enum journal_result journal_reader_open(
    struct journal *j, uint64_t offset, struct journal_reader **out, struct journal_edges *edges);
/* Reads up to max_bytes (at least one) and moves the reader on. A reader allows one read at a time. `done` is not called if the
 * reader is closed first. */
void journal_reader_read(struct journal_reader *r, size_t max_bytes, journal_read_fn *done, void *arg);
/* As journal_reader_read, but frames of JOURNAL_SPAN_MIN bytes and more on average are verified in the file and not copied:
 * the window gets contiguous spans, up to the frame that passes JOURNAL_SPANS_MAX bytes. `memory` is taken over for bytes
 * that are copied after all. */
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
 * Verified bytes are unchanged, as far as the system can tell, while the file's stamp (its change time) is the same. A disk
 * that returns other bytes on a second read goes unnoticed, so verify again from time to time. */
int journal_file_fd(const struct journal_file *f);
struct journal_file *journal_file_hold(struct journal_file *f);
void journal_file_release(struct journal_file *f);
bool journal_file_is_unchanged(const struct journal_file *f, uint64_t stamp);

/* Calls fn for every committed frame with a payload from `offset` on, in order, on the calling thread. Blocks: for recovery.
 * fn returns false to stop. */
typedef bool journal_scan_fn(uint64_t offset, usec_t time, struct bytes payload, void *arg);
enum journal_result journal_scan(struct journal *j, uint64_t offset, journal_scan_fn *fn, void *arg);

/* Finds the first frame with a payload at or after `time`, on the reader thread. `done` is called once, unless the seek is
 * cancelled: DAMAGED, IO, or OK with the frame's offset. Without such a frame, the offset is the committed end at the time of
 * the call. It is never below the earliest offset. The seek is freed before `done`. Cancel seeks before closing the journal. */
struct journal_seek;
typedef void journal_seek_fn(enum journal_result r, uint64_t offset, void *arg);
struct journal_seek *journal_seek_time(struct journal *j, usec_t time, journal_seek_fn *done, void *arg);
void journal_seek_cancel(struct journal_seek **seek);

struct journal_scrubbed {
    uint64_t bytes;     /* read */
    uint64_t segments;  /* verified to the end */
    uint64_t passes;    /* over all segments of the set */
    uint64_t damaged;   /* segments, each counted once */
    const char *damage; /* NULL, or the first damage with file and byte; lives as long as the set */
};
/* Re-reads sealed segments from the disk, so that damage is found before the data is needed. Call it some times a second with
 * the monotonic clock; it reads at most bytes_a_second on average, and a pass begins once an hour. Reads and trims wait for
 * one piece at most. Damage is logged and counted; appends go on, and so do reads up to the damage. */
void journal_set_scrub(struct journal_set *set, uint64_t bytes_a_second, usec_t now);
struct journal_scrubbed journal_set_scrubbed(const struct journal_set *set);

/* Removes segments that lie completely below `offset`, never the newest. Marks are kept. */
enum journal_result journal_trim(struct journal *j, uint64_t offset);

struct journal_retention {
    uint64_t max_bytes; /* of journal_disk_bytes; 0: unlimited */
    usec_t max_age;     /* 0: unlimited */
    uint64_t hold;      /* the lowest cursor: nothing at or above it is removed; UINT64_MAX: none */
};
/* Removes the earliest segments while the rest exceeds max_bytes or their last frame exceeds max_age, up to `hold`. */
enum journal_result journal_retain(struct journal *j, const struct journal_retention *keep, usec_t now);
/* Bytes of files that only `hold` keeps. */
uint64_t journal_held_bytes(const struct journal *j, const struct journal_retention *keep, usec_t now);

#endif
