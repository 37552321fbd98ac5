/* watermark_poll: requests the ends of the streams from pubsub every second, and computes the watermark and the lag.
 *
 * A stream may have been replaced by another one with the same name. So an answer is ignored unless every stream in it
 * has the id of the stream that is counted. The loop's thread only.
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

/* The watermark's moment in Unix seconds; 0 until known. There are two such times (base/clock_watch.h): the trusted
 * time observed at the moment, and the moment converted with the present trusted time. The result is the earlier one.
 * So if the clock is set back, the result falls too, and a clock that was ahead for a short time has no lasting
 * effect. */
int64_t watermark_poll_complete_until(struct watermark_poll *p);
/* The number of bytes not yet counted, as of the latest answer. */
uint64_t watermark_poll_lag(const struct watermark_poll *p, size_t stream);

#endif
