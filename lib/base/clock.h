/* clock: the monotonic clock and the wall clock, in microseconds. Leases, backoff and latencies use the monotonic
 * clock. Times in files and replies use the wall clock (microseconds since 1970, UTC). Core modules take times as
 * arguments and never call a clock. */
#ifndef MILLRACE_CLOCK_H
#define MILLRACE_CLOCK_H

#include <stdint.h>

typedef int64_t usec_t;
#define USEC_PER_SEC INT64_C(1000000)
#define USEC_PER_MSEC INT64_C(1000)

usec_t clock_monotonic(void);
usec_t clock_boot(void); /* monotonic clock that includes the time in suspend */
usec_t clock_wall(void);
void clock_sleep(usec_t t); /* a signal ends the sleep early */

#endif
