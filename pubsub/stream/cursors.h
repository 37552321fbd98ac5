/* cursors: the named cursors of one daemon's streams, kept in a cursor_file.
 *
 * A named cursor is a consumer's word that it needs nothing of a stream before an offset; until it is moved or
 * deleted the stream keeps everything from there on.
 *
 * Invariants
 * 1. Made, moved and deleted are so when the callback says OK, and survive a power cut from then on.
 * 2. cursors_hold is never above a cursor that was acknowledged, or that is about to be: it counts a new cursor
 *    from the call that makes it, and an old place until the move from it is stored.
 * 3. A cursor moves backwards only when that is asked for in so many words.
 * 4. There are at most as many as the file has slots.
 * 5. A cursor that the file has of a stream that is gone, or that is another one now, is not taken over; it is
 *    counted in cursors_dropped, and its slot is used again.
 *
 * One owner thread; cursors_open may run on another before. Streams must outlive it.
 */
#ifndef MILLRACE_PUBSUB_CURSORS_H
#define MILLRACE_PUBSUB_CURSORS_H

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
    CURSORS_STORAGE,  /* not stored: as it was before. See cursors_failure */
};

struct cursors_config {
    struct streams *streams; /* recovered */
    const char *dir;         /* where the file `cursors` is */
    size_t max;
    void (*notify)(void *arg); /* as cursor_file's */
    void *notify_arg;
    /* One came to be, or is about to go; may be NULL. Those of the file are told of by cursors_tell_all. */
    void (*came)(void *arg, const struct named_cursor *c);
    void (*goes)(void *arg, const struct named_cursor *c);
    void *arg;
};
/* Blocks. False with the error text. */
bool cursors_open(const struct cursors_config *config, struct cursors **out, char *error, size_t error_size);
void cursors_tell_all(struct cursors *cs);
void cursors_close(struct cursors **cs);
void cursors_poll(struct cursors *cs);
/* Looks after what lag_look needs; call it about once a second. */
void cursors_tick(struct cursors *cs);

typedef void cursors_done(enum cursors_result r, void *arg); /* OK or STORAGE */

/* Makes it, or moves it. CURSORS_OK: `done` will be called once. Anything else: it will not; with CURSORS_BEHIND
 * *at is where the cursor is. */
enum cursors_result cursors_move(struct cursors *cs, struct stream *s, const char *name, uint64_t offset,
    bool backwards, cursors_done *done, void *arg, uint64_t *at);
enum cursors_result cursors_delete(
    struct cursors *cs, struct stream *s, const char *name, cursors_done *done, void *arg);

/* The lowest offset that the stream's cursors need; UINT64_MAX without one. *who (may be NULL) is whose. */
uint64_t cursors_hold(const struct cursors *cs, const struct stream *s, const char **who);
const char *cursors_failure(const struct cursors *cs);
size_t cursors_dropped(const struct cursors *cs);

/* In no order; NULL at i == cursors_count. Valid until the next move, delete or poll. */
size_t cursors_count(const struct cursors *cs);
const struct named_cursor *cursors_at(const struct cursors *cs, size_t i);
const char *named_cursor_name(const struct named_cursor *c);
struct stream *named_cursor_stream(const struct named_cursor *c);
uint64_t named_cursor_offset(const struct named_cursor *c); /* as last stored */
struct lag named_cursor_lag(const struct named_cursor *c, usec_t now);

#endif
