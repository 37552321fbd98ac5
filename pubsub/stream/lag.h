/* lag: how far a place in a stream is behind its end: bytes, lines, and since when the next line waits there.
 *
 * Bytes are known at once. For lines and time one meter reads, with a reader of its own, from the place to the next
 * point of the stream's line_index: a few windows, or once after a start all that was there before, by which the
 * index learns it. So the answer is of a moment ago (lag_look is called now and then), exact for a place that stands
 * still.
 *
 * The loop thread only.
 */
#ifndef MILLRACE_PUBSUB_LAG_H
#define MILLRACE_PUBSUB_LAG_H

#include "pubsub/stream/stream.h"

struct lag_meter;

struct lag {
    uint64_t bytes; /* without holes and what retention has taken */
    bool known;     /* the rest is */
    uint64_t lines;
    usec_t age; /* of the first line not passed yet; 0 at the end */
};

struct lag_meter *lag_meter_new(struct stream *s);
void lag_meter_free(struct lag_meter **m);
/* Begins to look at the place, unless that was done or something is under way. */
void lag_look(struct lag_meter *m, uint64_t offset);
struct lag lag_read(const struct lag_meter *m, uint64_t offset, usec_t now);

#endif
