/* event_seconds: the time of an event as a JSON value, for every program that reads one.
 *
 * A time is a number in one of the units below, or RFC 3339 text (rfc3339.h). Fractions of a second are dropped.
 */
#ifndef MILLRACE_EVENT_SECONDS_H
#define MILLRACE_EVENT_SECONDS_H

#include "json/json_fields.h"

#define EVENT_SECONDS_UNITS "s|ms|us|ns"

/* Units of this name in a second; 0: unknown. */
int64_t event_seconds_units(const char *name);
/* Sets *out to the time in Unix seconds. A number beyond 64 bits is a time beyond all others. False: no time. */
bool event_seconds_read(const struct json_value *v, int64_t units_a_second, int64_t *out);
/* Reads also a text of digits as a number, and the texts of rfc3339_read_lenient that have a zone. */
bool event_seconds_read_lenient(const struct json_value *v, int64_t units_a_second, int64_t *out);

#endif
