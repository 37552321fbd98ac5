/* tail: the newest bytes of a stream, had once and shared by all who follow it, as windows (window.h).
 *
 *     commit  ──────────────┐
 *     journal ── one reader ┴──▶ window, window, window ──▶ any number of subscribers, each at its own place
 *
 * A commit's bytes are taken from memory when they are told (tail_add) and follow the windows, and end no further than
 * TAIL_AHEAD from the place of the fastest. What is not taken is left in the journal, and read when somebody has come so
 * far. So whoever publishes faster than anybody reads, or more than TAIL_AHEAD at once, does not make the tail run away
 * from all; and once somebody has all there is and waits (tail_expect), it begins there again.
 *
 * 1. Windows follow each other without a gap. They hold what was committed and nothing else: told from memory after the
 *    commit, which is as safe then as the policy promises, or verified by the journal's reader.
 * 2. The tail keeps at most TAIL_BYTES_MAX for those who are a little behind, and nothing once everybody
 *    who reads the stream has passed it (tail_forget). Who is further behind reads for itself.
 * 3. It reads on only while somebody waits at its end. What is told meanwhile is not taken: it may be what is being read.
 * 4. What stops its reading (a hole, damage) ends the tail for good: everybody then reads for himself and finds the
 *    reason at his own place.
 * 5. Whoever was told to wait is called, whatever others do meanwhile.
 *
 * The loop thread only; `grown` is called from journal_set_poll.
 */
#ifndef MILLRACE_PUBSUB_TAIL_H
#define MILLRACE_PUBSUB_TAIL_H

#include "journal/journal.h"
#include "pubsub/stream/window.h"

#define TAIL_BYTES_MAX ((size_t)512 * 1024)
#define TAIL_AHEAD ((uint64_t)256 * 1024)
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
/* Somebody has all that is committed, and waits at its end, `offset`, for more. */
void tail_expect(struct tail *t, uint64_t offset);
/* `data`, in which `lines` lines end, was committed at `offset`; borrowed. To be told in the order of the commits, of which
 * any may be left out, and before those who wait ask. */
void tail_add(struct tail *t, uint64_t offset, struct bytes data, uint64_t lines);
/* Nobody is below `offset`, or will be soon. */
void tail_forget(struct tail *t, uint64_t offset);
/* What is below `earliest` is to go: a reader that stands there would keep its file. */
void tail_trim(struct tail *t, uint64_t earliest);

#endif
