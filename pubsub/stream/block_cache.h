/* block_cache: verified blocks of one stream's committed bytes, shared by all subscribers of the stream.
 *
 *     commit ────────────────────┐
 *     journal ── a few readers ──┴──▶ blocks ──▶ any number of subscribers, each at its own offset
 *
 * A block is a contiguous part of the stream: either a window in memory (window.h), or a list of spans of a segment's
 * file, which subscribers send from the file without a copy. Commits and reads of at most WINDOW_BYTES fill small
 * windows. Larger reads fill large windows.
 *
 * 1. A block contains only committed bytes, which were copied from memory after their commit or verified by the
 *    journal's reader.
 * 2. block_cache_get returns spans only if their file is unchanged and they were verified at most BLOCK_CACHE_TRUST
 *    ago. A piece begins at the beginning of a span, or at any offset of a window.
 * 3. The number of blocks of each kind is limited. At the limit, the cache drops the block that was used least
 *    recently. The cache also drops a block that was not used for BLOCK_CACHE_TRUST. Windows and files that
 *    subscribers still use stay valid.
 * 4. Blocks may overlap. A waiting subscriber is in a list until its callback `done` or block_wait_cancel is called.
 * 5. If a read fails at a byte, only the subscribers that wait for this byte get the error. The other subscribers
 *    repeat their requests.
 * 6. A commit is added to the cache only if its end is at most BLOCK_CACHE_AHEAD bytes ahead of the fastest
 *    subscriber. Subscribers read the bytes of other commits from the journal.
 *
 * Call all functions on the event loop's thread. Callbacks run in journal_set_poll and block_cache_trim. */
#ifndef MILLRACE_PUBSUB_BLOCK_CACHE_H
#define MILLRACE_PUBSUB_BLOCK_CACHE_H

#include "journal/journal.h"
#include "pubsub/stream/window.h"

#define BLOCK_CACHE_READERS_MAX ((size_t)8)
#define BLOCK_CACHE_SMALL_MAX ((size_t)16) /* windows of WINDOW_BYTES or less */
#define BLOCK_CACHE_LARGE_MAX ((size_t)8)
#define BLOCK_CACHE_SPANS_MAX ((size_t)1024)         /* blocks of spans */
#define BLOCK_CACHE_LARGE_BYTES ((size_t)512 * 1024) /* size of a large window */
#define BLOCK_CACHE_AHEAD ((uint64_t)256 * 1024)
#define BLOCK_CACHE_TRUST (10 * USEC_PER_SEC)
/* size at which a piece of spans ends, rounded up to whole spans */
#define BLOCK_PIECE_BYTES ((uint64_t)512 * 1024)
/* Limit of a piece, because each pending span needs a KB of memory */
#define BLOCK_PIECE_SPANS_MAX ((size_t)12)

struct block_cache;

struct block_cache *block_cache_new(struct journal *j);
/* Frees the cache, while no subscriber waits. */
void block_cache_free(struct block_cache **c);

struct block_request {
    uint64_t offset; /* below `end` */
    uint64_t end;    /* the end of a frame, at which the piece ends at the latest */
    bool large;      /* true: on a miss, read a large window or spans; false: read a small window */
};
struct block_piece {
    struct window *window; /* NULL: spans */
    struct bytes bytes;    /* in the window */
    struct journal_file *file;
    const struct journal_span *spans;
    size_t n_spans;
};
/* If the cache has the byte at `offset`, returns true and a piece that begins with this byte. The piece is valid
 * until the next call of a block_cache function. The window of the piece may be large even if `large` is false. */
bool block_cache_get(struct block_cache *c, const struct block_request *want, struct block_piece *piece);

/* A subscriber that waits for a read. */
struct block_wait {
    uint64_t offset;
    struct block_waiters *list; /* NULL: the subscriber does not wait */
    struct block_wait *previous, *next;
    /* If `r` is JOURNAL_OK, call block_cache_get again. Any other result is the reason why the byte at `offset`
     * cannot be read. If `r` is JOURNAL_GONE, *edges is set. */
    void (*done)(struct block_wait *wait, enum journal_result r, const struct journal_edges *edges);
};
/* Reads the bytes after a miss. The cache calls `done` once if the result is JOURNAL_OK and the wait is not
 * cancelled. If the result is JOURNAL_GONE, *edges is set. */
enum journal_result block_cache_read(struct block_cache *c, const struct block_request *want,
    struct block_wait *wait, struct journal_edges *edges);
void block_wait_cancel(struct block_wait *wait);

/* Call block_cache_expect when a subscriber has reached the committed end `offset` and waits for the next commit. */
void block_cache_expect(struct block_cache *c, uint64_t offset);
/* Adds a copy of `data`, which was committed at `offset`. `lines` is the number of LFs in `data`. */
void block_cache_add(struct block_cache *c, uint64_t offset, struct bytes data, uint64_t lines);
/* Drops unused blocks and readers. Call block_cache_tidy about once per second with the monotonic time. `lowest` is
 * the lowest offset of all subscribers. */
void block_cache_tidy(struct block_cache *c, uint64_t lowest, usec_t now);
/* Drops all blocks. Call block_cache_clear after stored bytes were replaced. */
void block_cache_clear(struct block_cache *c);
/* Drops blocks and readers before `earliest`. Call block_cache_trim after retention. */
void block_cache_trim(struct block_cache *c, uint64_t earliest);

#endif
