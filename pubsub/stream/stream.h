/* stream: a named stream of lines in a journal of its own.
 *
 * The journal's payload is the text of the stream, each publish is one frame, and the journal's id is the stream's
 * id. A *cursor* is an id, an offset (the number of bytes before a line) and the opening of the byte before (journal/opening.h).
 *
 * 1. Every frame contains whole lines, so a line begins at each frame, even after a hole or a trim.
 * 2. A publish is stored completely or not at all. Its callback runs when the frame is committed or refused.
 * 3. The observers of a stream are its subscribers (subscriber.h). After a commit they are called after the callbacks
 *    of the publishes.
 * 4. Retention deletes whole segments, the earliest first, but no byte from `hold` on. It does not wait for
 *    subscribers: one whose next byte is deleted ends.
 *
 * 5. An erasure replaces lines by erased lines of the same length (base/erased_line.h). Offsets, and everything that
 *    refers to them, stay valid.
 *
 * For the loop thread only. Functions return the errors of the journal. */
#ifndef MILLRACE_PUBSUB_STREAM_H
#define MILLRACE_PUBSUB_STREAM_H

#include "base/error.h"
#include "journal/journal.h"
#include "journal/journal_erase.h"

#include <sys/queue.h>

struct stream;
struct block_cache;
struct line_index;

struct stream_limits {
    uint64_t
        retain_bytes;  /* retention deletes a segment once the later ones have so many bytes; 0: unlimited */
    usec_t retain_age; /* retention deletes older segments; 0: unlimited */
    uint64_t
        disk_limit; /* while the files exceed this size, publishes are refused, and retention by retain_bytes
                              may keep less; 0: unlimited */
};

/* Opens or creates the journal. The parent of its directory must exist. Blocks during the recovery. */
enum journal_result stream_open(struct journal_set *set, const char *name,
    const struct journal_config *config, struct stream **out, struct error *error);
/* Commits pending publishes and closes the stream. */
void stream_close(struct stream **s);

const char *stream_name(const struct stream *s);
struct journal *stream_journal(struct stream *s);
struct line_index *stream_line_index(struct stream *s);
struct block_cache *stream_block_cache(struct stream *s);

/* A new stream has no limits. */
void stream_set_limits(struct stream *s, const struct stream_limits *limits);
/* Deletes old segments below `hold` (UINT64_MAX: no cursor) as the limits require, and ends subscribers whose next
 * bytes are deleted. `now` is the trusted time (base/clock_watch.h). */
void stream_retain(struct stream *s, uint64_t hold, usec_t now);
/* Returns the size of the files that would be deleted if it were not for `hold`. */
uint64_t stream_held_back(const struct stream *s, uint64_t hold, usec_t now);
/* True if the stream exceeds its disk limit even after retention. */
bool stream_is_full(struct stream *s, uint64_t hold, usec_t now);
/* Records whether publishes are refused because space is short. Returns true if this has changed. */
bool stream_set_refusing(struct stream *s, bool refusing);
/* Records that the storage has failed. Returns true at the first call. */
bool stream_set_failed(struct stream *s);

/* The text of a publish: lines, each of which ends with one LF.
 *
 * 1. If the last LF is missing, it is added.
 * 2. A CR directly before an LF is removed, even if the LF is an added one. All other bytes are unchanged, including
 *    NUL, invalid UTF-8 and other CRs.
 * 3. The whole body is refused if a line is empty or has more than max_line bytes before its LF.
 * 4. The result is at most one LF longer than the body. */
enum lines_result {
    LINES_OK,
    LINES_EMPTY_BODY,
    LINES_EMPTY_LINE,
    LINES_TOO_LARGE,
};

struct lines {
    uint64_t n;             /* number of lines; after an error the number of the wrong line, from 1 */
    struct bytes pieces[2]; /* the text, in up to two pieces */
    size_t n_pieces;
    struct buf rewritten; /* the text without CRs; empty if the body is stored unchanged */
};

/* The pieces point into `body` or `out`, so both must be valid as long as the pieces are used. `out` must be freed
 * even after an error. */
enum lines_result lines_from_body(struct bytes body, size_t max_line, struct lines *out);
void lines_free(struct lines *l);

struct stream_marks {
    struct bytes producer; /* empty: none */
    uint64_t mark, next;   /* mark < next; equal without lines: only the tag changes */
    struct bytes tag;      /* stored with the mark */
    bool sets_mark;        /* as in journal_append */
};
/* A publish in progress. The caller embeds it in its own struct, which must be valid until `done` is called. */
struct stream_publish {
    void (*done)(struct stream_publish *p, const struct journal_commit *commit);
    struct stream *stream;
    uint64_t lines; /* 0 for a duplicate */
};

/* Appends the text of `lines`, which may be empty with a producer. JOURNAL_OK: `done` will be called exactly once;
 * else never. *mark (may be NULL) is the producer's committed mark. */
enum journal_result stream_publish(struct stream *s, const struct lines *lines,
    const struct stream_marks *marks, usec_t time, struct stream_publish *p, uint64_t *mark);

/* Lines to erase, each with its LF. */
struct stream_lines {
    struct journal_range *ranges; /* ascending, not overlapping */
    size_t n;
};
/* Reads lines "OFFSET LENGTH", ascending. Returns 0, or the number of the wrong line. The caller frees out->ranges in any
 * case. */
size_t stream_lines_read(struct bytes body, struct stream_lines *out);
/* The latest erasure since the daemon started. */
struct stream_erasure {
    enum { STREAM_ERASE_NONE, STREAM_ERASE_RUNS, STREAM_ERASE_DONE, STREAM_ERASE_FAILED } state;
    size_t lines;
    uint64_t examined, total; /* bytes */
    enum journal_result result;
    const char *error; /* after FAILED; valid until the next erasure */
};
/* Starts to erase the lines, in the background. Takes over `lines` if the result is OK. CONFLICT: a range is not within
 * the committed bytes. BUSY: an erasure is under way. The erasure fails with CONFLICT at a range that is not one whole
 * line of at least ERASED_LINE_MIN bytes; lines before it may be erased. */
enum journal_result stream_erase(struct stream *s, struct stream_lines *lines);
struct stream_erasure stream_erasure(const struct stream *s);

/* Where a subscription starts: "earliest", "latest", an offset, "@UNIXTIME" (whole seconds), or "-N": the last N lines,
 * N from 1 to STREAM_LAST_MAX. */
#define STREAM_LAST_MAX ((uint64_t)1000000)
struct stream_from {
    enum {
        STREAM_FROM_EARLIEST,
        STREAM_FROM_LATEST,
        STREAM_FROM_OFFSET,
        STREAM_FROM_TIME,
        STREAM_FROM_LAST
    } kind;
    uint64_t offset, lines;
    usec_t time;
};
/* Returns false if the text has none of these forms. */
bool stream_from_parse(struct bytes text, struct stream_from *out);

struct stream_numbers {
    uint64_t earliest, end, disk_bytes;
    uint64_t disk_limit; /* 0: unlimited */
    uint64_t lines;      /* committed since the daemon started */
    size_t subscribers;  /* not counting internal ones */
    usec_t last_time;    /* of the last publish */
    bool refusing;       /* as set with stream_set_refusing */
};
struct stream_numbers stream_numbers(const struct stream *s);

/* A subscriber's entry in the list of its stream. */
struct stream_observer {
    LIST_ENTRY(stream_observer) link;
    const struct stream_observer_calls *calls;
    bool is_internal; /* not counted in stream_numbers */
};
/* A call may end and free its own observer, but no other observer. */
struct stream_observer_calls {
    void (*committed)(struct stream_observer *o); /* the committed end has moved */
    void (*trimmed)(
        struct stream_observer *o, uint64_t earliest); /* retention has moved the earliest offset */
    uint64_t (*tick)(struct stream_observer *o); /* about once a second; returns the observer's next offset */
};
void stream_observe(struct stream *s, struct stream_observer *o);
void stream_unobserve(struct stream *s, struct stream_observer *o);

/* Calls the observers' ticks and drops cached bytes that no subscriber needs. Call this function about once a second
 * with the monotonic time. */
void stream_tidy(struct stream *s, usec_t now);

#endif
