/* publisher: republishes a source stream to another stream or to a queue, each run of lines once, whatever fails.
 *
 * The publisher is a producer whose marks are the source's offsets: a run from offset A to B moves the mark from A to B in the
 * same frame as its lines. The mark is therefore the cursor to continue from, stored with its effect, and any run may be sent
 * again.
 *
 * 1. Call publisher_ask first; on_mark gives the offset of the source to begin at.
 * 2. One run is under way at a time. It is sent again, with the pool's backoff (http_pool.h), until it is stored (on_stored) or
 *    the mark differs (on_conflict). The mark differs after a late request of an earlier process, or if another publisher uses
 *    the name: then ask again.
 * 3. A run that the destination refuses, as with a line that is too long for it, is trouble and sent again: no line is skipped.
 * 4. There is one destination, because its mark says nothing about others.
 * 5. The loop thread only. Callbacks may call publisher_ask and publisher_send. */
#ifndef MILLRACE_PUBLISHER_H
#define MILLRACE_PUBLISHER_H

#include "stream/stream_client.h"

struct event_base;
struct http_pool;
struct publisher;

struct publisher_config {
    struct event_base *base;
    struct http_pool *destination; /* one pubsub or simplequeue; borrowed, freed after the publisher */
    const char *stream, *queue;    /* one of the two, the other is NULL; copied */
    void (*on_mark)(bool known, uint64_t mark, void *arg);
    void (*on_stored)(void *arg);
    void (*on_conflict)(void *arg);
    void (*on_change)(void *arg); /* publisher_trouble has changed; may be NULL */
    void *arg;
};

struct publisher *publisher_new(const struct publisher_config *config);
/* Drops a run under way. The next publisher_ask shows whether it was stored. */
void publisher_free(struct publisher **p);

/* Asks for the producer's mark and publishes under that name from now on. The name is copied. */
void publisher_ask(struct publisher *p, const char *producer);
/* Sends whole lines; without lines it only moves the mark. Takes the memory of the buffer and leaves it empty. */
void publisher_send(struct publisher *p, struct buf *lines, uint64_t mark, uint64_t next);
bool publisher_is_busy(const struct publisher *p);
/* The place of the stream that replied last; .text "": no reply yet, or a queue. */
const struct stream_place *publisher_place(const struct publisher *p);
const char *publisher_trouble(const struct publisher *p); /* NULL: none */

#endif
