/* watermark: the time up to which every published event is counted.
 *
 * An observation is the end of every stream, taken at one moment. All lines published before that moment lie below those
 * ends. So the moment becomes the watermark once every stream is counted up to them.
 *
 * 1. The watermark never falls.
 * 2. It advances under a lasting lag too: the oldest observation that is not reached is kept until it is, while newer ones
 *    replace each other behind it.
 */
#ifndef MILLRACE_WATERMARK_H
#define MILLRACE_WATERMARK_H

#include "base/bytes.h"

struct watermark;

struct watermark *watermark_new(size_t n_streams);
void watermark_free(struct watermark **w);
/* Takes the streams' ends at `time` (unix seconds, cut). */
void watermark_observe(struct watermark *w, int64_t time, const uint64_t *ends);
/* Unix seconds; 0 until known. `offsets` is how far each stream is counted. */
int64_t watermark_complete_until(struct watermark *w, const uint64_t *offsets);
/* The newest end observed of a stream; 0 until known. */
uint64_t watermark_stream_end(const struct watermark *w, size_t stream);

#endif
