/* stream: a named stream of lines in a journal of its own.
 *
 * The journal's payload is the text of the stream, each publish is one frame, and the journal's id is the stream's
 * id. A *cursor* consists of a stream's id, an offset (the number of bytes before a line) and the opening in which the
 * byte before the offset was stored. An opening is a run of pubsub (journal/opening.h).
 *
 * 1. Every frame contains whole lines, so a line begins at each frame, even after a hole or a trim.
 * 2. A publish is stored completely or not at all. The callback of a publish runs when the frame is committed or
 *    refused.
 * 3. The observers of a stream are its subscribers (subscriber.h). After a commit, the stream calls the observers
 *    after the callbacks of the publishes.
 * 4. Retention deletes whole segments, the earliest first, but no byte from `hold` on. Retention does not wait for
 *    subscribers: a subscriber whose next byte is deleted ends.
 *
 * 5. An erasure replaces lines by erased lines of the same length (base/erased_line.h). All offsets stay valid.
 *
 * Call all functions on the event loop's thread. Functions return the errors of the journal. */
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
    /* Retention deletes a segment once the later segments have at least this many bytes; 0: unlimited. */
    uint64_t retain_bytes;
    usec_t retain_age; /* retention deletes segments older than this age; 0: unlimited */
    /* While the files exceed this size, the stream refuses publishes, and retention may keep less than retain_bytes;
     * 0: unlimited. */
    uint64_t disk_limit;
};

/* Opens or creates the journal. The parent of the journal's directory must exist. Blocks during the recovery. */
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
/* Deletes old segments before `hold` (UINT64_MAX: no cursor) as the limits require, and ends subscribers whose next
 * bytes are deleted. `now` is the trusted time (base/clock_watch.h). */
void stream_retain(struct stream *s, uint64_t hold, usec_t now);
/* Returns the size of the files that retention would delete without `hold`. */
uint64_t stream_held_back(const struct stream *s, uint64_t hold, usec_t now);
/* True if the stream exceeds its disk limit even after retention. */
bool stream_is_full(struct stream *s, uint64_t hold, usec_t now);
/* Records whether publishes are refused because space is short. Returns true if `refusing` has changed. */
bool stream_set_refusing(struct stream *s, bool refusing);
/* Records that the storage has failed. Returns true at the first call. */
bool stream_set_failed(struct stream *s);

/* The text of a publish: lines, each of which ends with one LF.
 *
 * 1. A missing last LF is added.
 * 2. A CR directly before an LF is removed, also before an added LF. All other bytes are unchanged, including NUL,
 *    invalid UTF-8 and other CRs.
 * 3. The whole body is refused if a line is empty or has more than max_line bytes before its LF.
 * 4. The stored text is at most one LF longer than the body. */
enum lines_result {
    LINES_OK,
    LINES_EMPTY_BODY,
    LINES_EMPTY_LINE,
    LINES_TOO_LARGE,
};

struct lines {
    uint64_t n; /* number of lines; after an error, the number of the invalid line, counted from 1 */
    struct bytes pieces[2]; /* the text, in up to two pieces */
    size_t n_pieces;
    struct buf rewritten; /* the text without removed CRs; empty if no CR was removed */
};

/* The pieces point into `body` or `out`, so both must be valid as long as the pieces are used. `out` must be freed
 * even after an error. */
enum lines_result lines_from_body(struct bytes body, size_t max_line, struct lines *out);
void lines_free(struct lines *l);

struct stream_marks {
    struct bytes producer; /* empty: none */
    uint64_t mark, next;   /* mark < next; equal for a publish without lines that changes only the tag */
    struct bytes tag;      /* stored with the mark */
    bool sets_mark;        /* as in journal_append */
    struct bytes guard;    /* as in journal_append; empty: none */
    uint64_t guard_mark;
};
/* A publish in progress. The caller embeds a stream_publish in a struct that must be valid until `done` is called. */
struct stream_publish {
    void (*done)(struct stream_publish *p, const struct journal_commit *commit);
    struct stream *stream;
    uint64_t lines; /* 0 for a duplicate */
};

/* Appends the text of `lines`, which may be empty if `marks` has a producer. Calls p->done exactly once if the result
 * is JOURNAL_OK, and never after an error. Stores the producer's committed mark in *mark; `mark` may be NULL. */
enum journal_result stream_publish(struct stream *s, const struct lines *lines,
    const struct stream_marks *marks, usec_t time, struct stream_publish *p, uint64_t *mark);

/* Lines to erase, each with its LF. */
struct stream_lines {
    struct journal_range *ranges; /* ascending, not overlapping */
    size_t n;
};
/* Reads lines "OFFSET LENGTH" in ascending order. Returns 0, or the number of the invalid line. The caller frees
 * out->ranges in both cases. */
size_t stream_lines_read(struct bytes body, struct stream_lines *out);
/* The latest erasure since the daemon started. */
struct stream_erasure {
    enum { STREAM_ERASE_NONE, STREAM_ERASE_RUNS, STREAM_ERASE_DONE, STREAM_ERASE_FAILED } state;
    size_t lines;
    uint64_t examined, total; /* bytes */
    enum journal_result result;
    const char *error; /* text after STREAM_ERASE_FAILED; valid until the next erasure */
};
/* Starts to erase the lines in the background. Takes ownership of `lines` if the result is JOURNAL_OK. Returns
 * JOURNAL_CONFLICT if a range exceeds the committed bytes, and JOURNAL_BUSY if another erasure runs. The erasure
 * fails with JOURNAL_CONFLICT at a range that is not one whole line of at least ERASED_LINE_MIN bytes. A failed
 * erasure may have erased earlier lines. */
enum journal_result stream_erase(struct stream *s, struct stream_lines *lines);
struct stream_erasure stream_erasure(const struct stream *s);

/* The start of a subscription: "earliest", "latest", an offset, "@UNIXTIME" (whole seconds), or "-N": the last N
 * lines, N from 1 to STREAM_LAST_MAX. */
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
/* Returns false if the text is not a valid start of a subscription. */
bool stream_from_parse(struct bytes text, struct stream_from *out);

struct stream_numbers {
    uint64_t earliest, end, disk_bytes;
    uint64_t disk_limit; /* 0: unlimited */
    uint64_t lines;      /* lines committed since the daemon started */
    size_t subscribers;  /* number of subscribers without internal subscribers */
    usec_t last_time;    /* time of the last publish */
    bool refusing;       /* the value of the last stream_set_refusing */
};
struct stream_numbers stream_numbers(const struct stream *s);

/* A subscriber's entry in the list of its stream. */
struct stream_observer {
    LIST_ENTRY(stream_observer) link;
    const struct stream_observer_calls *calls;
    bool is_internal; /* true: stream_numbers does not count the subscriber */
};
/* A callback may end and free its own observer, but no other observer. */
struct stream_observer_calls {
    void (*committed)(struct stream_observer *o); /* the committed end has moved */
    /* retention has moved the earliest offset */
    void (*trimmed)(struct stream_observer *o, uint64_t earliest);
    /* called about once per second; returns the observer's next offset */
    uint64_t (*tick)(struct stream_observer *o);
};
void stream_observe(struct stream *s, struct stream_observer *o);
void stream_unobserve(struct stream *s, struct stream_observer *o);

/* Calls the observers' ticks and drops cached bytes that no subscriber needs. Call stream_tidy about once per second
 * with the monotonic time. */
void stream_tidy(struct stream *s, usec_t now);

#endif
