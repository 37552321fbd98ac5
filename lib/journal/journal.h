/* journal: stores bytes durably. A journal is an append-only sequence of payload bytes in a directory of segment files.
 * Each segment file contains a sequence of checksummed frames (docs/formats/journal.md).
 *
 * The *offset* of a payload byte is the number of payload bytes before this byte, skipped offsets included, and never
 * changes. A *frame* contains the payload of one append. A frame is *committed* when it is synced, or under
 * JOURNAL_SYNC_NEVER when it is written. A *producer* is the name of a source of appends. The journal stores a number
 * per producer, the *mark*. Each append of the producer increases the mark, so that a retried append is recognized.
 *
 * 1. The callback of an append gets JOURNAL_OK only after the frame of the append is committed. Frames are committed in
 *    the order of the appends, and each frame as a whole.
 * 2. Readers get only committed bytes. journal_committed_end and journal_mark reflect only committed frames.
 * 3. A frame contains the new mark of its producer, so marks and frames are consistent after a crash.
 * 4. An append contains the producer's mark before the append (`mark`) and after the append (`next`). If the stored
 *    mark equals `mark`, the journal stores the append. If the stored mark is `next` or higher, the append is a
 *    duplicate. The callback of a duplicate runs once the first append with this `next` is committed. Any other stored
 *    mark results in JOURNAL_CONFLICT. The marks of accepted appends count as stored. If the journal refuses an
 *    accepted append later, it also refuses all appends after this append. Only `sets_mark` can lower a mark.
 * 5. journal_open cuts off a torn frame at the end of the journal and reports the cut (journal_cut). Each frame and the
 *    newest marker (journal_dir.h) contain the offset up to which earlier bytes were synced. If synced bytes are
 *    damaged, or the newest segments are missing, the result is JOURNAL_DAMAGED, and the error names file and byte.
 *    Only damage to the last commits before a crash looks like a torn frame.
 * 6. Under JOURNAL_SYNC_NEVER, a power cut can destroy bytes that readers have already received. After such a power
 *    cut, new offsets begin at the next multiple of JOURNAL_HOLE, so that no offset is used for two different bytes.
 *    The skipped offsets are a *hole*.
 * 7. After ENOSPC or EDQUOT the journal refuses and undoes the appends of the failed commit. Later appends may succeed.
 *    After any other failed write or sync the journal is *latched*: appends get JOURNAL_LATCHED, reads continue.
 * 8. The file of a segment is removed or reused only when no reader uses the file. A file that a caller has received
 *    (journal_file) is never reused. No frames are cut off from a file that a reader uses.
 * 9. If a file has an unknown format version, journal_open returns JOURNAL_VERSION and changes nothing. After an
 *    interrupted repair, journal_open returns JOURNAL_DAMAGED.
 * 10. Only one process at a time can have a directory open, and only once (JOURNAL_IN_USE).
 * 11. A read or seek that runs out of descriptors or memory is retried. The readers of a set share eight descriptors.
 *
 * Threads: one thread, the owner (the daemon's loop), makes all calls. All callbacks run in the owner's
 * journal_set_poll. The set's own threads call only `notify` (docs/internals/journal.md). */
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
    JOURNAL_BUSY,      /* the pending bytes would exceed max_pending: try again later */
    JOURNAL_MARK_BUSY, /* sets_mark and another append of the producer exclude each other: try again later */
    JOURNAL_GUARDED,   /* the guard has another mark */
    JOURNAL_NO_SPACE,  /* the disk is full, and the append is undone: try again later */
    JOURNAL_LATCHED,   /* storage failed; see journal_failure */
    JOURNAL_GONE,      /* the offset is in a hole or before the earliest offset, see struct journal_edges */
    JOURNAL_BEYOND,    /* the offset is past the committed end */
    JOURNAL_END,       /* the reader is at the committed end */
    JOURNAL_DAMAGED, /* bytes are damaged or missing: the error text or journal_failure names file and byte */
    JOURNAL_VERSION, /* an unknown format version */
    JOURNAL_IN_USE,  /* another process has the directory open */
    JOURNAL_IO,      /* a system call failed: see the error text */
    JOURNAL_NO_DESCRIPTORS, /* journal_open ran out of descriptors: try again later */
    JOURNAL_CLOSED,         /* the set is being freed */
};
const char *journal_strerror(enum journal_result r);

/* A set contains all journals of a daemon, which share threads and commits. */
struct journal_set_config {
    /* Minimum milliseconds between syncs; 0: sync each commit; JOURNAL_SYNC_NEVER: never sync. */
    int64_t sync_ms;
    size_t max_pending;        /* limit on the bytes of uncommitted appends; 0: 64 MiB */
    void (*notify)(void *arg); /* asks the owner for a journal_set_poll; called from any thread */
    void *notify_arg;
};

struct journal_set *journal_set_new(const struct journal_set_config *config);
/* Commits pending appends, runs the remaining callbacks, stops the threads and closes the journals. */
void journal_set_free(struct journal_set **set);
/* Starts to commit all appends made so far, and runs the callbacks of finished commits and reads. */
void journal_set_poll(struct journal_set *set);
/* Polls until every append so far is committed or refused. */
void journal_set_flush(struct journal_set *set);
uint64_t journal_set_syncs(struct journal_set *set); /* number of syncs by commits */
/* The monotonic time at which a read was last postponed because descriptors or memory ran short; 0: never. */
usec_t journal_set_last_shortage(struct journal_set *set);

struct journal_config {
    const char *dir;        /* directory of the journal; created if missing, in an existing parent */
    uint64_t segment_bytes; /* size at which a segment ends; 0: 64 MiB */
    size_t max_producers;   /* 0: 4096 */
    /* If above 0, offsets below lost_below may have been used for bytes that are lost. New offsets then begin above
     * lost_below, after a hole. */
    uint64_t lost_below;
    bool shares_files; /* callers may use files that they got from an earlier session: never reuse a file */
    /* The first append of a session (from journal_open to journal_close) begins a segment, so that each byte's session
     * is known. On a full disk this append gets JOURNAL_NO_SPACE, even if an earlier session has reserved space. */
    bool openings_begin_segments;
    /* Counts the items in a payload that a start cuts off the journal's end. The payload may be damaged. NULL: items
     * are not counted. `counted` is the plural name of the items. */
    uint64_t (*count)(struct bytes payload);
    const char *counted;
};

/* Opens or creates a journal. Blocks while it verifies the newest segment and all headers, and syncs segments that are
 * possibly unsynced. For any result except JOURNAL_OK, journal_open writes a message into `error`. */
enum journal_result journal_open(struct journal_set *set, const struct journal_config *config,
    struct journal **out, char *error, size_t error_size);
/* Commits pending appends and closes the journal. The caller must first close the journal's readers and cancel its
 * seeks. Callbacks of the set must not call journal_close. */
void journal_close(struct journal **j);

const char *journal_id(const struct journal *j); /* random id of the journal: 32 hex digits */

/* The opening (the id of a session, see opening.h) of the current session, even before its first append. */
const char *journal_opening(const struct journal *j);
/* The functions below require openings_begin_segments. Returned texts are valid until the next append, poll or trim.
 *
 * Returns the opening in which the byte before `offset` was appended, or "" if `offset` is 0 or before the earliest
 * offset. A lost byte belongs to the opening before the hole. */
const char *journal_opening_before(const struct journal *j, uint64_t offset);
/* Returns the opening in which the byte at `offset` was or will be appended. */
const char *journal_opening_at(const struct journal *j, uint64_t offset);
/* Returns the end of the bytes of the opening that journal_opening_at returns; UINT64_MAX: the current opening. */
uint64_t journal_opening_end(const struct journal *j, uint64_t offset);
/* Checks whether a cursor is from the past of this journal. The cursor has an offset and the opening of the byte before
 * the offset. The result is true in three cases:
 * - The opening of the byte before `offset` is `opening`.
 * - The byte before `offset` is before the earliest offset, so that the journal does not know its opening.
 * - The bytes before and at `offset` are lost, so that no copy of the journal has other bytes at these offsets.
 *
 * If the result is false, this journal is a copy of the cursor's journal, and *differs_from is the first offset whose
 * byte differs. *is_certain is true if this journal knows `opening`. If *is_certain is false, *differs_from is an
 * estimate from the clocks (opening.h). */
bool journal_is_past(
    const struct journal *j, uint64_t offset, struct bytes opening, uint64_t *differs_from, bool *is_certain);
struct journal_opening {
    uint64_t first; /* first offset of the opening, or the earliest offset */
    usec_t began;   /* time of the opening's first append; the wall clock may have been wrong */
    const char *opening;
};
/* Lists the openings in which bytes were appended, oldest first. Returns their number; the caller frees *out. */
size_t journal_openings(const struct journal *j, struct journal_opening **out);

uint64_t journal_earliest(const struct journal *j);
/* The end of the earliest segment. journal_trim with this offset removes the segment, unless it is also the newest. */
uint64_t journal_earliest_end(const struct journal *j);
uint64_t journal_committed_end(const struct journal *j);
uint64_t journal_accepted_end(const struct journal *j); /* end of all accepted appends, committed or not */
/* Size of the files of all segments and of the file prepared for the next segment (bytes). */
uint64_t journal_disk_bytes(const struct journal *j);
/* The part of journal_disk_bytes that belongs to trimmed segments, which readers still use. */
uint64_t journal_trimmed_bytes(const struct journal *j);
/* The number of payload bytes from `from` up to `to`, without holes and trimmed bytes. */
uint64_t journal_bytes_between(const struct journal *j, uint64_t from, uint64_t to);
/* Wall-clock time of the last payload, or of a later frame; 0: the journal is empty. */
usec_t journal_last_time(const struct journal *j);
/* Wall-clock time of the last append, with or without a payload; 0: no append. */
usec_t journal_clock(const struct journal *j);
uint64_t journal_cut_bytes(const struct journal *j); /* bytes of a torn tail that journal_open cut off */
/* Describes the torn or damaged tail that journal_open has cut off, with file, byte, offset and size; NULL: no cut. */
const char *journal_cut(const struct journal *j);
bool journal_is_latched(const struct journal *j); /* appends are refused */
/* The reason why appends are refused or reads fail; NULL: no failure. */
const char *journal_failure(const struct journal *j);

struct journal_append {
    struct bytes producer; /* name of the producer; if empty, mark and next are ignored */
    uint64_t mark, next; /* mark < next; mark == next is allowed without a payload, to change only the tag */
    const struct bytes *pieces; /* the payload; copied before journal_append returns */
    size_t n_pieces;            /* 0 is allowed with a producer, to change only the mark */
    /* Bytes of disk space to reserve after this append. On a full disk, later appends with `reserve` 0 use this space.
     * Without room for these bytes the append is refused. */
    size_t reserve;
    /* A text that is stored with the mark until the next append. Limit of name and tag: MARK_LABEL_MAX - 1 bytes. */
    struct bytes tag;
    /* Ends the newest segment if the disk has room for another segment. Allows an empty payload without a producer. */
    bool begins_segment;
    /* Sets the mark to `next` without a check of `mark`; 0 removes the producer. An append with sets_mark gets
     * JOURNAL_MARK_BUSY while another append of the producer is pending. While an append with sets_mark is pending,
     * other appends of the producer get JOURNAL_MARK_BUSY. */
    bool sets_mark;
    /* A producer whose mark must be `guard_mark`, or the append gets JOURNAL_GUARDED, also a duplicate. Accepted
     * appends count. So no append with the earlier mark of a guard follows a change of this mark. Empty: no guard. */
    struct bytes guard;
    uint64_t guard_mark; /* 0: the guard is not a producer */
};
struct journal_commit {
    enum journal_result result; /* OK, NO_SPACE, LATCHED or CLOSED */
    bool duplicate;
    uint64_t start, end;  /* offsets of the payload: start to end - 1; both 0 for a duplicate */
    struct bytes payload; /* valid until the callback returns; empty for a refused append or a duplicate */
};
typedef void journal_append_fn(const struct journal_commit *commit, void *arg);

/* JOURNAL_OK: the append is accepted, and `done` will be called exactly once. Any other result: the append is refused,
 * and `done` is not called. *mark is the producer's committed mark; `mark` may be NULL. `time` is the wall-clock time,
 * which may be earlier than the time of the previous append. */
enum journal_result journal_append(struct journal *j, const struct journal_append *a, usec_t time,
    journal_append_fn *done, void *arg, uint64_t *mark);

/* Returns the producer's committed mark, or 0 with *known false for an unknown producer; `known` may be NULL. */
uint64_t journal_mark(const struct journal *j, struct bytes producer, bool *known);

/* The tag that the producer's last committed append stored; valid until the next journal_set_poll. */
struct bytes journal_tag(const struct journal *j, struct bytes producer);
struct journal_producer {
    struct bytes name;
    uint64_t mark;
    struct bytes tag;
};
/* Calls fn for each producer with a committed mark, in any order. */
typedef void journal_producer_fn(const struct journal_producer *producer, void *arg);
void journal_producers(const struct journal *j, journal_producer_fn *fn, void *arg);

/* Sets the only observer of the journal; fn NULL: no observer. journal_set_poll calls the observer after the callbacks
 * of each commit or refusal. journal_set_poll also calls the observer after each job of the reader thread, such as a
 * read or a step of an erasure. `moved` is true if the committed end has moved. */
typedef void journal_observer_fn(struct journal *j, bool moved, void *arg);
void journal_observe(struct journal *j, journal_observer_fn *fn, void *arg);

struct journal_edges {
    uint64_t before; /* the last valid offset before the gap */
    uint64_t after;  /* the first valid offset after the gap */
};
/* The payload of one frame, as a range of bytes in the segment's file, for sendfile. */
struct journal_span {
    uint64_t offset;   /* offset of its first byte */
    uint64_t position; /* position in the file */
    size_t len;
    uint64_t count; /* result of journal_span_request.count */
};
struct journal_file;
struct journal_window {
    enum journal_result result; /* OK, END, GONE (edges filled), DAMAGED, IO, CLOSED */
    uint64_t offset;            /* of data.ptr[0] */
    struct bytes data;          /* verified payload, valid during the callback */
    struct buf *memory;         /* the memory of `data`; the callback may take over this buffer */
    usec_t time;                /* time of the frame in which `data` begins */
    struct journal_edges edges;
    /* journal_reader_spans may return verified spans instead of `data`. The spans are valid during the callback. */
    const struct journal_span *spans;
    size_t n_spans;
    struct journal_file *file; /* file of the spans, valid during the callback; see journal_file_hold */
    uint64_t stamp;            /* the file's change time, read before the spans were verified */
};
typedef void journal_read_fn(const struct journal_window *w, void *arg);

/* Opens a reader at `offset`, which may be the committed end. Returns JOURNAL_OK, JOURNAL_BEYOND, or JOURNAL_GONE with
 * *edges filled. If `offset` is the first offset of a hole, the next read gets JOURNAL_GONE. The segment that contains
 * the reader's offset is not removed while the reader is open. */
enum journal_result journal_reader_open(
    struct journal *j, uint64_t offset, struct journal_reader **out, struct journal_edges *edges);
/* Reads 1 to max_bytes bytes and advances the reader. A reader runs one read at a time; closing cancels the read. */
void journal_reader_read(struct journal_reader *r, size_t max_bytes, journal_read_fn *done, void *arg);
/* Reads like journal_reader_read, but returns spans if the next frames have JOURNAL_SPAN_MIN bytes or more on average.
 * The reader thread verifies these frames in the file, and the window has one span per frame. The spans of a window
 * have at most about JOURNAL_SPANS_MAX bytes. Smaller frames are copied into `memory`, which the reader takes over. */
#define JOURNAL_SPAN_MIN ((size_t)16 << 10)
#define JOURNAL_SPANS_MAX ((size_t)1 << 20)
struct journal_span_request {
    size_t max_bytes;                        /* limit on the bytes of a copy */
    uint64_t (*count)(struct bytes payload); /* called in the reader thread for each span; may be NULL */
};
void journal_reader_spans(struct journal_reader *r, const struct journal_span_request *how,
    struct buf *memory, journal_read_fn *done, void *arg);
uint64_t journal_reader_offset(const struct journal_reader *r);
void journal_reader_close(struct journal_reader **r);

/* The file of a segment, opened for sendfile. Only the owner's thread may call the journal_file functions. The file
 * stays usable after the segment or the journal is freed.
 *
 * The stamp is the file's change time. If the stamp is unchanged, no program has written to the file since its bytes
 * were verified. A faulty disk may still return other bytes, so callers verify the bytes regularly. */
int journal_file_fd(const struct journal_file *f);
struct journal_file *journal_file_hold(struct journal_file *f);
void journal_file_release(struct journal_file *f);
bool journal_file_is_unchanged(const struct journal_file *f, uint64_t stamp);

/* Calls fn for every committed frame with a payload, in order, from `offset` on, until fn returns false. journal_scan
 * blocks, so only recovery uses it. */
struct journal_scanned {
    uint64_t offset;
    usec_t time;
    const char *opening; /* opening in which the frame was appended, even without openings_begin_segments */
    struct bytes payload;
};
typedef bool journal_scan_fn(const struct journal_scanned *frame, void *arg);
enum journal_result journal_scan(struct journal *j, uint64_t offset, journal_scan_fn *fn, void *arg);

/* Lets the reader thread find the first frame that has a payload and is not older than `time`. A frame with a time
 * after `now` was written while the clock was ahead. Such a frame counts as not newer than the frame after it.
 *
 * Unless the seek is cancelled, `done` is called once, with DAMAGED, IO, or OK and the frame's offset. If no frame is
 * new enough, the offset is the committed end at the call to journal_seek_time. If the frame was trimmed during the
 * seek, the offset is the earliest offset. The seek is freed before `done` is called. */
struct journal_seek;
typedef void journal_seek_fn(enum journal_result r, uint64_t offset, void *arg);
struct journal_seek *journal_seek_time(
    struct journal *j, usec_t time, usec_t now, journal_seek_fn *done, void *arg);
void journal_seek_cancel(struct journal_seek **seek);

struct journal_scrubbed {
    uint64_t bytes;     /* read */
    uint64_t segments;  /* verified to the end */
    uint64_t passes;    /* complete passes over all segments of the set */
    uint64_t damaged;   /* damaged segments, each counted once */
    const char *damage; /* file and byte of the first damage, valid as long as the set; NULL: none */
};
/* Re-reads all segments except the newest of each journal from the disk, to find damage early. The scrub reads at most
 * bytes_a_second on average and begins at most one pass per hour. Other jobs run between the scrub's steps. Call
 * journal_set_scrub several times per second with the monotonic time. Damage is logged and counted. */
void journal_set_scrub(struct journal_set *set, uint64_t bytes_a_second, usec_t now);
struct journal_scrubbed journal_set_scrubbed(const struct journal_set *set);

/* Removes the segments that are completely before `offset`, except the newest segment. Keeps the marks of producers. */
void journal_trim(struct journal *j, uint64_t offset);

struct journal_retention {
    uint64_t min_bytes; /* payload bytes that must remain after a removal; 0: unlimited */
    uint64_t max_files; /* limit on journal_disk_bytes; 0: unlimited */
    usec_t max_age;     /* 0: unlimited */
    uint64_t hold;      /* lowest offset that a cursor still needs; UINT64_MAX: no limit */
};
/* Repeatedly removes the earliest segment while one of these conditions is true:
 * - The later segments contain min_bytes.
 * - The files exceed max_files.
 * - The earliest segment ended before `now` - max_age.
 *
 * journal_retain keeps segments that reach above `hold`. A segment ended at the time of its latest frame, or at the
 * next segment's creation if that was earlier. If this time is after `now`, the segment ended with the next segment.
 *
 * Returns the size of the files that remain: at most max_files, unless `hold` or the newest segment needs more. A
 * removed segment may become the file for the next segment at any time; the next call counts this file. */
uint64_t journal_retain(struct journal *j, const struct journal_retention *keep, usec_t now);
/* The size of the files that journal_retain keeps only because of `hold`. */
uint64_t journal_held_bytes(const struct journal *j, const struct journal_retention *keep, usec_t now);

#endif
