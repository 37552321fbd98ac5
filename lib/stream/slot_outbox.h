/* slot_outbox: publishes pieces of lines to a stream, each piece once and as a whole. A piece is the result of one slot: a
 * scrape, or an evaluation of rules.
 *
 * The program is a producer (docs/guide/protocol.md, "Producers and marks"). Its mark is a time: microseconds of the
 * latest slot that it has published, or more. A publish has whole pieces, in the order in which they ended, and moves
 * the mark from A to B, where B is at least A + 1 and the latest slot in the publish.
 *
 * 1. Every slot that the stream has is at or below the mark. A program that starts reads the mark, and drops pieces at
 *    or below it. So a sample has no second copy, even if a publish of a killed program arrives late.
 * 2. If pubsub does not answer, the same publish is repeated. pubsub stores it once.
 * 3. A mark above A means that another process publishes under this name, or that a late publish of a killed program
 *    has arrived. Pieces at or below it are dropped and counted. A mark below A means that pubsub has an older copy.
 * 4. Pieces wait in at most max_bytes of memory. Beyond that, the oldest piece that is not being published is dropped
 *    and counted. So the outbox never blocks.
 * 5. Each piece that is dropped or refused is returned by on_drop, so that its stale markers can be published later. */
#ifndef MILLRACE_SLOT_OUTBOX_H
#define MILLRACE_SLOT_OUTBOX_H

#include "base/bytes.h"
#include "base/stats.h"

struct event_base;
struct http_pool;
struct outbox;

struct outbox_config {
    struct event_base *base;
    struct http_pool *pool;        /* a pool with one server, pubsub; freed after the outbox */
    const char *stream, *producer; /* borrowed */
    const char *pieces;            /* the word for pieces in names of metrics, such as "scrapes" */
    size_t max_bytes, publish_max;
    usec_t backoff_min, backoff_max;
    struct stats *stats;
    /* Called after each reply. `trouble` is the reason why pubsub stores nothing; NULL: none. */
    void (*on_change)(const char *trouble, void *arg);
    /* Called with the lines of a dropped piece and its owner; may be NULL. Must not use the outbox. */
    void (*on_drop)(uint64_t owner, struct bytes lines, void *arg);
    void *arg;
};

struct outbox *outbox_new(const struct outbox_config *config);
void outbox_free(struct outbox **o);
/* Takes the lines of a piece; *lines is empty afterwards. `slot` is in milliseconds. `owner` is for on_drop. */
void outbox_add(struct outbox *o, uint64_t owner, int64_t slot, struct buf *lines, uint64_t n_lines);
bool outbox_is_empty(const struct outbox *o);
/* Returns the time (microseconds) at or below which pieces are dropped: the highest mark of another process. */
uint64_t outbox_floor(const struct outbox *o);

#endif
