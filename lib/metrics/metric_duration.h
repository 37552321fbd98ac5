/* metric_duration: the durations of Prometheus, such as 1h30m, 5s and 100ms. */
#ifndef MILLRACE_METRIC_DURATION_H
#define MILLRACE_METRIC_DURATION_H

#include "base/bytes.h"

/* Reads a duration of y, w, d, h, m, s and ms, in this order, as milliseconds. Returns the reason of a refusal, or NULL. */
const char *metric_duration_read(struct bytes text, int64_t *milliseconds);

#endif
