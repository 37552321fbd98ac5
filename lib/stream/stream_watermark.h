/* stream_watermark: the time up to which a stream is complete, from pubsub's answer to
 * GET /producers?stream=NAME&stating=1.
 *
 * A producer states a time: each event that its source accepted before that time is in the stream. A reader that has read the
 * stream up to `end` has all events that were accepted before the least of these times. Producers that state no time do not
 * count: a line that they publish counts as accepted when it is published.
 *
 * After a restart of pubsub, a producer's time may be some seconds too early until it states a time. So the reader keeps the times
 * of its last answer, and of a restored time and the producer's last time the later one counts. The last time does not count if
 * pubsub has dropped the producer's time (pubsub/stream/untils.h), if the producer's mark is lower than before, or if the
 * stream ends earlier: the lines of that time may be lost. */
#ifndef MILLRACE_STREAM_WATERMARK_H
#define MILLRACE_STREAM_WATERMARK_H

#include "base/bytes.h"
#include "base/clock.h"
#include "stream/stream_client.h"

#define STREAM_WATERMARK_NONE INT64_MAX

struct stream_watermark {
    char id[STREAM_ID_TEXT];
    uint64_t end;
    usec_t
        until; /* the least time; 0: that of a producer is not known; STREAM_WATERMARK_NONE: no producer counts */
    char producer[NAME_LEN_MAX + 1]; /* the producer with the least time; "": none */
};

/* The times of a stream's producers in the last answer. */
struct producer_times;
struct producer_times *producer_times_new(void);
void producer_times_free(struct producer_times **t);

/* Ignores producers that have stated nothing for longer than `timeout`. Returns false if the reply is not such an answer. */
bool stream_watermark_read(
    struct bytes reply, usec_t timeout, struct producer_times *last, struct stream_watermark *out);

#endif
