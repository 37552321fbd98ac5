#include "metricdb/query_params.h"

#include "base/rfc3339.h"
#include "metrics/metric_duration.h"

#include <math.h>
#include <stdlib.h>

#define NUMBER_MAX 63

/* Reads decimal seconds as milliseconds, rounded. */
static bool read_seconds(struct bytes text, int64_t *out)
{
    char copy[NUMBER_MAX + 1], *end;
    if (text.len == 0 || text.len > NUMBER_MAX)
        return false;
    for (size_t i = 0; i < text.len; i++)
        if (!strchr("0123456789+-.eE", text.ptr[i]) || !text.ptr[i])
            return false;
    memcpy(copy, text.ptr, text.len);
    copy[text.len] = '\0';
    double ms = strtod(copy, &end) * 1000;
    if (*end || !(fabs(ms) <= (double)QUERY_TIME_MAX))
        return false;
    *out = llround(ms);
    return true;
}

bool query_time_read(struct bytes text, int64_t *out)
{
    int64_t seconds, ms = 0, unit = 100;
    if (read_seconds(text, out))
        return true;
    if (!rfc3339_read(text, &seconds))
        return false;
    const char *at = memchr(text.ptr, '.', text.len), *end = text.ptr + text.len;
    for (at = at ? at + 1 : end; at < end && *at >= '0' && *at <= '9'; at++, unit /= 10)
        ms += (*at - '0') * unit;
    *out = seconds * 1000 + ms;
    return *out >= QUERY_TIME_MIN && *out <= QUERY_TIME_MAX;
}

bool query_duration_read(struct bytes text, int64_t *out)
{
    return read_seconds(text, out) || !metric_duration_read(text, out);
}
