/* republisher: copies a stream into another stream or a queue, each line once, with or without a filter.
 *
 * 1. The republisher is a producer whose name is the source's id or the configured name, and whose marks are offsets of
 *    the source. A run is a request with the passing lines between two offsets A and B. The destination stores the
 *    lines and moves the mark from A to B in one frame. Therefore all lines before the mark were filtered, and the
 *    passing lines before the mark are stored. After a restart the republisher continues at the mark. Sending a run
 *    again stores nothing twice.
 * 2. The republisher sends one run at a time, and repeats the run until the destination has stored the run or reports
 *    another mark than A. Another mark means that a request of an earlier process arrived late, or that another
 *    producer uses the name. After another mark, the republisher asks the destination for the mark again. If the
 *    destination refuses a run, the republisher reports a problem and repeats the run, so that no line is skipped.
 * 3. The daemon ends if source and destination are the same stream (stream_client.h). Before the first run, the
 *    republisher asks first the destination and then the source for their identities. In this order, a restart of
 *    pubsub between the two answers cannot hide that both are the same stream.
 * 4. Lines are filtered in slices (line_scheduler.h). The mark moves up to the first line that is not filtered yet.
 *    While a run is being sent, passing lines are collected. At REPUBLISHER_RUN_MAX collected bytes the source pauses.
 * 5. While no line passes, the republisher moves only the mark, at most once per second, so that a restart filters few
 *    lines again. */
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
    const char *program;        /* name of the program; the producer's label for people is PROGRAM.SOURCE */
    struct daemon *daemon;      /* a daemon with the settings of STREAM_OPTIONS, to_stream and producer */
    struct http_client *source; /* client of the source's pubsub; borrowed */
    struct http_pool *destination; /* pool of one server, which stores the mark; borrowed */
    const char *to_queue;          /* name of the destination queue; NULL: a stream (to_stream); borrowed */
    struct line_filter *filter;    /* borrowed; NULL: every line passes */
    struct line_scheduler *scheduler; /* borrowed; required with a filter */
    void (*on_change)(void *arg);     /* called when republisher_trouble may have changed */
    void *arg;
};

struct republisher_numbers {
    struct line_counts lines;
    uint64_t runs, gaps, offset; /* offset: the destination's mark */
};

struct republisher *republisher_new(const struct republisher_config *config);
void republisher_free(struct republisher **r);
/* Returns the current problem, or NULL if the destination's mark is known and no request has failed. */
const char *republisher_trouble(const struct republisher *r);
struct republisher_numbers republisher_numbers(const struct republisher *r);

#endif
