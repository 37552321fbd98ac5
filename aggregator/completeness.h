/* completeness: until when everything that was published is counted.
 *
 * The publisher's end of every stream, asked for at time T, bounds all that was published before T. So once every
 * stream is counted up to the end told then, everything published before T is counted.
 *
 * 1. The time never falls.
 * 2. It moves on under a lasting lag too: the oldest question that is not yet reached is kept until it is, while
 *    newer answers replace each other behind it.
 */
#ifndef MILLRACE_COMPLETENESS_H
#define MILLRACE_COMPLETENESS_H

#include "base/bytes.h"

struct completeness;

struct completeness *completeness_new(size_t n_streams);
void completeness_free(struct completeness **c);
/* The ends told to a question asked at `asked` (unix seconds, cut). */
void completeness_told(struct completeness *c, int64_t asked, const uint64_t *ends);
/* 0 until known. `offsets` is how far each stream is counted. */
int64_t completeness_until(struct completeness *c, const uint64_t *offsets);
/* The newest end told of a stream; 0 until known. */
uint64_t completeness_end(const struct completeness *c, size_t stream);

#endif
