/* event_time: extracts an event's time from a line, usually without parsing the whole line.
 *
 * 1. The time of a JSON object is the value of the field that a path (json_path.h) names, in the formats of
 *    event_seconds.h. The time must be from 0 to 10^15 seconds. If the field occurs twice, the last value is used.
 * 2. If a line is not strict JSON, its time is still read, from the last plain occurrence of the field, such as
 *    "t": 1331923247. */
#ifndef MILLRACE_EVENT_TIME_H
#define MILLRACE_EVENT_TIME_H

#include "base/bytes.h"

struct event_time;

/* `field` is the path of the field, which is copied. If the field is a number, `divisor` is the number of its units per
 * second (event_seconds_units). */
struct event_time *event_time_new(const char *field, int64_t divisor);
void event_time_free(struct event_time **e);
/* Reads the time of a line without its LF. Returns false, and does not set *seconds, if the line has no usable time. */
bool event_time_of(struct event_time *e, struct bytes line, int64_t *seconds);

#endif
