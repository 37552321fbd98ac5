/* stream: one named stream of lines, kept in a journal of its own.
 *
 * The stream's bytes are the journal's payload, a publish is one frame, the stream's id is the journal's. A *cursor* is (id,
 * offset): it counts the stream's bytes before a line.
 *
 * 1. Every frame holds whole lines (lines.h). So a line begins at every frame, and wherever the stream goes on after a hole or a
 *    trim.
 * 2. A publish is stored as a whole or not at all; its callback comes when it is committed.
 * 3. After the callbacks of a commit's publishers come the calls of its observers, the subscribers (subscriber.h).
 * 4. Retention deletes whole segments from the earliest on, never at or above `hold`, and does not wait for subscribers: it ends
 *    those that it passes, so that a slow one cannot fill the disk.
 *
 * The loop thread only. The journal's errors are passed through.
 */
#ifndef MILLRACE_PUBSUB_STREAM_H
#define MILLRACE_PUBSUB_STREAM_H

#include "journal/journal.h"
#include "pubsub/stream/lines.h"

struct stream;
struct block_cache;
struct line_index;
struct openings;

struct stream_limits {
    uint64_t retain_bytes; /* of files; retention deletes what exceeds it. 0: no limit */
    usec_t retain_age;     /* retention deletes older segments. 0: no limit */
    uint64_t disk_limit;   /* of files; beyond it publishes are refused. 0: no limit */
};

/* Opens or makes the journal (its parent must exist). Blocks for its recovery. */
enum journal_result stream_open(struct journal_set *set, const char *name,
    const struct journal_config *config, struct stream **out, char *error, size_t error_size);
/* Every subscriber must be freed. Pending publishes are committed first. */
void stream_close(struct stream **s);

const char *stream_name(const struct stream *s);
struct journal *stream_journal(struct stream *s);
const struct openings *stream_openings(const struct stream *s); /* of its offsets */
struct line_index *stream_line_index(struct stream *s);
struct block_cache *stream_block_cache(struct stream *s);

/* A new stream has no limits. */
void stream_set_limits(struct stream *s, const struct stream_limits *limits);
/* Applies retention below `hold` (UINT64_MAX: no cursor), and ends the subscribers that it passes. Returns their number. */
size_t stream_retain(struct stream *s, uint64_t hold, usec_t now);
/* Bytes of files that retention would delete but for `hold`. */
uint64_t stream_held_back(const struct stream *s, uint64_t hold, usec_t now);
struct stream_limits stream_limits(const struct stream *s);
/* True at the disk limit, after retention. */
bool stream_is_full(struct stream *s, uint64_t hold, usec_t now);
/* Notes whether publishes are refused for lack of space; true when that changes. */
bool stream_set_refusing(struct stream *s, bool refusing);
bool stream_is_refusing(const struct stream *s);
/* Notes that its storage has failed; true the first time. */
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
/* The present offset of any but a time, which journal_seek_time finds. Only a STREAM_FROM_OFFSET may not fit the stream. */
uint64_t stream_from_offset(struct stream *s, const struct stream_from *from);

struct stream_numbers {
    uint64_t earliest, end, disk_bytes;
    uint64_t lines; /* committed since the daemon started */
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
