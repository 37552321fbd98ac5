/* stream: one named stream of lines, kept in a journal of its own.
 *
 * The stream's bytes are the journal's payload, a publish is one frame, the stream's id is the journal's. A
 * *cursor* is (id, offset): offset counts the stream's bytes, and a cursor stands before a line's first byte.
 *
 * Invariants
 * 1. Every frame holds whole lines (lines.h), so the beginning of a frame, and of every part of the stream
 *    after a hole or a trim, is the beginning of a line.
 * 2. A publish is stored wholly or not at all, and its callback comes when it is committed.
 * 3. Subscribers (subscriber.h) are woken after each commit, after the publishers' callbacks.
 * 4. Retention takes whole segments from the earliest on, never what `hold` names, and not for the sake of a
 *    subscriber: one that it passes is ended (subscriber_passed), so that nobody's slowness fills the disk.
 *
 * The loop thread only. The journal's errors are passed through unchanged.
 */
#ifndef MILLRACE_PUBSUB_STREAM_H
#define MILLRACE_PUBSUB_STREAM_H

#include "journal/journal.h"
#include "pubsub/stream/lines.h"

struct stream;
struct block_cache;
struct line_index;

struct stream_limits {
    uint64_t retain_bytes; /* of files; more is let go from the earliest on. 0: no limit */
    usec_t retain_age;     /* likewise what is older. 0: no limit */
    uint64_t disk_limit;   /* of files; with more nothing is published. 0: no limit but the disk's */
};

/* Opens or makes DIR (its parent must be there). Blocks for the journal's recovery. */
enum journal_result stream_open(struct journal_set *set, const char *name,
    const struct journal_config *config, struct stream **out, char *error, size_t error_size);
/* Every subscriber must have been freed. What is pending is committed first. */
void stream_close(struct stream **s);

const char *stream_name(const struct stream *s);
struct journal *stream_journal(struct stream *s);
struct line_index *stream_line_index(struct stream *s);
struct block_cache *stream_block_cache(struct stream *s);

/* At first there are none. */
void stream_set_limits(struct stream *s, const struct stream_limits *limits);
/* Lets go what the limits say, but nothing at or above `hold` (UINT64_MAX: no cursor), and ends the subscribers that
 * this passes. How many those were. */
size_t stream_retain(struct stream *s, uint64_t hold, usec_t now);
/* Bytes of files that would go but for `hold`. */
uint64_t stream_held_back(const struct stream *s, uint64_t hold, usec_t now);
struct stream_limits stream_limits(const struct stream *s);
/* The disk limit is reached, although what may go has gone. */
bool stream_is_full(struct stream *s, uint64_t hold, usec_t now);
/* Whether publishes are refused for lack of room, as was said last: true when that is another. */
bool stream_set_refusing(struct stream *s, bool refusing);
bool stream_is_refusing(const struct stream *s);
/* Its storage has failed, for good: true the first time. */
bool stream_set_failed(struct stream *s);

struct stream_marks {
    struct bytes producer; /* empty: none */
    uint64_t mark, next;   /* mark < next */
};
struct stream_published {
    struct journal_commit commit;
    uint64_t lines;
};
typedef void stream_publish_fn(const struct stream_published *p, void *arg);

/* Appends the text of `lines`, which with a producer may be none. As journal_append: JOURNAL_OK means that
 * `done` will be called exactly once; anything else that it will not. */
enum journal_result stream_publish(struct stream *s, const struct lines *lines,
    const struct stream_marks *marks, usec_t time, stream_publish_fn *done, void *arg, uint64_t *mark);

/* Where a subscriber wants to begin: "earliest", "latest", an offset, "@UNIXTIME" (whole seconds). */
struct stream_from {
    enum { STREAM_FROM_EARLIEST, STREAM_FROM_LATEST, STREAM_FROM_OFFSET, STREAM_FROM_TIME } kind;
    uint64_t offset;
    usec_t time;
};
/* False when the text is none of these. */
bool stream_from_parse(struct bytes text, struct stream_from *out);
/* The offset it stands for now; that of a time has to be looked for (journal_seek_time). Only of a STREAM_FROM_OFFSET is it
 * in doubt whether it fits the stream. */
uint64_t stream_from_offset(struct stream *s, const struct stream_from *from);

struct stream_numbers {
    uint64_t earliest, end, disk_bytes;
    uint64_t lines, bytes, publishes, duplicates; /* committed since the daemon started */
    size_t subscribers;
    usec_t last_time;
};
struct stream_numbers stream_numbers(const struct stream *s);

/* A subscriber, as its stream knows it. */
struct stream_observer {
    struct stream_observer *previous, *next; /* the stream's */
    const struct stream_observer_calls *calls;
    bool is_internal; /* not counted in stream_numbers */
};
/* Each call may end and free its own observer, but no other. */
struct stream_observer_calls {
    void (*committed)(struct stream_observer *o); /* the committed end has moved */
    /* Retention has taken what is below `earliest`: true when that ended or refused the subscriber. */
    bool (*trimmed)(struct stream_observer *o, uint64_t earliest);
    uint64_t (*tick)(struct stream_observer *o); /* from stream_tidy; the offset it reads next */
};
void stream_observe(struct stream *s, struct stream_observer *o);
void stream_unobserve(struct stream *s, struct stream_observer *o);

/* Frees memory that no subscriber needs; call it about once a second, with the monotonic clock. */
void stream_tidy(struct stream *s, usec_t now);

#endif
