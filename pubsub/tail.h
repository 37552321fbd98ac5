/* tail: the newest bytes of a stream, read and verified once and shared by all who follow it, as windows (window.h).
 *
 *     journal ── one reader ──▶ window, window, window ──▶ any number of subscribers, each at its own place
 *
 * 1. Windows follow each other without a gap. They are what the journal's reader gave: committed and verified.
 * 2. The tail keeps at most TAIL_BYTES for those who are a little behind, and nothing once everybody
 *    who reads the stream has passed it (tail_forget). Who is further behind reads for itself.
 * 3. It reads on only while somebody waits at its end.
 * 4. What stops its reading (a hole, damage) ends the tail for good: everybody then reads for himself and finds the
 *    reason at his own place.
 *
 * The loop thread only; `grown` is called from journal_set_poll.
 */
#ifndef MILLRACE_PUBSUB_TAIL_H
#define MILLRACE_PUBSUB_TAIL_H

#include "journal.h"
#include "window.h"

#define TAIL_BYTES ((size_t)512 * 1024)
#define TAIL_REACH ((uint64_t)256 * 1024) /* a tail begins no further than this from the end */

struct tail;

/* `grown`: those who wait are to ask again. */
struct tail *tail_new(struct journal *j, void (*grown)(void *arg), void *arg);
/* Windows that are held live on. */
void tail_free(struct tail **t);

enum tail_answer {
    TAIL_HAS, /* *piece: at least one byte, from the offset on, within *window; good until the next call here */
    TAIL_WAITS, /* they come: `grown` will be called */
    TAIL_NOT,   /* read for yourself */
};
/* `offset` is below the committed end. */
enum tail_answer tail_ask(struct tail *t, uint64_t offset, struct bytes *piece, struct window **window);
/* Nobody is below `offset`, or will be soon. */
void tail_forget(struct tail *t, uint64_t offset);
/* What is below `earliest` is to go: a reader that stands there would keep its file. */
void tail_trim(struct tail *t, uint64_t earliest);

#endif
