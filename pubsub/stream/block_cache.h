/* block_cache: verified blocks of one stream's committed bytes, shared by all its subscribers.
 *
 *     commit ────────────────────┐
 *     journal ── a few readers ──┴──▶ blocks ──▶ any number of subscribers, each at its own offset
 *
 * A block is a run of bytes: either a window in memory (window.h), or a list of spans of a segment's file, which are sent from
 * there without a copy. Commits, and reads of at most WINDOW_BYTES, fill small windows; larger reads fill large ones.
 *
 * 1. A block holds only committed bytes: copied from memory after their commit, or verified by the journal's reader.
 * 2. Spans are returned only while their file is unchanged, and for at most BLOCK_CACHE_TRUST after they were verified.
 *    A span is always returned whole, a window from any offset on.
 * 3. The number of blocks of each kind is limited; the least recently used block is dropped first. A block that was not
 *    used for BLOCK_CACHE_TRUST is dropped too. Windows and files in use stay valid.
 * 4. Blocks may overlap. A subscriber waits for a read until its callback, or until block_wait_cancel.
 * 5. A failed read is reported to the subscribers that wait for the byte at which it failed. The other subscribers
 *    repeat their requests.
 * 6. Commits extend the newest block only up to BLOCK_CACHE_AHEAD bytes beyond the fastest subscriber. If the publisher
 *    is further ahead, its bytes are read from the journal later.
 *
 * The loop thread only. Callbacks run in journal_set_poll and block_cache_trim. */
#ifndef MILLRACE_PUBSUB_BLOCK_CACHE_H
#define MILLRACE_PUBSUB_BLOCK_CACHE_H

#include "journal/journal.h"
#include "pubsub/stream/window.h"

#define BLOCK_CACHE_READERS_MAX ((size_t)8)
#define BLOCK_CACHE_SMALL_MAX ((size_t)16) /* windows of WINDOW_BYTES or less */
#define BLOCK_CACHE_LARGE_MAX ((size_t)8)
#define BLOCK_CACHE_SPANS_MAX ((size_t)1024)         /* blocks of spans */
#define BLOCK_CACHE_LARGE_BYTES ((size_t)512 * 1024) /* of one large window */
#define BLOCK_CACHE_AHEAD ((uint64_t)256 * 1024)
#define BLOCK_CACHE_TRUST (10 * USEC_PER_SEC)
#define BLOCK_PIECE_BYTES ((uint64_t)512 * 1024) /* a piece of spans ends once it has this many bytes, ... */
#define BLOCK_PIECE_SPANS_MAX                                                                                \
    ((size_t)12) /* ... or this many spans, each of which takes a KB while pending */

struct block_cache;

struct block_cache *block_cache_new(struct journal *j);
/* No subscriber may wait. Held windows and files stay valid. */
void block_cache_free(struct block_cache **c);

struct block_request {
    uint64_t offset; /* below `end` */
    uint64_t end;    /* the end of a frame; no byte from here on is returned */
    bool large;      /* a miss may read a large window or spans, not only one small window */
};
struct block_piece {
    struct window *window; /* NULL: spans */
    struct bytes bytes;    /* in the window */
    struct journal_file *file;
    const struct journal_span *spans;
    size_t n_spans;
};
/* True: *piece has at least one byte, from the offset on, and is valid until the next call. Its window may be large
 * even without `large`. */
bool block_cache_get(struct block_cache *c, const struct block_request *want, struct block_piece *piece);

/* A subscriber that waits for a read. */
struct block_wait {
    uint64_t offset;
    struct block_waiters *list; /* NULL: it does not wait */
    struct block_wait *previous, *next;
    /* JOURNAL_OK: ask again. Any other result: the reason that the byte at the offset cannot be read, with the edges of
     * JOURNAL_GONE. */
    void (*done)(struct block_wait *wait, enum journal_result r, const struct journal_edges *edges);
};
/* Reads the bytes after a miss. JOURNAL_OK: `done` will be called once, unless cancelled. Any other result: `done` will not be
 * called, and JOURNAL_GONE fills the edges. */
enum journal_result block_cache_read(struct block_cache *c, const struct block_request *want,
    struct block_wait *wait, struct journal_edges *edges);
void block_wait_cancel(struct block_wait *wait);

/* Records that a subscriber has reached the committed end `offset` and waits for the next commit. */
void block_cache_expect(struct block_cache *c, uint64_t offset);
/* `data` was committed at `offset`; `lines` lines end in it. Borrowed. */
void block_cache_add(struct block_cache *c, uint64_t offset, struct bytes data, uint64_t lines);
/* Drops unused blocks and readers. Call it about once a second, with the monotonic clock. No subscriber is below `lowest`. */
void block_cache_tidy(struct block_cache *c, uint64_t lowest, usec_t now);
/* Drops blocks and readers below `earliest`, after retention. */
void block_cache_trim(struct block_cache *c, uint64_t earliest);

#endif
