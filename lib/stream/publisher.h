/* publisher: puts what comes from a stream onto another stream, or a queue, each run once, whatever fails in between.
 *
 * It publishes under a producer's name with the source's offsets as marks: a run that takes the source from offset A to B
 * moves the mark from A to B in the same frame as its lines. So the mark is the cursor to go on from, kept where its
 * effect is, and a run may be sent again after any trouble.
 *
 * 1. First publisher_ask; on_mark tells where the source is to be taken from.
 * 2. One run is under way at a time. It is sent again, when the pool lets it be (http_pool.h), until it is stored (on_stored) or the destination
 *    says that the mark is another (on_conflict): somebody else publishes under this name, or an answer of an earlier
 *    life came late. Then ask again.
 * 3. What the destination refuses (a line that is too long for it) is trouble and tried again: nothing is passed over.
 * 4. The destination is one: a mark tells what was stored beside it, and nothing of any other.
 * 5. The loop thread only; callbacks come from the loop. They may call publisher_ask and publisher_send. */
#ifndef MILLRACE_PUBLISHER_H
#define MILLRACE_PUBLISHER_H

#include "stream/stream_place.h"

struct event_base;
struct http_pool;
struct publisher;

struct publisher_config {
    struct event_base *base;
    struct http_pool *destination; /* one pubsub or simplequeue; borrowed, freed after the publisher */
    const char *stream, *queue;    /* which of the two: the other is NULL; copied */
    void (*on_mark)(bool known, uint64_t mark, void *arg);
    void (*on_stored)(void *arg);
    void (*on_conflict)(void *arg);
    void (*on_change)(void *arg); /* trouble came, changed or went; may be NULL */
    void *arg;
};

struct publisher *publisher_new(const struct publisher_config *config);
/* A run under way is left as it is: the next life's question finds out whether it was stored. */
void publisher_free(struct publisher **p);

/* The producer's name is copied and used from now on. */
void publisher_ask(struct publisher *p, const char *producer);
/* Whole lines, or none to move the mark only. It takes them, and leaves an empty buffer in their place. */
void publisher_send(struct publisher *p, struct buf *lines, uint64_t mark, uint64_t next);
bool publisher_is_busy(const struct publisher *p);
/* Of the stream that answered last; .text "": none has, or it is a queue. */
const struct stream_place *publisher_place(const struct publisher *p);
const char *publisher_trouble(const struct publisher *p); /* NULL: none */

#endif
