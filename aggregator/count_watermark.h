/* count_watermark: the time before which every accepted event is counted, over all streams (stream/watermark.h).
 *
 * 1. It is the least watermark of the streams; unknown as long as that of a stream is unknown.
 * 2. The time is pubsub's. No clock of this daemon affects it.
 * 3. The aggregate's cursors have the times of their streams, so slices store them. A start continues with the stored time.
 *
 * The loop's thread only. */
#ifndef MILLRACE_COUNT_WATERMARK_H
#define MILLRACE_COUNT_WATERMARK_H

#include "aggregator/aggregate.h"
#include "stream/watermark.h"

#define COUNT_STREAMS_MAX 64
#define COUNT_HELD                                                                                           \
    (30 *                                                                                                    \
        USEC_PER_SEC) /* a producer holds the watermark back if its time is so long ago, or not known for so long */

struct count_watermark;

/* `names` are the streams' names in the aggregate's order. Borrows both. */
struct count_watermark *count_watermark_new(
    struct aggregate *aggregate, const char *const *names, size_t n_streams);
void count_watermark_free(struct count_watermark **w);
/* From stream_client's callbacks of the same names. */
void count_watermark_on_statement(struct count_watermark *w, size_t stream, const struct stream_statement *s);
void count_watermark_on_response_end(struct count_watermark *w, size_t stream);
/* The cursor has moved. `is_copy`: to where a restored copy differs, so its time is not known. */
void count_watermark_on_cursor(struct count_watermark *w, size_t stream, bool is_copy);

/* In Unix seconds; 0: unknown. */
int64_t count_watermark_until(struct count_watermark *w);
/* The same for the counts that are committed: to the open slice, or to slices before it. A crash does not take them back. */
int64_t count_watermark_stored_until(struct count_watermark *w);
int64_t count_watermark_stream_until(struct count_watermark *w, size_t stream);
/* The producer that holds the watermark back, as STREAM/PRODUCER; "": none. */
const char *count_watermark_held_by(struct count_watermark *w);
/* The producer that holds back the stream; without the stream's name. */
const char *count_watermark_stream_held_by(const struct count_watermark *w, size_t stream);
/* The number of bytes not yet counted, as of the latest statement. */
uint64_t count_watermark_lag(const struct count_watermark *w, size_t stream);

#endif
