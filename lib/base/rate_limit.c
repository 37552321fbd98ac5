#include "base/rate_limit.h"

#include <assert.h>

#define TOKEN INT64_C(1000000) /* r tokens per second are r millionths of a token per microsecond */
#define KEPT_FOR (100 * USEC_PER_MSEC)

static int64_t depth(const struct rate_limit *p)
{
    return p->rate * KEPT_FOR + TOKEN;
}

void rate_limit_init(struct rate_limit *p, uint64_t rate)
{
    assert(rate <= RATE_LIMIT_RATE_MAX);
    *p = (struct rate_limit){.rate = (int64_t)rate, .tokens = TOKEN};
}

void rate_limit_fill(struct rate_limit *p)
{
    p->tokens = depth(p);
}

uint64_t rate_limit_burst(const struct rate_limit *p)
{
    return (uint64_t)(depth(p) / TOKEN);
}

size_t rate_limit_batch(const struct rate_limit *p)
{
    return p->rate == 0 ? SIZE_MAX : (size_t)(p->rate / 20 + 1);
}

static void count(struct rate_limit *p, usec_t now)
{
    if (!p->begun)
        p->seen = now;
    p->begun = true;
    if (now <= p->seen)
        return;
    usec_t passed = now - p->seen;
    bool full = passed > (depth(p) - p->tokens) / p->rate;
    p->tokens = full ? depth(p) : p->tokens + passed * p->rate;
    p->seen = now;
}

usec_t rate_limit_when(struct rate_limit *p, size_t n, usec_t now)
{
    if (p->rate == 0)
        return now;
    count(p, now);
    int64_t wanted = n <= rate_limit_burst(p) ? (int64_t)n * TOKEN : depth(p);
    return p->tokens >= wanted ? now : now + (wanted - p->tokens + p->rate - 1) / p->rate;
}

void rate_limit_spend(struct rate_limit *p, size_t n, usec_t now)
{
    if (p->rate == 0)
        return;
    count(p, now);
    p->tokens -= (int64_t)n * TOKEN;
}
