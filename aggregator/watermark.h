/* watermark: the time up to which every published event is counted.
 *
 * An observation holds the ends of all streams at one moment. Every line published before that moment lies before its
 * stream's end. The moment becomes the watermark once every stream is counted up to its end.
 *
 * 1. The watermark never decreases.
 * 2. The watermark advances even under constant lag. The oldest pending observation is kept until counting reaches it;
 *    newer observations replace each other behind it.
 */
#ifndef MILLRACE_WATERMARK_H
#define MILLRACE_WATERMARK_H

#include "base/bytes.h"

struct watermark;

struct watermark *watermark_new(size_t n_streams);
void watermark_free(struct watermark **w);
/* Records the streams' ends at `time` (Unix seconds, rounded down). */
void watermark_observe(struct watermark *w, int64_t time, const uint64_t *ends);
/* The watermark in Unix seconds; 0 until known. `offsets` holds the position up to which each stream is counted. */
int64_t watermark_complete_until(struct watermark *w, const uint64_t *offsets);
/* The newest observed end of a stream; 0 until known. */
uint64_t watermark_stream_end(const struct watermark *w, size_t stream);

#endif
