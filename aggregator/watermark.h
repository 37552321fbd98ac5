/* watermark: the moment up to which every published event is counted.
 *
 * An observation holds the ends of all streams at one moment. Every line published before that moment lies before the
 * observed end of its stream. Once every stream is counted up to its observed end, the moment becomes the watermark.
 *
 * 1. The watermark never decreases. Its moments are on a clock that never jumps.
 * 2. The watermark advances even if counting always lags. The oldest pending observation is kept until counting reaches
 *    it. Meanwhile only the newest of the later observations is kept.
 */
#ifndef MILLRACE_WATERMARK_H
#define MILLRACE_WATERMARK_H

#include "base/bytes.h"
#include "base/clock.h"

struct watermark;
struct watermark_moment {
    usec_t boot;    /* clock_boot; 0: unknown */
    usec_t trusted; /* the trusted time at that moment (base/clock_watch.h) */
};

struct watermark *watermark_new(size_t n_streams);
void watermark_free(struct watermark **w);
/* Records the streams' ends at a moment. Moments are observed in order. */
void watermark_observe(struct watermark *w, struct watermark_moment at, const uint64_t *ends);
/* The watermark; `offsets` holds the position up to which each stream is counted. */
struct watermark_moment watermark_complete_until(struct watermark *w, const uint64_t *offsets);
/* The newest observed end of a stream; 0 until known. */
uint64_t watermark_stream_end(const struct watermark *w, size_t stream);

#endif
