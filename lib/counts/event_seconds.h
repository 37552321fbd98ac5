/* event_seconds: reads the time of an event from a JSON value.
 *
 * A time is a number in one of the units below, or RFC 3339 text (rfc3339.h). Fractions of a second are dropped.
 */
#ifndef MILLRACE_EVENT_SECONDS_H
#define MILLRACE_EVENT_SECONDS_H

#include "json/json_fields.h"

#define EVENT_SECONDS_UNITS "s|ms|us|ns"

/* Returns how many units with this name a second has, or 0 if the name is unknown. */
int64_t event_seconds_units(const char *name);
/* Sets *out to the time in Unix seconds. A number beyond 64 bits becomes a time after or before all valid times.
 * Returns false if the value is not a time. */
bool event_seconds_read(const struct json_value *v, int64_t units_a_second, int64_t *out);
/* Like event_seconds_read, but also accepts a text that contains a number, and texts with a zone that
 * rfc3339_read_lenient accepts. */
bool event_seconds_read_lenient(const struct json_value *v, int64_t units_a_second, int64_t *out);

#endif
