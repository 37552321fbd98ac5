/* pace: a rate that is reached though timers and answers are late: a bucket of tokens, one for each thing done.
 *
 * Tokens come at `rate` a second and at most pace_depth of them are kept: a tenth of a second's worth, and one. What lateness
 * left unused is made up from them; more, as after a pause or a failure, is gone. The first call finds one token.
 *
 * 1. In any stretch of time t no more than rate * t + rate / 10 + 1 are spent, when no more than pace_depth are at once.
 * 2. No token is lost, so the rate is reached, where there is always something to do, at most pace_most at once, what may be
 *    done at once takes less time than its tokens, and what has to wait begins less than 50 ms late.
 */
#ifndef MILLRACE_PACE_H
#define MILLRACE_PACE_H

#include "clock.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PACE_MAX_RATE 1000000000

struct pace {
    int64_t rate;   /* a second; 0: no bound */
    int64_t tokens; /* millionths; below 0 when more than there was was spent */
    usec_t seen;    /* when these were counted */
    bool begun;
};

void pace_init(struct pace *p, uint64_t rate);
uint64_t pace_depth(const struct pace *p);
size_t pace_most(const struct pace *p); /* what is to be done at once at most; SIZE_MAX without a bound */
/* When n may be done: `now`, or later. */
usec_t pace_when(struct pace *p, size_t n, usec_t now);
void pace_spend(struct pace *p, size_t n, usec_t now);

#endif
