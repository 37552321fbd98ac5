/* republisher: copies a stream, filtered or not, into another stream or a queue, each line once.
 *
 * 1. The republisher is a producer whose marks are the source's offsets, under the source's id or the given producer
 *    name. A run from offset A to B stores its lines and moves the destination's mark from A to B in one frame. So all
 *    lines below the mark have been filtered, and those that passed are stored. The mark is the cursor to continue
 *    from, and any run may be sent again.
 * 2. One run is under way at a time. It is sent again until it is stored or the mark differs. The mark may differ
 *    because a request of an earlier process arrived late, or because another producer uses the name. The republisher
 *    then asks for the mark again. A run that the destination refuses is reported and sent again, so that no line is
 *    skipped.
 * 3. The daemon ends if source and destination are the same stream (stream_client.h). To compare them, the republisher
 *    asks the destination first and the source second, before it publishes. In this order, a restart of pubsub between
 *    the two answers cannot hide that they are the same.
 * 4. Lines are filtered in slices (line_scheduler.h). The mark moves up to the first line that is not filtered yet.
 *    While a run is under way, passing lines are collected. At REPUBLISHER_RUN_MAX bytes the source pauses.
 * 5. If no line passes, only the mark moves, at most once a second, so that a restart does not filter many lines
 * again. */
#ifndef MILLRACE_REPUBLISHER_H
#define MILLRACE_REPUBLISHER_H

#include "streams/filter/line_filter.h"

#define REPUBLISHER_RUN_MAX ((size_t)4 << 20)

struct daemon;
struct http_client;
struct http_pool;
struct line_scheduler;
struct republisher;

struct republisher_config {
    const char *program;              /* the producer's name for people is PROGRAM.SOURCE */
    struct daemon *daemon;            /* with the settings of STREAM_OPTIONS, to_stream and producer */
    struct http_client *source;       /* borrowed */
    struct http_pool *destination;    /* one server, which keeps the mark; borrowed, freed after this */
    const char *to_queue;             /* the destination, instead of to_stream; NULL: to_stream; borrowed */
    struct line_filter *filter;       /* borrowed; NULL: every line passes */
    struct line_scheduler *scheduler; /* borrowed; required with filter */
    void (*on_change)(void *arg);     /* republisher_trouble may have changed */
    void *arg;
};

struct republisher_numbers {
    struct line_counts lines;
    uint64_t runs, gaps, offset; /* offset: the destination's mark */
};

struct republisher *republisher_new(const struct republisher_config *config);
void republisher_free(struct republisher **r);
/* Returns the current problem. NULL: there is none, and the destination's mark is known. */
const char *republisher_trouble(const struct republisher *r);
struct republisher_numbers republisher_numbers(const struct republisher *r);

#endif
