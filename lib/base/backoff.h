/* backoff: how long to wait before the next try at something that fails.
 *
 * The n-th failure in a row waits a random time of [d/2, d], d = min * 2^(n-1), at most max: many clients of one
 * server that failed together do not come back together. One success forgets all failures. */
#ifndef MILLRACE_BACKOFF_H
#define MILLRACE_BACKOFF_H

#include "base/clock.h"

struct backoff {
    usec_t min, max;
    usec_t current; /* d of the next failure; 0: none in a row yet */
    uint64_t random;
};

/* 0 < min <= max. `seed` is anything that differs between processes. */
void backoff_init(struct backoff *b, usec_t min, usec_t max, uint64_t seed);
usec_t backoff_failed(struct backoff *b); /* the time to wait */
void backoff_succeeded(struct backoff *b);

#endif
