/* query_params: the times and durations of Prometheus' HTTP API.
 *
 * Times are milliseconds since 1970, between QUERY_TIME_MIN and QUERY_TIME_MAX. */
#ifndef MILLRACE_QUERY_PARAMS_H
#define MILLRACE_QUERY_PARAMS_H

#include "base/bytes.h"

#define QUERY_TIME_MAX INT64_C(253402300799999) /* the end of the year 9999 */
#define QUERY_TIME_MIN (-QUERY_TIME_MAX)

/* Reads seconds since 1970 ("1732977600.125"), or RFC 3339 with an optional fraction. Returns false for another form, or for a
 * time that is out of bounds. */
bool query_time_read(struct bytes text, int64_t *out);
/* Reads seconds ("15", "0.5"), or a duration of y, w, d, h, m, s and ms in this order ("1h30m"). Returns false for another
 * form. The result may be 0 or negative. */
bool query_duration_read(struct bytes text, int64_t *out);

#endif
