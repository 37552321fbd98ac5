/* watermark_poll: requests the ends of the streams from pubsub every second, and computes the watermark and the lag.
 *
 * An answer is ignored unless every stream has the id of the counted stream: a stream may have been replaced under its name.
 * The loop's thread only.
 */
#ifndef MILLRACE_WATERMARK_POLL_H
#define MILLRACE_WATERMARK_POLL_H

#include "aggregator/aggregate.h"

#define WATERMARK_STREAMS_MAX 64

struct daemon;
struct http_client;
struct watermark_poll;

struct watermark_poll_config {
    struct daemon *daemon;
    struct http_client *client; /* free the client first, which ends its request */
    const struct aggregate *aggregate;
    const char *const *streams; /* names in the aggregate's order; must outlive the poll */
    size_t n_streams;
};

/* Sends the first request at once. */
struct watermark_poll *watermark_poll_new(const struct watermark_poll_config *config);
void watermark_poll_free(struct watermark_poll **p);

/* Unix seconds; 0 until known. The watermark's moment as the trusted time (base/clock_watch.h) of then or on the scale of now,
 * whichever is earlier. So the result falls with the wall clock, and ignores a clock that is ahead for a short time. */
int64_t watermark_poll_complete_until(struct watermark_poll *p);
/* The number of bytes not yet counted, as of the latest answer. */
uint64_t watermark_poll_lag(const struct watermark_poll *p, size_t stream);

#endif
