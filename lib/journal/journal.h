/* journal: stores bytes durably. A journal is an append-only sequence of payload bytes in a directory of segment
 * files. Each segment file contains a sequence of checksummed frames (docs/formats/journal.md).
 *
 * The *offset* of a payload byte is the number of payload bytes before it, and never changes. A *frame* contains
 * the payload of one append. It is *committed* when it is synced; under JOURNAL_SYNC_NEVER, when it is written. A
 * *producer* is a name with a number, the *mark*, which each of its appends increases, so that the journal
 * recognizes a retried append.
 *
 * 1. The callback of an append gets JOURNAL_OK only after its frame is committed. Frames are committed in the order
 *    of the appends, each as a whole.
 * 2. Readers get only committed bytes. journal_committed_end and journal_mark reflect only committed frames.
 * 3. A frame contains the new mark of its producer, so after a crash marks and frames fit.
 * 4. An append states the producer's mark before it (`mark`) and after it (`next`). If the stored mark is `mark`,
 *    it is stored. If the stored mark is `next` or higher, it is a duplicate, called back when the original is
 *    committed. Otherwise it gets JOURNAL_CONFLICT. Accepted appends count as stored; if one is refused later, all
 *    after it are refused too. Only `sets_mark` can lower a mark.
 * 5. journal_open cuts off a torn frame at the end and reports the cut (journal_cut). Each frame and the newest
 *    marker state which offsets were synced before. Damage to bytes that were synced is JOURNAL_DAMAGED, with file
 *    and byte; so are missing newest segments. After a crash, only the last commits are not protected in this way.
 * 6. Under JOURNAL_SYNC_NEVER a power cut can destroy bytes that were read. New offsets then begin at the next
 *    multiple of JOURNAL_HOLE, so that no offset ever gets other bytes. The skipped offsets are a *hole*.
 * 7. After ENOSPC or EDQUOT the journal refuses and undoes the appends; later ones may succeed. After any other
 *    failed write or sync it is *latched*: appends get JOURNAL_LATCHED, reads continue.
 * 8. The file of a segment is removed or reused only when no reader uses it, and never reused once a caller has
 *    received it (journal_file). No file is truncated or punched under a reader.
 * 9. An unknown format version is JOURNAL_VERSION, and nothing is changed. An interrupted repair is JOURNAL_DAMAGED.
 * 10. A directory can be open only once, over all processes (JOURNAL_IN_USE).
 * 11. A read or seek without descriptors or memory is retried. All readers of a set share eight descriptors.
 *
 * Threads: one thread, the owner (the daemon's loop), makes all calls, and journal_set_poll runs all callbacks in
 * it. The set's own threads call only `notify` (docs/internals/journal.md). */
#ifndef MILLRACE_JOURNAL_H
#define MILLRACE_JOURNAL_H

#include "base/bytes.h"
#include "base/clock.h"
#include "journal/opening.h"

#define JOURNAL_SYNC_NEVER (-1)
#define JOURNAL_HOLE (UINT64_C(1) << 40)
#define JOURNAL_FRAME_MAX (64u << 20) /* payload bytes of one append */
#define JOURNAL_ID_TEXT 33            /* 32 hex digits and NUL */
#define JOURNAL_ERROR_TEXT 512        /* size of an error text with its NUL; longer texts are truncated */

struct journal_set;
struct journal;
struct journal_reader;

enum journal_result {
    JOURNAL_OK,
    JOURNAL_CONFLICT, /* the producer's mark differs */
    JOURNAL_TOO_MANY_PRODUCERS,
    JOURNAL_TOO_LARGE, /* over JOURNAL_FRAME_MAX */
    JOURNAL_BUSY,      /* above max_pending: try again later */
    JOURNAL_MARK_BUSY, /* the producer's mark is being set, or is to be set while it moves: try again later */
    JOURNAL_NO_SPACE,  /* the disk is full: refused and undone; try again later */
    JOURNAL_LATCHED,   /* storage failed; see journal_failure */
    JOURNAL_GONE,      /* the offset is in a hole or below the earliest, see struct journal_edges */
    JOURNAL_BEYOND,    /* the offset is past the committed end */
    JOURNAL_END,       /* the reader is at the committed end */
    JOURNAL_DAMAGED,   /* the error text, or journal_failure, names file and byte */
    JOURNAL_VERSION,   /* an unknown format version */
    JOURNAL_IN_USE,    /* another process has the directory open */
    JOURNAL_IO,        /* a system call failed: see the error text */
    JOURNAL_NO_DESCRIPTORS, /* cannot open: out of descriptors; try again later */
    JOURNAL_CLOSED,         /* the set is being freed */
};
const char *journal_strerror(enum journal_result r);

/* A set contains all journals of a daemon. These share threads and commits. */
struct journal_set_config {
    int64_t
        sync_ms; /* JOURNAL_SYNC_NEVER; 0: sync each commit; otherwise: minimum milliseconds between syncs */
    size_t max_pending;        /* bytes of appends not yet committed; 0: 64 MiB */
    void (*notify)(void *arg); /* called from any thread; the owner must call journal_set_poll soon */
    void *notify_arg;
};

struct journal_set *journal_set_new(const struct journal_set_config *config);
/* Commits pending appends, runs the remaining callbacks, stops the threads and closes the journals. */
void journal_set_free(struct journal_set **set);
/* Starts to commit all appends made so far, and runs the callbacks of finished commits and reads. */
void journal_set_poll(struct journal_set *set);
/* Polls until every append so far is committed or refused. */
void journal_set_flush(struct journal_set *set);
uint64_t journal_set_syncs(struct journal_set *set); /* syncs of commits so far */
/* The monotonic time at which a read was last postponed because descriptors or memory ran short; 0: never. */
usec_t journal_set_last_shortage(struct journal_set *set);

struct journal_config {
    const char *dir;        /* created if missing; its parent must exist */
    uint64_t segment_bytes; /* a segment ends once it exceeds this size; 0: 64 MiB */
    size_t max_producers;   /* 0: 4096 */
    /* If above 0: offsets below may have been used and lost, so new ones begin above, after a hole. */
    uint64_t lost_below;
    bool shares_files; /* callers may hold files of earlier sessions, so never reuse a file */
    /* Each opening that appends begins a segment, so that the opening of a byte is known. On a full disk, its first append waits
     * for space, even if an earlier session has reserved some. */
    bool openings_begin_segments;
    /* For the report of a cut: counts the items (plural name `counted`) in a payload, which may be damaged; may be
     * NULL. */
    uint64_t (*count)(struct bytes payload);
    const char *counted;
};

/* Opens or creates a journal. Blocks while it verifies the newest segment and all headers, and syncs what may not
 * be synced. For any result except OK, `error` gets a message. */
enum journal_result journal_open(struct journal_set *set, const struct journal_config *config,
    struct journal **out, char *error, size_t error_size);
/* Commits pending appends and closes the journal. Close its readers and cancel its seeks before. Not from a
 * callback of the set. */
void journal_close(struct journal **j);

const char *journal_id(const struct journal *j); /* 32 hex digits; random, created with the journal */

/* The opening (opening.h) of this session, also if it has not appended yet. */
const char *journal_opening(const struct journal *j);
/* The following functions need openings_begin_segments. Their texts are valid until the next append, poll or trim.
 *
 * The opening of the byte before `offset`; "": offset 0, or below the earliest offset. A lost byte belongs to the opening before
 * its hole. */
const char *journal_opening_before(const struct journal *j, uint64_t offset);
/* The opening that has appended the byte at `offset`, or will append it. */
const char *journal_opening_at(const struct journal *j, uint64_t offset);
/* The end of the bytes that this opening has appended; UINT64_MAX: the opening of this session. */
uint64_t journal_opening_end(const struct journal *j, uint64_t offset);
/* True if `opening` is that of the byte before `offset`, or if this byte is below the earliest offset, so that the journal cannot
 * know it, or if it and the next one are lost, so that no journal has other bytes there. False: the journal is a copy of the cursor's journal, and *differs_from is the first offset whose byte
 * differs. *is_certain is true if the journal knows the opening; otherwise the place is found by the clocks (opening.h). */
bool journal_is_past(
    const struct journal *j, uint64_t offset, struct bytes opening, uint64_t *differs_from, bool *is_certain);
struct journal_opening {
    uint64_t first; /* its first offset, or the earliest offset */
    usec_t began;   /* its first append by the wall clock, which may have been wrong */
    const char *opening;
};
/* Returns the number of openings that have appended bytes, and a list of them, the oldest first, which the caller frees. */
size_t journal_openings(const struct journal *j, struct journal_opening **out);

uint64_t journal_earliest(const struct journal *j);
/* The end of the earliest segment: journal_trim with this offset or a higher one removes it, unless it is the
 * newest. */
uint64_t journal_earliest_end(const struct journal *j);
uint64_t journal_committed_end(const struct journal *j);
uint64_t journal_accepted_end(const struct journal *j); /* of all appends so far, committed or not */
/* Bytes on disk of all segments and of the file prepared for the next segment. */
uint64_t journal_disk_bytes(const struct journal *j);
/* The part of journal_disk_bytes in trimmed segments that readers still use. */
uint64_t journal_trimmed_bytes(const struct journal *j);
/* The number of payload bytes from `from` up to `to`, not counting holes and trimmed bytes. */
uint64_t journal_bytes_between(const struct journal *j, uint64_t from, uint64_t to);
usec_t journal_last_time(
    const struct journal *j); /* wall-clock time of the last payload, or of a later frame; 0: empty */
usec_t journal_clock(
    const struct journal *j); /* wall-clock time of the last append, with or without a payload; 0: none */
uint64_t journal_cut_bytes(const struct journal *j); /* bytes of a torn tail that journal_open cut off */
/* What journal_open has cut off (file, byte, offset, bytes, count if known), torn by a crash or damaged since;
 * NULL: nothing. */
const char *journal_cut(const struct journal *j);
bool journal_is_latched(const struct journal *j); /* appends are refused */
const char *journal_failure(
    const struct journal *j); /* why appends are refused or reads stop; NULL: no failure */

struct journal_append {
    struct bytes producer;      /* a name; if empty, mark and next are ignored */
    uint64_t mark, next;        /* mark < next, or equal without a payload: only the tag changes */
    const struct bytes *pieces; /* the payload; copied before journal_append returns */
    size_t n_pieces;            /* may be 0 with a producer: only the mark changes */
    /* Bytes of disk space to reserve after this append, for later appends with reserve 0 on a full disk. Without
     * this space the append is refused. */
    size_t reserve;
    /* Stored with the mark until the producer's next append. Name and tag have at most MARK_LABEL_MAX - 1 bytes. */
    struct bytes tag;
    bool
        begins_segment; /* ends the newest segment if the disk has room for another; the payload may then be empty */
    /* Sets the mark to `next`, whatever it is; 0 removes the producer. JOURNAL_MARK_BUSY while other appends of the
     * producer are under way, and for these meanwhile. */
    bool sets_mark;
};
struct journal_commit {
    enum journal_result result; /* OK, NO_SPACE, LATCHED or CLOSED */
    bool duplicate;
    uint64_t start, end;  /* the payload is at offsets start to end - 1; both 0 for a duplicate */
    struct bytes payload; /* valid until the callback returns; empty if refused or a duplicate */
};
typedef void journal_append_fn(const struct journal_commit *commit, void *arg);

/* JOURNAL_OK: accepted, and `done` will be called exactly once. Otherwise refused, and `done` is not called. *mark
 * (may be NULL) is the producer's committed mark. `time` is the wall clock, which may have fallen. */
enum journal_result journal_append(struct journal *j, const struct journal_append *a, usec_t time,
    journal_append_fn *done, void *arg, uint64_t *mark);

/* The producer's committed mark; 0 with *known (may be NULL) false if it is new. */
uint64_t journal_mark(const struct journal *j, struct bytes producer, bool *known);

/* The tag that the producer's last committed append stored; borrowed until the next poll. */
struct bytes journal_tag(const struct journal *j, struct bytes producer);
struct journal_producer {
    struct bytes name;
    uint64_t mark;
    struct bytes tag;
};
/* Calls fn for each producer with a committed mark, in any order. */
typedef void journal_producer_fn(const struct journal_producer *producer, void *arg);
void journal_producers(const struct journal *j, journal_producer_fn *fn, void *arg);

/* The journal's only observer; fn NULL: none. journal_set_poll calls it after the callbacks of each commit or refusal, and of
 * each job of the reader thread, such as a read or a step of an erasure. `moved`: the committed end has moved. */
typedef void journal_observer_fn(struct journal *j, bool moved, void *arg);
void journal_observe(struct journal *j, journal_observer_fn *fn, void *arg);

struct journal_edges {
    uint64_t before; /* the last valid offset before the gap */
    uint64_t after;  /* the first valid offset after the gap */
};
/* The payload of one frame, as a span of the segment's file, for sendfile. */
struct journal_span {
    uint64_t offset;   /* of its first byte */
    uint64_t position; /* in the file */
    size_t len;
    uint64_t count; /* result of journal_span_request.count */
};
struct journal_file;
struct journal_window {
    enum journal_result result; /* OK, END, GONE (edges filled), DAMAGED, IO, CLOSED */
    uint64_t offset;            /* of data.ptr[0] */
    struct bytes data;          /* verified payload, valid during the callback */
    struct buf *memory;         /* the memory of `data`; the callback may take over this buffer */
    usec_t time;                /* of the frame in which data begins */
    struct journal_edges edges;
    /* journal_reader_spans may return verified spans instead of data. They are valid during the callback. */
    const struct journal_span *spans;
    size_t n_spans;
    struct journal_file *file; /* valid during the callback; see journal_file_hold */
    uint64_t stamp;            /* the file's change time, read before the spans were verified */
};
typedef void journal_read_fn(const struct journal_window *w, void *arg);

/* OK, BEYOND, or GONE with *edges filled. `offset` may be the committed end. At the first offset of a hole the next
 * read gets GONE. A reader holds the segment that it is in. */
enum journal_result journal_reader_open(
    struct journal *j, uint64_t offset, struct journal_reader **out, struct journal_edges *edges);
/* Reads from 1 to max_bytes bytes and advances the reader. One read at a time. Closing the reader cancels it. */
void journal_reader_read(struct journal_reader *r, size_t max_bytes, journal_read_fn *done, void *arg);
/* As journal_reader_read, but if the next frames have JOURNAL_SPAN_MIN bytes or more on average, they are verified
 * in the file, and the window has one span for each, up to JOURNAL_SPANS_MAX bytes or a little more. Smaller frames
 * are copied into `memory`, which the reader takes over. */
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

/* The file of a segment, opened for sendfile. For the owner's thread only. The file may be used longer than the
 * segment and the journal exist.
 *
 * The stamp is the file's change time: if it is the same, no program has written to the file since the bytes were
 * verified. A faulty disk may still return other bytes, so verify them again from time to time. */
int journal_file_fd(const struct journal_file *f);
struct journal_file *journal_file_hold(struct journal_file *f);
void journal_file_release(struct journal_file *f);
bool journal_file_is_unchanged(const struct journal_file *f, uint64_t stamp);

/* Calls fn for every committed frame with a payload, in order, from `offset` on, until it returns false. Blocks:
 * for recovery. */
struct journal_scanned {
    uint64_t offset;
    usec_t time;
    const char *opening; /* that appended the frame; known without openings_begin_segments, too */
    struct bytes payload;
};
typedef bool journal_scan_fn(const struct journal_scanned *frame, void *arg);
enum journal_result journal_scan(struct journal *j, uint64_t offset, journal_scan_fn *fn, void *arg);

/* Finds, in the reader thread, the first frame that has a payload and is not older than `time`. A frame with a time
 * after `now` was written while the clock was ahead: it counts as not newer than the frame after it.
 *
 * `done` is called once, unless the seek is cancelled, with DAMAGED, IO, or OK and the frame's offset: the
 * committed end of the call if no frame is new enough, the earliest offset if the frame was trimmed meanwhile. The
 * seek is freed before. */
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
    const char *damage; /* file and byte of the first damage, valid as long as the set; NULL: none */
};
/* Re-reads all segments but the newest from the disk, to find damage early: at most bytes_a_second on average, a
 * pass an hour, in small steps between which other jobs run. Call it several times a second with the monotonic
 * clock. Damage is logged and counted. */
void journal_set_scrub(struct journal_set *set, uint64_t bytes_a_second, usec_t now);
struct journal_scrubbed journal_set_scrubbed(const struct journal_set *set);

/* Removes the segments that are completely below `offset`, but never the newest. The marks of producers are kept. */
void journal_trim(struct journal *j, uint64_t offset);

struct journal_retention {
    uint64_t min_bytes; /* payload that is enough to keep; 0: unlimited */
    uint64_t max_files; /* of journal_disk_bytes; 0: unlimited */
    usec_t max_age;     /* 0: unlimited */
    uint64_t hold;      /* never remove bytes from here on (the lowest cursor); UINT64_MAX: no limit */
};
/* Removes the earliest segment while the later ones contain min_bytes, the files exceed max_files, or the segment's
 * end is older than max_age, but none that reaches above `hold`. The end is the time of the latest frame or of the
 * next segment's creation, whichever is earlier; if that is after `now`, the end of the next segment. */
void journal_retain(struct journal *j, const struct journal_retention *keep, usec_t now);
/* The size of the files that journal_retain would remove without `hold`. */
uint64_t journal_held_bytes(const struct journal *j, const struct journal_retention *keep, usec_t now);

#endif
