/* rate_limit: a token bucket, one token for each action.
 *
 * `rate` tokens arrive per second. The bucket holds at most rate_limit_burst tokens: the tokens of a tenth of a
 * second, plus one. Therefore a timer may be up to a tenth of a second late without losing tokens. During a longer
 * pause, the bucket drops tokens beyond rate_limit_burst. The bucket begins with one token.
 *
 * 1. In t seconds, actions spend at most rate * t + rate / 10 + 1 tokens, unless one action spends more than
 *    rate_limit_burst tokens.
 * 2. A caller reaches the full rate if it runs at most rate_limit_batch actions at once and its timers are less
 *    than 50 ms late. */
#ifndef MILLRACE_RATE_LIMIT_H
#define MILLRACE_RATE_LIMIT_H

#include "base/clock.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RATE_LIMIT_RATE_MAX 1000000000

struct rate_limit {
    int64_t rate;   /* tokens per second; 0: unlimited */
    int64_t tokens; /* millionths of a token; negative after overspending */
    usec_t seen;    /* time up to which tokens were added */
    bool begun;
};

void rate_limit_init(struct rate_limit *p, uint64_t rate);
void rate_limit_fill(struct rate_limit *p); /* fills the bucket */
uint64_t rate_limit_burst(const struct rate_limit *p);
size_t rate_limit_batch(const struct rate_limit *p); /* SIZE_MAX if unlimited */
/* Returns the earliest time at which n actions may run: `now` or later. */
usec_t rate_limit_when(struct rate_limit *p, size_t n, usec_t now);
void rate_limit_spend(struct rate_limit *p, size_t n, usec_t now);

#endif
