/* watermark_poll: asks pubsub each second for the ends of the streams, and keeps the watermark (watermark.h) and the lag.
 *
 * An answer counts only if every stream in it has the id that is counted: the end of another stream under the same name
 * proves nothing. The loop's thread only.
 */
#ifndef MILLRACE_WATERMARK_POLL_H
#define MILLRACE_WATERMARK_POLL_H

#include "aggregator/aggregate.h"

#define WATERMARK_STREAMS_MAX 64

struct event_base;
struct http_client;
struct watermark_poll;

struct watermark_poll_config {
    struct event_base *base;
    struct http_client *client; /* must be freed first: that ends a request under way */
    const struct aggregate *aggregate;
    const char *const *streams; /* names in the aggregate's order; must outlive it */
    size_t n_streams;
};

/* Sends the first request at once. */
struct watermark_poll *watermark_poll_new(const struct watermark_poll_config *config);
void watermark_poll_free(struct watermark_poll **p);

/* Unix seconds; 0 until known. */
int64_t watermark_poll_complete_until(struct watermark_poll *p);
/* Bytes published and not yet counted, by the last answer. */
uint64_t watermark_poll_lag(const struct watermark_poll *p, size_t stream);

#endif
