/* backoff: exponential backoff with jitter.
 *
 * After the n-th failure in a row, backoff_failed returns a random wait between d/2 and d, where d is min * 2^(n-1)
 * but at most max. Because the waits are random, clients that failed at the same moment retry at different moments.
 * backoff_succeeded resets n to 0. */
#ifndef MILLRACE_BACKOFF_H
#define MILLRACE_BACKOFF_H

#include "base/clock.h"

struct backoff {
    usec_t min, max;
    usec_t current; /* d after the last failure; 0: no failure */
    uint64_t random;
};

/* 0 < min <= max. `seed` should differ between processes. */
void backoff_init(struct backoff *b, usec_t min, usec_t max, uint64_t seed);
usec_t backoff_failed(struct backoff *b); /* returns the time to wait */
void backoff_succeeded(struct backoff *b);

#endif
