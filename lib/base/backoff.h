/* backoff: exponential backoff with jitter.
 *
 * After the n-th failure in a row, the wait is a random time in [d/2, d], where d = min * 2^(n-1), at most max. Random times keep
 * clients that failed together from retrying together. A success resets n. */
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
usec_t backoff_failed(struct backoff *b); /* the time to wait */
void backoff_succeeded(struct backoff *b);

#endif
