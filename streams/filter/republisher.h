/* republisher: copies one stream, filtered or not, into another stream or a queue, each line once.
 *
 * 1. The cursor is the destination's mark of the source. (The producer's name is the source's id, unless one is given.) Everything
 *    below the mark has been filtered, and what passed is in the destination.
 * 2. While a run is being published, lines that pass are collected, up to REPUBLISHER_RUN_MAX bytes; then the source pauses.
 * 3. It stops for good once source and destination prove to be one stream (stream_place.h). Before it publishes anything it asks the
 *    destination and then the source again, so that a single restart of pubsub in between hides nothing.
 * 4. Lines are filtered in slices (line_scheduler.h). The mark moves up to the first line that still waits.
 * 5. If nothing passes, the mark alone is moved, at most once a second, so that a restart does not begin far back. */
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
    struct http_pool *destination;    /* one server (publisher.h); borrowed, freed after this */
    const char *stream;               /* the source's name */
    const char *to_stream, *to_queue; /* one of the two; the other is NULL */
    const char *producer;             /* NULL: the source stream's id */
    const char *begin;                /* where the first start begins: earliest, latest, ... */
    size_t max_line;
    struct line_filter *filter;        /* borrowed; NULL: every line passes */
    struct line_scheduler *scheduler;  /* borrowed; required with filter */
    void (*on_change)(void *arg);      /* republisher_trouble may have changed */
    void (*on_into_itself)(void *arg); /* once; invariant 3 */
    void *arg;
};

struct republisher_numbers {
    struct line_counts lines;
    uint64_t runs, gaps, offset; /* offset: the destination's mark */
};

struct republisher *republisher_new(const struct republisher_config *config);
void republisher_free(struct republisher **r);
/* NULL: it works and the destination's mark is known; else the problem. */
const char *republisher_trouble(const struct republisher *r);
struct republisher_numbers republisher_numbers(const struct republisher *r);

#endif
