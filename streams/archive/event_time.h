/* event_time: the time that an event tells, read with as little of its line as is sure.
 *
 * 1. Of a line that is a JSON object the answer is what its field says: the last one of that name, at the top level, a number
 *    from 0 to 10^15; fractions are cut.
 * 2. A line that is no strict JSON may still tell a time, when the field stands in it plainly ("t": 1331923247), the last one if
 *    there are several: such a line is not judged here. One that tells none has none. */
#ifndef MILLRACE_EVENT_TIME_H
#define MILLRACE_EVENT_TIME_H

#include "base/bytes.h"

struct event_time;

/* `divisor` is how many of the field's units are a second. The name is copied. */
struct event_time *event_time_new(const char *field, int64_t divisor);
void event_time_free(struct event_time **e);
/* Of a line without its LF. False: it tells no usable time, and *seconds is as it was. */
bool event_time_of(struct event_time *e, struct bytes line, int64_t *seconds);

#endif
