/* journal: stores bytes durably. A journal is an append-only sequence of payload bytes in a directory of segment
 * files. Each segment file contains a sequence of checksummed frames (docs/formats/journal.md).
 *
 * The *offset* of a payload byte is the number of payload bytes before it. A byte never changes its offset, and no
 * other byte ever gets the same offset. A *frame* contains the payload of one append. A frame is *committed* when it
 * is synced, so that it survives a power cut. Under JOURNAL_SYNC_NEVER a frame is committed when it is written, so
 * that it survives only kill -9. A *producer* is a name for which the journal stores a number, the *mark*. Each
 * append of the producer increases the mark, so the journal recognizes a retried append.
 *
 * 1. The callback of an append gets JOURNAL_OK only after its frame is committed. Frames are committed in the order
 *    of the appends, and each is committed completely or not at all.
 * 2. Readers get only committed bytes. journal_committed_end and journal_mark reflect only committed frames.
 * 3. A frame contains the new mark of its producer, so after a crash the marks always fit the frames that survived.
 * 4. An append states two marks: the producer's mark before the append (`mark`) and after it (`next`). If the stored
 *    mark equals `mark`, the journal stores the append. If the stored mark is `next` or higher, the append is a
 *    duplicate: the journal stores nothing, and calls back when the original is committed. Otherwise the append gets
 *    JOURNAL_CONFLICT. Accepted appends that are not committed yet count as stored. If such an append is refused
 *    later, all later appends are refused too. Only an append with `sets_mark` can lower a mark.
 * 5. If the journal ends in a torn frame, journal_open cuts the file back to the last valid frame and reports the cut
 *    (journal_cut). Each frame and the newest marker state which offsets were synced before. If bytes are damaged
 *    although an intact frame or the marker states that they were synced, journal_open returns JOURNAL_DAMAGED and
 *    names the file and the byte. After a clean stop, this protects every commit. After a crash, it protects every
 *    commit except the last ones. If the newest segments are missing, journal_open also returns JOURNAL_DAMAGED.
 * 6. Under JOURNAL_SYNC_NEVER a power cut can destroy bytes that were already read. After a power cut, new offsets
 *    therefore begin at the next multiple of JOURNAL_HOLE, so that no offset ever gets other bytes. The skipped
 *    offsets are called a hole.
 * 7. If a write fails with ENOSPC or EDQUOT, the journal refuses its appends and removes them from the file and the
 *    marks. Later appends may succeed. After any other failed write, or a failed sync, the journal is latched: all
 *    later appends get JOURNAL_LATCHED, but reads continue.
 * 8. The file of a segment is removed or reused only when no reader uses the segment. A file that a caller has
 *    received for sendfile (journal_file) is never reused for another segment. No file is truncated or punched while
 *    a reader uses it.
 * 9. If a journal has a newer format version, journal_open changes nothing and returns JOURNAL_NEWER. If a repair was
 *    interrupted, journal_open returns JOURNAL_DAMAGED.
 * 10. A directory can be open only once, over all processes. A second attempt gets JOURNAL_IN_USE.
 * 11. If a read or seek fails for lack of descriptors or memory, the journal retries. Such a shortage does not count
 *     as a storage failure. All readers of a set share eight descriptors.
 *
 * Threads: all functions must be called from one thread, the owner (the daemon's loop). journal_set_poll runs all
 * callbacks, also in this thread. The set has threads of its own, which call no callback except `notify`
 * (docs/internals/journal.md).
 * */
#ifndef MILLRACE_JOURNAL_H
#define MILLRACE_JOURNAL_H

#include "base/bytes.h"
#include "base/clock.h"

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
    JOURNAL_NEWER,     /* a newer format version */
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
/* Commits pending appends, runs the remaining callbacks, stops the threads and closes the journals. After such a
 * clean close the next journal_open makes no hole. */
void journal_set_free(struct journal_set **set);
/* Starts to commit all appends made so far, and runs the callbacks of finished commits and reads. */
void journal_set_poll(struct journal_set *set);
/* Polls until every append so far is committed or refused. For stopping and tests. */
void journal_set_flush(struct journal_set *set);
uint64_t journal_set_syncs(struct journal_set *set); /* syncs of commits so far */
/* The monotonic time at which a read was last postponed because descriptors or memory ran short; 0: never. */
usec_t journal_set_last_shortage(struct journal_set *set);

struct journal_config {
    const char *dir;        /* created if missing; its parent must exist */
    uint64_t segment_bytes; /* a segment ends once it exceeds this size; 0: 64 MiB */
    size_t max_producers;   /* 0: 4096 */
    /* If above 0: offsets below this value may have been used and lost, so new offsets begin above it, after a
     * hole. */
    uint64_t lost_below;
    bool shares_files; /* callers may hold files of earlier sessions, so never reuse a file */
    /* For the report of a cut: counts the items in a payload, which may be damaged. `counted` is the name of these
     * items in the plural. NULL: not counted. */
    uint64_t (*count)(struct bytes payload);
    const char *counted;
};

/* Opens or creates a journal. The call blocks while it verifies the newest segment and the headers of all segments,
 * and syncs everything that is not known to be synced. For any result except OK, `error` gets a message. */
enum journal_result journal_open(struct journal_set *set, const struct journal_config *config,
    struct journal **out, char *error, size_t error_size);
/* Commits pending appends and closes the journal. Close its readers and cancel its seeks before. Do not call this
 * function from a callback of the same set. */
void journal_close(struct journal **j);

const char *journal_id(const struct journal *j); /* 32 hex digits; random, created with the journal */
uint64_t journal_earliest(const struct journal *j);
/* The end of the earliest segment at present. If journal_trim gets this offset or a higher one, it removes that
 * segment, unless it is the newest. */
uint64_t journal_earliest_end(const struct journal *j);
uint64_t journal_committed_end(const struct journal *j);
/* Bytes on disk of all segments and of the file prepared for the next segment. */
uint64_t journal_disk_bytes(const struct journal *j);
/* The part of journal_disk_bytes in trimmed segments that readers still use. */
uint64_t journal_trimmed_bytes(const struct journal *j);
/* The number of payload bytes from `from` up to `to`, not counting holes and trimmed bytes. */
uint64_t journal_bytes_between(const struct journal *j, uint64_t from, uint64_t to);
usec_t journal_last_time(const struct journal *j);   /* wall-clock time of the last frame; 0: empty */
uint64_t journal_cut_bytes(const struct journal *j); /* bytes of a torn tail that journal_open cut off */
/* Describes what journal_open has cut off: file, byte, offset, number of bytes and, if known, the count. NULL if
 * nothing was cut off. Either a crash has torn these bytes, or they were damaged after the last commits were
 * acknowledged. There is no way to tell which. */
const char *journal_cut(const struct journal *j);
const char *journal_failure(
    const struct journal *j); /* why appends are refused or reads stop; NULL: no failure */

struct journal_append {
    struct bytes producer;      /* a name; if empty, mark and next are ignored */
    uint64_t mark, next;        /* mark < next, asserted */
    const struct bytes *pieces; /* the payload; copied before journal_append returns */
    size_t n_pieces;            /* may be 0 with a producer: only the mark changes */
    /* Bytes of disk space to reserve after this append. Later appends with reserve 0 can use these bytes when the
     * disk is full. If the disk has no room for the reserve, the append is refused. */
    size_t reserve;
    /* Stored with the mark until the producer's next append. Names and tags are at most MARK_LABEL_MAX - 1 bytes together. */
    struct bytes tag;
    /* Sets the mark to `next`, whatever it is; 0 removes the producer. JOURNAL_MARK_BUSY while appends of the producer are under way, and for its other
     * appends meanwhile. */
    bool sets_mark;
};
struct journal_commit {
    enum journal_result result; /* OK, NO_SPACE, LATCHED or CLOSED */
    bool duplicate;
    uint64_t start, end;  /* the payload is at offsets start to end - 1; both 0 for a duplicate */
    struct bytes payload; /* valid until the callback returns; empty if refused or a duplicate */
};
typedef void journal_append_fn(const struct journal_commit *commit, void *arg);

/* If the result is JOURNAL_OK, the append is accepted, and `done` will be called exactly once. With any other result
 * the append is refused, and `done` will not be called. *mark is set to the producer's committed mark; `mark` may be
 * NULL. `time` is the wall-clock time, which may be earlier than that of the previous frame. */
enum journal_result journal_append(struct journal *j, const struct journal_append *a, usec_t time,
    journal_append_fn *done, void *arg, uint64_t *mark);

/* Returns the committed mark of the producer. If the producer is new, returns 0 and sets *known to false. `known` may
 * be NULL. */
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

/* Sets the journal's observer. A journal has at most one. After each commit that moved the committed end, the
 * observer runs after the callbacks of the appends. */
void journal_on_commit(struct journal *j, void (*fn)(struct journal *j, void *arg), void *arg);

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
    bool frame_starts;          /* data begins at the beginning of a frame */
    usec_t time;                /* of the frame in which data begins */
    struct journal_edges edges;
    /* journal_reader_spans may return verified spans instead of data. They are valid during the callback. */
    const struct journal_span *spans;
    size_t n_spans;
    struct journal_file *file; /* valid during the callback; see journal_file_hold */
    uint64_t stamp;            /* the file's change time, read before the spans were verified */
};
typedef void journal_read_fn(const struct journal_window *w, void *arg);

/* Returns OK, BEYOND, or GONE with *edges filled. `offset` may be the committed end. If `offset` is the first offset
 * of a hole, the next read gets GONE. A segment is not removed as long as a reader is inside. */
enum journal_result journal_reader_open(
    struct journal *j, uint64_t offset, struct journal_reader **out, struct journal_edges *edges);
/* Reads from 1 to max_bytes bytes and advances the reader. Only one read of a reader may be in progress. If the
 * reader is closed during a read, `done` is not called. */
void journal_reader_read(struct journal_reader *r, size_t max_bytes, journal_read_fn *done, void *arg);
/* As journal_reader_read, but large frames are verified in the file and not copied. If the next frames have
 * JOURNAL_SPAN_MIN bytes or more on average, the window contains one span for each frame, until the spans have
 * JOURNAL_SPANS_MAX bytes or more in total. Smaller frames are copied into a buffer, for which the reader takes over
 * `memory`. */
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
 * The stamp is the file's change time. If the stamp is still the same, nobody has written to the file since the bytes
 * were verified. But a faulty disk may return other bytes on a second read without a change of the stamp. So verify
 * the bytes again from time to time. */
int journal_file_fd(const struct journal_file *f);
struct journal_file *journal_file_hold(struct journal_file *f);
void journal_file_release(struct journal_file *f);
bool journal_file_is_unchanged(const struct journal_file *f, uint64_t stamp);

/* Calls fn in the calling thread for every committed frame with a payload, in order, beginning at `offset`. The call
 * blocks, so it is meant for recovery. If fn returns false, the scan stops. */
typedef bool journal_scan_fn(uint64_t offset, usec_t time, struct bytes payload, void *arg);
enum journal_result journal_scan(struct journal *j, uint64_t offset, journal_scan_fn *fn, void *arg);

/* Finds the first frame that has a payload and is not older than `time`. The search runs in the reader thread. If the
 * time of a frame is after `now`, the clock was ahead when the frame was written. Such a frame counts as not newer
 * than the frame after it, so that it does not hide later frames.
 *
 * `done` is called once, unless the seek is cancelled. Its result is DAMAGED, IO, or OK with the frame's offset. If
 * no frame is new enough, the offset is the committed end at the time of the call. If the frame was trimmed
 * meanwhile, the offset is the earliest offset. The journal frees the seek before it calls `done`. */
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
/* Re-reads all segments but the newest from the disk, to find damage before the data is needed. Call this function
 * several times a second with the monotonic clock. It reads at most bytes_a_second on average and begins a pass once
 * an hour. It works in small steps, so a read or a trim waits for one step at most. Damage is logged and counted.
 * Appends and reads of intact bytes continue. */
void journal_set_scrub(struct journal_set *set, uint64_t bytes_a_second, usec_t now);
struct journal_scrubbed journal_set_scrubbed(const struct journal_set *set);

/* Removes the segments that are completely below `offset`, but never the newest. The marks of producers are kept. */
void journal_trim(struct journal *j, uint64_t offset);

struct journal_retention {
    uint64_t max_bytes; /* of journal_disk_bytes; 0: unlimited */
    usec_t max_age;     /* 0: unlimited */
    uint64_t hold;      /* never remove bytes from here on (the lowest cursor); UINT64_MAX: no limit */
};
/* Removes the earliest segment as long as the journal exceeds max_bytes or the end of the segment is older than
 * max_age. Never removes a segment that reaches above `hold`. The end of a segment is the time of its latest frame,
 * or the time when the next segment was created, whichever is earlier. If this time is after `now`, the clock was
 * ahead, and the end of the next segment counts instead. */
void journal_retain(struct journal *j, const struct journal_retention *keep, usec_t now);
/* The size of the files that journal_retain would remove without `hold`. */
uint64_t journal_held_bytes(const struct journal *j, const struct journal_retention *keep, usec_t now);

#endif
