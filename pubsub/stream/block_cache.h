/* block_cache: verified blocks of one stream's committed bytes, shared by all its subscribers.
 *
 *     commit ────────────────────┐
 *     journal ── a few readers ──┴──▶ blocks ──▶ any number of subscribers, each at its own offset
 *
 * A block is a run of bytes. It is a window in memory (window.h): small, filled by commits or by one read of at most
 * WINDOW_BYTES, or large; or it is a list of spans of a segment's file, to be sent from there without a copy.
 *
 * 1. A block holds committed bytes only: taken from memory after their commit, or verified by the journal's reader.
 * 2. Spans are handed out only while their file is unchanged, and for at most BLOCK_CACHE_TRUST after they were verified.
 *    They are handed out whole, windows from any offset on.
 * 3. The cache is bounded for each kind of block; the least recently used block goes first. Windows and files in use live
 *    on. Blocks that have not been asked for in BLOCK_CACHE_TRUST go too.
 * 4. Blocks may overlap. A subscriber that waits for a read is called when the read ends, or is called off, at once.
 * 5. A read that fails is reported to the subscribers that wait for the byte it failed at. The others ask again.
 * 6. Commits continue the newest block only up to BLOCK_CACHE_AHEAD beyond the fastest subscriber; a faster publisher leaves
 *    its bytes in the journal, and they are read from there.
 *
 * The loop thread only. Waiting subscribers are called from journal_set_poll and block_cache_trim.
 */
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
#define BLOCK_PIECE_BYTES ((uint64_t)512 * 1024) /* a piece of spans ends with the span that passes it ... */
#define BLOCK_PIECE_SPANS_MAX                                                                                \
    ((size_t)12) /* ... or has so many: each takes a KB while it waits for its socket */

struct block_cache;

struct block_cache *block_cache_new(struct journal *j);
/* No subscriber waits any more. Windows and files that are held live on. */
void block_cache_free(struct block_cache **c);

struct block_request {
    uint64_t offset; /* below `end` */
    uint64_t end;    /* nothing at or above it is handed out; a frame ends there */
    bool large;      /* large windows and spans are welcome; else a miss reads one small window */
};
struct block_piece {
    struct window *window; /* NULL: spans */
    struct bytes bytes;    /* in the window */
    struct journal_file *file;
    const struct journal_span *spans;
    size_t n_spans;
};
/* True: *piece has at least a byte, from the offset on; valid until the next call. A window may be large in any case. */
bool block_cache_get(struct block_cache *c, const struct block_request *want, struct block_piece *piece);

/* A subscriber that waits for a read. */
struct block_wait {
    uint64_t offset;
    struct block_waiters *list; /* NULL: it does not wait */
    struct block_wait *previous, *next;
    /* JOURNAL_OK: ask again; else why the byte at the offset cannot be read, with the edges of JOURNAL_GONE. */
    void (*done)(struct block_wait *wait, enum journal_result r, const struct journal_edges *edges);
};
/* After a miss: has the bytes read. JOURNAL_OK: `done` will be called once, unless cancelled. Else it will not; the edges are
 * filled with JOURNAL_GONE. */
enum journal_result block_cache_read(struct block_cache *c, const struct block_request *want,
    struct block_wait *wait, struct journal_edges *edges);
void block_wait_cancel(struct block_wait *wait);

/* A subscriber has all that is committed, up to `offset`, and waits for the next commit. */
void block_cache_expect(struct block_cache *c, uint64_t offset);
/* `data`, in which `lines` lines end, was committed at `offset`; borrowed. */
void block_cache_add(struct block_cache *c, uint64_t offset, struct bytes data, uint64_t lines);
/* Drops what is not needed; call it about once a second, with the monotonic clock. No subscriber is below `lowest`. */
void block_cache_tidy(struct block_cache *c, uint64_t lowest, usec_t now);
/* Retention takes what is below `earliest`: drops blocks and readers there. */
void block_cache_trim(struct block_cache *c, uint64_t earliest);

#endif
