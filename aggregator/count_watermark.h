/* count_watermark: the time before which every accepted event of all streams is counted (stream/watermark.h).
 *
 * 1. The watermark of the aggregator is the least watermark of the streams. The watermark is unknown while any stream's
 *    watermark is unknown.
 * 2. Watermarks are times of pubsub's clock. The aggregator's clock does not affect them.
 * 3. The aggregate's cursors contain the watermarks of their streams, so that slices store them. After a start, each
 *    watermark continues from the stored time.
 *
 * Only the loop's thread may use a count_watermark. */
#ifndef MILLRACE_COUNT_WATERMARK_H
#define MILLRACE_COUNT_WATERMARK_H

#include "aggregator/aggregate.h"
#include "stream/watermark.h"

#define COUNT_STREAMS_MAX 64
#define COUNT_HELD                                                                                           \
    (30 *                                                                                                    \
        USEC_PER_SEC) /* a producer holds the watermark back if its time is this old, or was unknown for this long */

struct count_watermark;

/* `names` are the streams' names, in the aggregate's order. The aggregate and the names are borrowed. */
struct count_watermark *count_watermark_new(
    struct aggregate *aggregate, const char *const *names, size_t n_streams);
void count_watermark_free(struct count_watermark **w);
/* Call the functions in the callbacks of stream_client.h with the same names. */
void count_watermark_on_statement(struct count_watermark *w, size_t stream, const struct stream_statement *s);
void count_watermark_on_response_end(struct count_watermark *w, size_t stream);
/* Call this function when a cursor has moved. With `is_copy`, the cursor has moved to the offset at which a restored
 * copy differs from the original stream, so the watermark becomes unknown. */
void count_watermark_on_cursor(struct count_watermark *w, size_t stream, bool is_copy);

/* Returns the watermark over all streams in Unix seconds, or 0 if it is unknown. */
int64_t count_watermark_until(struct count_watermark *w);
/* Returns the watermark of the committed counts, in Unix seconds. A crash does not set back this watermark. */
int64_t count_watermark_stored_until(struct count_watermark *w);
int64_t count_watermark_stream_until(struct count_watermark *w, size_t stream);
/* Returns the producer that holds the watermark back, as STREAM/PRODUCER, or "" if no producer does. */
const char *count_watermark_held_by(struct count_watermark *w);
/* Returns the producer that holds back the watermark of one stream, without the stream's name, or "". */
const char *count_watermark_stream_held_by(const struct count_watermark *w, size_t stream);
/* Returns the number of bytes of the stream that were not counted at its latest statement. */
uint64_t count_watermark_lag(const struct count_watermark *w, size_t stream);

#endif
