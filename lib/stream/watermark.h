/* watermark: the time before which every accepted event has been processed.
 *
 * An *observation* is made at a moment. It holds the ends of all streams, and the time up to which the streams are complete
 * below these ends, as their producers state it. Every line published before the moment lies before the observed ends.
 * Once every stream is processed up to its observed end, the observation is the watermark.
 *
 * 1. The moment of the watermark never decreases. It is on a clock that never jumps. It falls only if an
 *    observation has an earlier time: a producer's clock was set back.
 * 2. The watermark advances even if processing always lags. The oldest pending observation is kept until processing reaches
 *    it. Meanwhile only the newest of the later observations is kept. */
#ifndef MILLRACE_WATERMARK_H
#define MILLRACE_WATERMARK_H

#include "base/bytes.h"
#include "base/clock_watch.h"

struct watermark;
struct watermark_time {
    struct clock_moment at; /* boot 0: unknown */
    usec_t until;           /* stated by the producers; INT64_MAX: no producer states a time */
};

struct watermark *watermark_new(size_t n_streams);
void watermark_free(struct watermark **w);
/* Records an observation. Moments are observed in order. */
void watermark_observe(struct watermark *w, struct watermark_time time, const uint64_t *ends);
/* Forgets the pending observations: the streams may have become others. */
void watermark_forget(struct watermark *w);
/* The watermark; `offsets` holds the position up to which each stream is processed. */
struct watermark_time watermark_complete_until(struct watermark *w, const uint64_t *offsets);
/* The newest observed end of a stream; 0 until known. */
uint64_t watermark_stream_end(const struct watermark *w, size_t stream);

#endif
