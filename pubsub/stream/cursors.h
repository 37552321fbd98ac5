/* cursors: the named cursors of one daemon's streams, stored in a cursor_file.
 *
 * A named cursor is an offset in a stream. With it a consumer declares that it needs only lines after this offset.
 * Retention deletes no bytes after the lowest cursor of a stream.
 *
 * 1. When the callback of a change reports CURSORS_OK, the change is durable.
 * 2. The result of cursors_hold is never above an acknowledged offset or an offset that is being stored. A new cursor
 *    counts at once. While a move is being stored, the old offset still counts. If only the stream has been restored,
 *    the offset from which its lines differ counts until the cursor is moved.
 * 3. A cursor moves backwards only if `backwards` is set.
 * 4. There are at most as many cursors as the file has slots.
 * 5. If a cursor has a key, only a change with this key or with CURSORS_ANY_KEY may move or delete the cursor. The
 *    first move with a key gives the cursor this key.
 * 6. cursors_open drops cursors whose stream is missing or has another id. cursors_dropped returns their number.
 *
 * 7. The lag of a cursor in bytes is always known. For the lag in lines and the age, the bytes from the cursor to the
 *    next point of the stream's line_index are read. If there is no such point, as after a start, everything up to
 *    the current end is read once, and points are added to the index. So lines and age are updated by cursors_tick,
 *    and are exact if the cursor does not move.
 *
 * Only one thread at a time may call these functions. cursors_open may run in another thread before the loop uses the
 * cursors. The streams must be freed after the cursors. */
#ifndef MILLRACE_PUBSUB_CURSORS_H
#define MILLRACE_PUBSUB_CURSORS_H

#include "pubsub/stream/cursor_file.h"
#include "pubsub/stream/streams.h"

struct cursors;

/* How far a cursor is behind the end of its stream. */
struct lag {
    uint64_t bytes; /* not counting holes and deleted bytes */
    bool known;     /* lines and age are valid */
    uint64_t lines;
    usec_t age; /* of the line at the cursor; 0 if at the end */
};

/* Read only. */
struct named_cursor {
    struct stream *stream;
    char name[NAME_LEN_MAX + 1], key[CURSOR_KEY_TEXT];
    uint64_t offset; /* stored last */
    bool stored;     /* at any offset */
    uint64_t held;   /* retention keeps the lines from here on: `offset`, or less after a restore */
    uint64_t low;    /* the lowest of `held` and the offsets that are being stored */
    uint64_t latest; /* accepted last */
    size_t under_way;
    bool deleting;
    size_t slot;
    struct lag_meter *meter;
};

enum cursors_result {
    CURSORS_OK,
    CURSORS_UNKNOWN,
    CURSORS_BEHIND,   /* the move would be backwards without `backwards` */
    CURSORS_TOO_MANY, /* no slot is free */
    CURSORS_BUSY,     /* the cursor is being deleted */
    CURSORS_OWNED,    /* the cursor has another key */
    CURSORS_STORAGE,  /* the change cannot be stored and has no effect; see cursors_failure */
};

struct cursors_config {
    struct streams *streams; /* recovered */
    const char *dir;         /* the directory of the file `cursors` */
    size_t max;
    void (*notify)(void *arg); /* as cursor_file's */
    void *notify_arg;
    /* `made` is called when cursors_change has created a cursor, and `removed` before a cursor is freed. */
    void (*made)(void *arg, const struct named_cursor *c);
    void (*removed)(void *arg, const struct named_cursor *c);
    void *arg;
};
/* Blocks. Returns false with the error if this fails. */
bool cursors_open(const struct cursors_config *config, struct cursors **out, struct error *error);
void cursors_close(struct cursors **cs);
void cursors_poll(struct cursors *cs);
/* Measures lags. Call this function about once a second. */
void cursors_tick(struct cursors *cs);

#define CURSORS_ANY_KEY "*" /* an operator's */

/* A move or deletion of a cursor. The caller embeds it in its own struct, which must be valid until `done` is
 * called. */
struct cursor_change {
    struct cursor_put put;
    struct stream *stream;
    char name[NAME_LEN_MAX + 1];
    char key[CURSOR_KEY_TEXT]; /* 32 hexadecimal digits, "" or CURSORS_ANY_KEY */
    bool deletes;
    bool backwards;
    uint64_t offset; /* after CURSORS_BEHIND: the offset of the cursor */
    void (*done)(struct cursor_change *change, enum cursors_result r); /* OK or STORAGE */
    /* Set by cursors_change. */
    struct cursors *cursors;
    struct named_cursor *cursor;
};
/* Creates, moves or deletes a cursor. If the result is CURSORS_OK, `done` will be called once. With any other result
 * `done` will not be called. */
enum cursors_result cursors_change(struct cursors *cs, struct cursor_change *change);

/* Returns the lowest offset of the stream's cursors and sets *name to the name of this cursor. `name` may be NULL. If
 * the stream has no cursor, returns UINT64_MAX. */
uint64_t cursors_hold(const struct cursors *cs, const struct stream *s, const char **name);
const char *cursors_failure(const struct cursors *cs); /* NULL, or the reason that changes are refused */
size_t cursors_dropped(const struct cursors *cs);

/* In no order. Valid until the next move, delete or poll. */
size_t cursors_count(const struct cursors *cs);
const struct named_cursor *cursors_at(const struct cursors *cs, size_t i);
struct lag cursors_lag(const struct named_cursor *c);

#endif
