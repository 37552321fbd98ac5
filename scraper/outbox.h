/* outbox: publishes the lines of scrapes to a stream, each scrape once and as a whole.
 *
 * The scraper is a producer (docs/guide/protocol.md, "Producers and marks"). Its mark is a time: microseconds of the
 * latest slot that it has published, or more. A publish has whole scrapes, in the order in which they ended, and moves
 * the mark from A to B, where B is at least A + 1 and the latest slot in the publish.
 *
 * 1. Every slot that the stream has is at or below the mark. A scraper that starts reads the mark, and drops scrapes at
 *    or below it. So a sample has no second copy, even if a publish of a killed scraper arrives late.
 * 2. If pubsub does not answer, the same publish is repeated. pubsub stores it once.
 * 3. A mark above A means that another process publishes under this name, or that a late publish of a killed scraper
 *    has arrived. Scrapes at or below it are dropped and counted. A mark below A means that pubsub has an older copy.
 * 4. Scrapes wait in at most max_bytes of memory. Beyond that, the oldest scrape that is not being published is dropped
 *    and counted. So the outbox never blocks.
 * 5. Each scrape that is dropped or refused is returned by on_drop, so that its stale markers can be published later. */
#ifndef MILLRACE_OUTBOX_H
#define MILLRACE_OUTBOX_H

#include "base/bytes.h"
#include "base/stats.h"

struct event_base;
struct http_pool;
struct outbox;

struct outbox_config {
    struct event_base *base;
    struct http_pool *pool;        /* a pool with one server, pubsub; freed after the outbox */
    const char *stream, *producer; /* borrowed */
    size_t max_bytes, publish_max;
    usec_t backoff_min, backoff_max;
    struct stats *stats;
    /* Called after each reply. `trouble` is the reason why pubsub does not store scrapes; NULL: none. */
    void (*on_change)(const char *trouble, void *arg);
    /* Called with the lines of a dropped scrape and its owner. Must not use the outbox. */
    void (*on_drop)(uint64_t owner, struct bytes lines, void *arg);
    void *arg;
};

struct outbox *outbox_new(const struct outbox_config *config);
void outbox_free(struct outbox **o);
/* Takes the lines of a scrape; *lines is empty afterwards. `slot` is in milliseconds. `owner` is for on_drop. */
void outbox_add(struct outbox *o, uint64_t owner, int64_t slot, struct buf *lines, uint64_t n_lines);
bool outbox_is_empty(const struct outbox *o);
/* Returns the time (microseconds) at or below which scrapes are dropped: the highest mark of another process. */
uint64_t outbox_floor(const struct outbox *o);

#endif
