/* clock: the two times a daemon knows. Core modules take times as arguments; only wiring calls these.
 * Both in microseconds. Leases, backoff and latencies are on the monotonic one; what is stored or shown
 * is on the wall clock (since 1970, UTC). */
#ifndef MILLRACE_CLOCK_H
#define MILLRACE_CLOCK_H

#include <stdint.h>

typedef int64_t usec_t;
#define USEC_PER_SEC INT64_C(1000000)
#define USEC_PER_MSEC INT64_C(1000)

usec_t clock_monotonic(void);
usec_t clock_wall(void);

#endif
