/* event_time: extracts an event's time from a line, reading as little of it as is safe.
 *
 * 1. For a JSON object the result is the time in the field that a path (json_path.h) names, as the aggregator reads it
 *    (event_seconds.h), from 0 to 10^15 seconds. Of duplicate members the last counts.
 * 2. In a line that is not strict JSON, the last plain occurrence of the field counts ("t": 1331923247). The line is
 *    not validated. */
#ifndef MILLRACE_EVENT_TIME_H
#define MILLRACE_EVENT_TIME_H

#include "base/bytes.h"

struct event_time;

/* `divisor`: the units of a number in a second (event_seconds_units). The path is copied. */
struct event_time *event_time_new(const char *field, int64_t divisor);
void event_time_free(struct event_time **e);
/* `line` is without its LF. False: no usable time, and *seconds is unchanged. */
bool event_time_of(struct event_time *e, struct bytes line, int64_t *seconds);

#endif
