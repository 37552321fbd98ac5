/* publisher: republishes a source stream onto another stream or a queue, each run of lines once, whatever fails.
 *
 * It publishes as a producer with the source's offsets as marks: a run from offset A to B moves the mark from A to B in the
 * same frame as its lines. So the mark is the cursor to continue from, stored with its effect, and any run may be sent
 * again.
 *
 * 1. Call publisher_ask first; on_mark says where to begin in the source.
 * 2. One run is under way at a time. It is sent again, at the pool's pace (http_pool.h), until it is stored (on_stored) or the
 *    mark turns out to be another (on_conflict): another publisher uses the name, or a request of an earlier process arrived
 *    late. Then ask again.
 * 3. A run that the destination refuses (a line too long for it) is trouble and sent again: nothing is skipped.
 * 4. There is one destination: its mark says nothing of others.
 * 5. The loop thread only. Callbacks may call publisher_ask and publisher_send.
 */
#ifndef MILLRACE_PUBLISHER_H
#define MILLRACE_PUBLISHER_H

#include "stream/stream_place.h"

struct event_base;
struct http_pool;
struct publisher;

struct publisher_config {
    struct event_base *base;
    struct http_pool *destination; /* one pubsub or simplequeue; borrowed, freed after the publisher */
    const char *stream, *queue;    /* one of them, the other is NULL; copied */
    void (*on_mark)(bool known, uint64_t mark, void *arg);
    void (*on_stored)(void *arg);
    void (*on_conflict)(void *arg);
    void (*on_change)(void *arg); /* publisher_trouble has changed; may be NULL */
    void *arg;
};

struct publisher *publisher_new(const struct publisher_config *config);
/* Drops a run under way: the next publisher_ask tells whether it was stored. */
void publisher_free(struct publisher **p);

/* Asks for the mark of the producer, whose name is copied, and uses that name from now on. */
void publisher_ask(struct publisher *p, const char *producer);
/* Sends whole lines, or none to move the mark only. Takes the buffer's memory and leaves it empty. */
void publisher_send(struct publisher *p, struct buf *lines, uint64_t mark, uint64_t next);
bool publisher_is_busy(const struct publisher *p);
/* Of the stream that replied last; .text "": none, or a queue. */
const struct stream_place *publisher_place(const struct publisher *p);
const char *publisher_trouble(const struct publisher *p); /* NULL: none */

#endif
