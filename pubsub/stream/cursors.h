/* cursors: the named cursors of all streams of pubsub, stored in a cursor_file.
 *
 * A named cursor is an offset in a stream. With a named cursor, a consumer declares that it needs only the lines
 * after the offset. Retention deletes no bytes after the lowest cursor of a stream.
 *
 * 1. When the callback of a change reports CURSORS_OK, the change is durable.
 * 2. The result of cursors_hold is never above an acknowledged offset or an offset that is being stored. A new cursor
 *    counts at once. While a move is being stored, the old offset still counts. If the stream was restored without
 *    its cursors, the offset from which its lines differ counts until the cursor is moved.
 * 3. A cursor moves backwards only if `backwards` is set.
 * 4. The number of cursors is at most the number of slots of the file.
 * 5. If a cursor has a key, only a change with the same key or with CURSORS_ANY_KEY may move or delete the cursor.
 *    The first move with a key gives the cursor its key.
 * 6. cursors_open drops cursors whose stream is missing or has another id. cursors_dropped returns the number of
 *    dropped cursors.
 *
 * 7. The lag of a cursor in bytes is always known. cursors_tick measures the lag in lines and the age, which are
 *    exact if the cursor does not move. cursors_tick reads the bytes from the cursor to the next point of the
 *    stream's line_index. If the index has no such point, as after a start, cursors_tick reads once up to the current
 *    end and adds points to the index.
 *
 * Only one thread at a time may call the functions of this header. cursors_open may run in another thread before the
 * event loop uses the cursors. The streams must be freed after the cursors. */
#ifndef MILLRACE_PUBSUB_CURSORS_H
#define MILLRACE_PUBSUB_CURSORS_H

#include "pubsub/stream/cursor_file.h"
#include "pubsub/stream/streams.h"

struct cursors;

/* The distance from a cursor to the end of its stream. */
struct lag {
    uint64_t bytes; /* bytes between cursor and end, without holes and deleted bytes */
    bool known;     /* `lines` and `age` are valid */
    uint64_t lines;
    usec_t age; /* age of the line at the cursor; 0 if the cursor is at the end */
};

/* A named_cursor is read-only for callers. */
struct named_cursor {
    struct stream *stream;
    char name[NAME_LEN_MAX + 1], key[CURSOR_KEY_TEXT];
    uint64_t offset; /* the offset that was stored last */
    bool stored;     /* true once any offset is stored */
    uint64_t held; /* retention keeps the lines from `held` on, which is `offset`, or less after a restore */
    uint64_t low;  /* the lowest of `held` and the offsets that are being stored */
    uint64_t latest; /* the offset that was accepted last */
    size_t under_way;
    bool deleting;
    size_t slot;
    struct lag_meter *meter;
};

enum cursors_result {
    CURSORS_OK,
    CURSORS_UNKNOWN,
    CURSORS_BEHIND,   /* the move is backwards, and `backwards` is not set */
    CURSORS_TOO_MANY, /* no slot is free */
    CURSORS_BUSY,     /* the cursor is being deleted */
    CURSORS_OWNED,    /* the cursor has another key */
    CURSORS_STORAGE,  /* the change cannot be stored and has no effect (cursors_failure) */
};

struct cursors_config {
    struct streams *streams; /* recovered */
    const char *dir;         /* the directory of the file `cursors` */
    size_t max;
    void (*notify)(void *arg); /* as in cursor_file_open */
    void *notify_arg;
    /* `made` is called when cursors_change has created a cursor, and `removed` before a cursor is freed. */
    void (*made)(void *arg, const struct named_cursor *c);
    void (*removed)(void *arg, const struct named_cursor *c);
    void *arg;
};
/* Opens the cursors of recovered streams. Blocks. On failure, returns false with the error. */
bool cursors_open(const struct cursors_config *config, struct cursors **out, struct error *error);
void cursors_close(struct cursors **cs);
void cursors_poll(struct cursors *cs);
/* Measures lags. Call cursors_tick about once per second. */
void cursors_tick(struct cursors *cs);

#define CURSORS_ANY_KEY "*" /* key of an operator, who may change any cursor */

/* A move or deletion of a cursor. The caller embeds a cursor_change in a struct that must be valid until `done` is
 * called. */
struct cursor_change {
    struct cursor_put put;
    struct stream *stream;
    char name[NAME_LEN_MAX + 1];
    char key[CURSOR_KEY_TEXT]; /* 32 hexadecimal digits, "" or CURSORS_ANY_KEY */
    bool deletes;
    bool backwards;
    uint64_t offset; /* the new offset; after CURSORS_BEHIND, the offset of the cursor */
    /* `r` is CURSORS_OK or CURSORS_STORAGE */
    void (*done)(struct cursor_change *change, enum cursors_result r);
    /* cursors_change sets the following members. */
    struct cursors *cursors;
    struct named_cursor *cursor;
};
/* Creates, moves or deletes a cursor. Calls change->done later, exactly once, if and only if the result is
 * CURSORS_OK. */
enum cursors_result cursors_change(struct cursors *cs, struct cursor_change *change);

/* Returns the lowest offset that the stream's cursors hold, and sets *name to the name of the cursor with that
 * offset. `name` may be NULL. Returns UINT64_MAX if the stream has no cursor. */
uint64_t cursors_hold(const struct cursors *cs, const struct stream *s, const char **name);
/* returns the reason why changes are refused, or NULL */
const char *cursors_failure(const struct cursors *cs);
size_t cursors_dropped(const struct cursors *cs);

/* All cursors, in no order. An index is valid until the next cursors_change or cursors_poll. */
size_t cursors_count(const struct cursors *cs);
const struct named_cursor *cursors_at(const struct cursors *cs, size_t i);
struct lag cursors_lag(const struct named_cursor *c);

#endif
