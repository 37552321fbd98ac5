/* cursors: the named cursors of one daemon's streams, stored in a cursor_file.
 *
 * A named cursor says that a consumer needs nothing of a stream before an offset. The stream keeps everything from the lowest
 * cursor on.
 *
 * 1. A change is durable when its callback says OK.
 * 2. cursors_hold never exceeds an acknowledged cursor or one being stored: a new cursor holds from the call that makes it, and
 *    a moved one holds its old offset until the move is stored.
 * 3. A cursor moves backwards only with `backwards`.
 * 4. There are at most as many cursors as the file has slots.
 * 5. A cursor with an owner's key is moved and deleted only with that key, or with CURSORS_ANY_KEY. The first key that a move
 *    names becomes the cursor's.
 * 6. Opening drops the cursors of streams that are gone or have another id; cursors_dropped counts them.
 *
 * One owner thread; cursors_open may run on another before. Streams must outlive it.
 */
#ifndef MILLRACE_PUBSUB_CURSORS_H
#define MILLRACE_PUBSUB_CURSORS_H

#include "pubsub/stream/cursor_file.h"
#include "pubsub/stream/lag.h"
#include "pubsub/stream/streams.h"

struct cursors;
struct named_cursor;

enum cursors_result {
    CURSORS_OK,
    CURSORS_UNKNOWN,
    CURSORS_BEHIND,   /* the move would go back */
    CURSORS_TOO_MANY, /* no slot is free */
    CURSORS_BUSY,     /* it is being deleted */
    CURSORS_OWNED,    /* it has another key */
    CURSORS_STORAGE,  /* not stored, and unchanged; see cursors_failure */
};

struct cursors_config {
    struct streams *streams; /* recovered */
    const char *dir;         /* of the file `cursors` */
    size_t max;
    void (*notify)(void *arg); /* as cursor_file's */
    void *notify_arg;
    /* A cursor was made, or is about to be freed; may be NULL. cursors_announce reports those of the file. */
    void (*made)(void *arg, const struct named_cursor *c);
    void (*removed)(void *arg, const struct named_cursor *c);
    void *arg;
};
/* Blocks. False with the error text. */
bool cursors_open(const struct cursors_config *config, struct cursors **out, char *error, size_t error_size);
void cursors_announce(struct cursors *cs);
void cursors_close(struct cursors **cs);
void cursors_poll(struct cursors *cs);
/* Measures lags; call it about once a second. */
void cursors_tick(struct cursors *cs);

typedef void cursors_done(enum cursors_result r, void *arg); /* OK or STORAGE */

#define CURSORS_ANY_KEY "*" /* an operator's */

/* Makes or moves a cursor. CURSORS_OK: `done` will be called once; else it will not. With CURSORS_BEHIND *at is the cursor's
 * offset. `key`: 32 hexadecimal digits, "" or CURSORS_ANY_KEY. */
enum cursors_result cursors_move(struct cursors *cs, struct stream *s, const char *name, const char *key,
    uint64_t offset, bool backwards, cursors_done *done, void *arg, uint64_t *at);
enum cursors_result cursors_delete(
    struct cursors *cs, struct stream *s, const char *name, const char *key, cursors_done *done, void *arg);

/* The lowest offset of the stream's cursors; UINT64_MAX without one. *name (may be NULL) is that cursor's. */
uint64_t cursors_hold(const struct cursors *cs, const struct stream *s, const char **name);
const char *cursors_failure(const struct cursors *cs);
size_t cursors_dropped(const struct cursors *cs);

/* In no order. Valid until the next move, delete or poll. */
size_t cursors_count(const struct cursors *cs);
const struct named_cursor *cursors_at(const struct cursors *cs, size_t i);
const char *named_cursor_name(const struct named_cursor *c);
struct stream *named_cursor_stream(const struct named_cursor *c);
uint64_t named_cursor_offset(const struct named_cursor *c); /* as last stored */
struct lag named_cursor_lag(const struct named_cursor *c, usec_t now);

#endif
