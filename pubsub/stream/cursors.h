/* cursors: the named cursors of one daemon's streams, stored in a cursor_file.
 *
 * By a named cursor, a consumer declares that it needs only lines of a stream from an offset on. Retention keeps
 * everything from the lowest cursor on.
 *
 * 1. A change is durable when its callback reports CURSORS_OK.
 * 2. cursors_hold never exceeds an acknowledged offset or one that is being stored: a new cursor holds its offset at once, and a
 *    moving cursor holds its old offset until the move is stored.
 * 3. A cursor moves backwards only with `backwards`.
 * 4. There are at most as many cursors as the file has slots.
 * 5. A cursor with an owner's key is moved and deleted only with that key, or with CURSORS_ANY_KEY. The first key in a move
 *    becomes the cursor's key.
 * 6. Opening drops the cursors of streams that are missing or have another id; cursors_dropped counts them.
 *
 * 7. A lag's bytes are known at once. For its lines and age, a few windows are read, from the cursor to the next point
 *    of the stream's line_index. Without such a point, as after a start, everything up to the current end is read once,
 *    and points are added on the way. So lines and age are as old as the last cursors_tick, and exact for a cursor that
 *    does not move.
 *
 * One thread at a time: cursors_open may run in another thread before the loop uses the cursors. The streams outlive them. */
#ifndef MILLRACE_PUBSUB_CURSORS_H
#define MILLRACE_PUBSUB_CURSORS_H

#include "pubsub/stream/cursor_file.h"
#include "pubsub/stream/streams.h"

struct cursors;

/* How far a cursor is behind the end of its stream. */
struct lag {
    uint64_t bytes; /* without holes and deleted bytes */
    bool known;     /* lines and age are valid */
    uint64_t lines;
    usec_t age; /* of the line at the cursor; 0 at the end */
};

/* Read only. */
struct named_cursor {
    struct stream *stream;
    char name[NAME_LEN_MAX + 1], key[CURSOR_KEY_TEXT];
    uint64_t offset; /* stored last */
    bool stored;     /* at any offset */
    uint64_t low;    /* the lowest of `offset` and the offsets being stored */
    uint64_t latest; /* accepted last */
    size_t under_way;
    bool deleting;
    size_t slot;
    struct lag_meter *meter;
};

enum cursors_result {
    CURSORS_OK,
    CURSORS_UNKNOWN,
    CURSORS_BEHIND,   /* the move would be backwards */
    CURSORS_TOO_MANY, /* no slot is free */
    CURSORS_BUSY,     /* the cursor is being deleted */
    CURSORS_OWNED,    /* the cursor has another key */
    CURSORS_STORAGE,  /* not stored, and unchanged; see cursors_failure */
};

struct cursors_config {
    struct streams *streams; /* recovered */
    const char *dir;         /* the directory of the file `cursors` */
    size_t max;
    void (*notify)(void *arg); /* as cursor_file's */
    void *notify_arg;
    /* Called after cursors_change has made a cursor, and before any cursor is freed. */
    void (*made)(void *arg, const struct named_cursor *c);
    void (*removed)(void *arg, const struct named_cursor *c);
    void *arg;
};
/* Blocks. False with the error text. */
bool cursors_open(const struct cursors_config *config, struct cursors **out, char *error, size_t error_size);
void cursors_close(struct cursors **cs);
void cursors_poll(struct cursors *cs);
/* Measures lags. Call it about once a second. */
void cursors_tick(struct cursors *cs);

#define CURSORS_ANY_KEY "*" /* an operator's */

/* A move or deletion, which the caller embeds in its own state and keeps until `done`. */
struct cursor_change {
    struct cursor_put put;
    struct stream *stream;
    char name[NAME_LEN_MAX + 1];
    char key[CURSOR_KEY_TEXT]; /* 32 hexadecimal digits, "" or CURSORS_ANY_KEY */
    bool deletes;
    bool backwards;
    uint64_t offset; /* after CURSORS_BEHIND, that of the cursor */
    void (*done)(struct cursor_change *change, enum cursors_result r); /* OK or STORAGE */
    /* Set by cursors_change. */
    struct cursors *cursors;
    struct named_cursor *cursor;
};
/* Makes, moves or deletes a cursor. CURSORS_OK: `done` will be called once. Any other result: `done` will not be called. */
enum cursors_result cursors_change(struct cursors *cs, struct cursor_change *change);

/* Returns the lowest offset of the stream's cursors. Sets *name (`name` may be NULL) to that cursor's name. UINT64_MAX
 * without cursors. */
uint64_t cursors_hold(const struct cursors *cs, const struct stream *s, const char **name);
const char *cursors_failure(const struct cursors *cs); /* NULL, or the reason that changes are refused */
size_t cursors_dropped(const struct cursors *cs);

/* In no order. Valid until the next move, delete or poll. */
size_t cursors_count(const struct cursors *cs);
const struct named_cursor *cursors_at(const struct cursors *cs, size_t i);
struct lag cursors_lag(const struct named_cursor *c);

#endif
