/* rate_limit: a token bucket, one token for each action.
 *
 * Tokens arrive at `rate` a second. The bucket holds at most rate_limit_burst of them: a tenth of a second's worth, plus one. A late
 * timer is thus made up for. After a pause longer than that, the surplus is lost. The first call finds one token.
 *
 * 1. In any time t at most rate * t + rate / 10 + 1 tokens are spent, as long as no action spends more than rate_limit_burst at once.
 * 2. The rate is reached if there is always work, at most rate_limit_batch actions run at once, they finish within the time their
 *    tokens take to arrive, and timers are less than 50 ms late.
 */
#ifndef MILLRACE_RATE_LIMIT_H
#define MILLRACE_RATE_LIMIT_H

#include "base/clock.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RATE_LIMIT_RATE_MAX 1000000000

struct rate_limit {
    int64_t rate;   /* per second; 0: unlimited */
    int64_t tokens; /* millionths; negative after overspending */
    usec_t seen;    /* when tokens were last counted */
    bool begun;
};

void rate_limit_init(struct rate_limit *p, uint64_t rate);
void rate_limit_fill(struct rate_limit *p); /* all the tokens that the bucket holds, at once */
uint64_t rate_limit_burst(const struct rate_limit *p);
size_t rate_limit_batch(
    const struct rate_limit *p); /* actions to run at once, at most; SIZE_MAX if unlimited */
/* When n actions may run: `now` or later. */
usec_t rate_limit_when(struct rate_limit *p, size_t n, usec_t now);
void rate_limit_spend(struct rate_limit *p, size_t n, usec_t now);

#endif
