/* republish: one stream, filtered or as it is, onto another or onto a queue, each line once.
 *
 * 1. The destination's mark of the source (its producer's name is the source's id, or one that was given) is the cursor:
 *    what is below it has been filtered, and what passed is in the destination.
 * 2. What passes is gathered while a run is under way, at most REPUBLISHER_RUN_MAX bytes; then the source waits.
 * 3. When source and destination turn out to be one stream (stream_place.h) it stops for good. Every answer of either is compared; before
 *    anything is sent the destination is asked, and then the source again, so that one restart of pubsub between them hides nothing.
 * 4. What the source brings is filtered in turns (line_scheduler.h); its lines up to the first that waits for one count as filtered.
 * 5. Where nothing passes the mark is moved alone, at most once a second, so that a restart does not begin far back. */
#ifndef MILLRACE_REPUBLISHER_H
#define MILLRACE_REPUBLISHER_H

#include "streams/filter/line_counts.h"

#define REPUBLISHER_RUN_MAX ((size_t)4 << 20)

struct event_base;
struct http_client;
struct http_pool;
struct line_scheduler;
struct republisher;

struct republisher_config {
    struct event_base *base;
    struct http_client *source;       /* borrowed */
    struct http_pool *destination;    /* one, as publisher.h says; borrowed, freed after this */
    const char *stream;               /* the source's name */
    const char *to_stream, *to_queue; /* the destination's: one of the two, the other is NULL */
    const char *producer;             /* NULL: the source stream's id */
    const char *begin;                /* where the first start begins */
    size_t max_line;
    struct line_filter *filter;        /* borrowed; NULL: every line passes */
    struct line_scheduler *scheduler;  /* borrowed; needed with filter */
    void (*on_change)(void *arg);      /* look at republisher_trouble */
    void (*on_into_itself)(void *arg); /* once; invariant 3 */
    void *arg;
};

struct republisher_numbers {
    struct line_counts lines;
    uint64_t runs, gaps, offset; /* offset: the destination's mark */
};

struct republisher *republisher_new(const struct republisher_config *config);
void republisher_free(struct republisher **r);
/* NULL: all goes well and the destination's mark is known; else why not. */
const char *republisher_trouble(const struct republisher *r);
struct republisher_numbers republisher_numbers(const struct republisher *r);

#endif
