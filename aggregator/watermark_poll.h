/* watermark_poll: asks pubsub every second for the ends of the streams and the times that their producers state
 * (stream/stream_watermark.h), and computes the watermark and the lag.
 *
 * 1. The answers for all streams together are one observation. If an answer is missing, there is no observation. Each answer
 *    belongs to one moment of its stream, so the stated times hold below its end.
 * 2. A stream may have been replaced by another one with the same name, or by an older copy. So an answer is ignored unless
 *    the stream has the id of the stream that is counted, and if the answer is known to be from another process of pubsub
 *    than the lines.
 * 3. As long as the time of a producer is not known, there is no observation, and the watermark stands still.
 * 4. A restart of pubsub does not lower the time of a producer (stream_watermark.h).
 *
 * The loop's thread only.
 */
#ifndef MILLRACE_WATERMARK_POLL_H
#define MILLRACE_WATERMARK_POLL_H

#include "aggregator/aggregate.h"

#define WATERMARK_STREAMS_MAX 64

struct daemon;
struct follower;
struct http_client;
struct watermark_poll;

struct watermark_poll_config {
    struct daemon *daemon;
    struct http_client *client; /* free the client first, which ends its request */
    const struct aggregate *aggregate;
    const char *const *streams; /* names in the aggregate's order; must outlive the poll */
    struct follower *const
        *followers; /* of the streams; must exist at the first answer, and outlive the client */
    size_t n_streams;
    usec_t producer_timeout; /* a producer that has stated nothing for longer does not count */
};

/* Sends the first request at once. */
struct watermark_poll *watermark_poll_new(const struct watermark_poll_config *config);
void watermark_poll_free(struct watermark_poll **p);

/* The watermark in Unix seconds; 0 until known. This is the time that the producers state, or the moment of the observation
 * (clock_moment_time), whichever is earlier. */
int64_t watermark_poll_complete_until(struct watermark_poll *p);
/* The same for the counts that are committed: to the open slice, or to slices before it. A crash does not take them back. */
int64_t watermark_poll_stored_until(struct watermark_poll *p);
/* The producer whose time holds the watermark back by WATERMARK_HELD or more, as STREAM/PRODUCER; "": none. */
#define WATERMARK_HELD (10 * USEC_PER_SEC)
const char *watermark_poll_held_by(const struct watermark_poll *p);
/* The same for one stream. The producer's name is without the stream's. */
int64_t watermark_poll_stream_until(struct watermark_poll *p, size_t stream);
const char *watermark_poll_stream_held_by(const struct watermark_poll *p, size_t stream);
/* The number of bytes not yet counted, as of the latest answer. */
uint64_t watermark_poll_lag(const struct watermark_poll *p, size_t stream);

#endif
