/* lag: how far an offset is behind the end of its stream, in bytes, lines and seconds.
 *
 * The bytes are known at once. For lines and seconds a meter reads from the offset to the next point of the stream's line_index,
 * which is a few windows. Without such a point, once after a start, it reads everything up to the end of that time and adds
 * points on the way. So the numbers are as old as the last lag_look, and exact for an offset that does not move.
 *
 * The loop thread only. */
#ifndef MILLRACE_PUBSUB_LAG_H
#define MILLRACE_PUBSUB_LAG_H

#include "pubsub/stream/stream.h"

struct lag_meter;

struct lag {
    uint64_t bytes; /* without holes and deleted bytes */
    bool known;     /* lines and age are valid */
    uint64_t lines;
    usec_t age; /* of the line at the offset; 0 at the end */
};

struct lag_meter *lag_meter_new(struct stream *s);
void lag_meter_free(struct lag_meter **m);
/* Starts a measurement, unless one is under way or the last one was at this offset. */
void lag_look(struct lag_meter *m, uint64_t offset);
struct lag lag_read(const struct lag_meter *m, uint64_t offset, usec_t now);

#endif
