#include "pace.h"

#include <assert.h>

#define TOKEN INT64_C(1000000) /* a rate of r brings r of these parts a microsecond */
#define KEPT_FOR (100 * USEC_PER_MSEC)

static int64_t depth(const struct pace *p)
{
    return p->rate * KEPT_FOR + TOKEN;
}

void pace_init(struct pace *p, uint64_t rate)
{
    assert(rate <= PACE_MAX_RATE);
    *p = (struct pace){.rate = (int64_t)rate, .tokens = TOKEN};
}

uint64_t pace_depth(const struct pace *p)
{
    return (uint64_t)(depth(p) / TOKEN);
}

size_t pace_most(const struct pace *p)
{
    return p->rate == 0 ? SIZE_MAX : (size_t)(p->rate / 20 + 1);
}

static void count(struct pace *p, usec_t now)
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

usec_t pace_when(struct pace *p, size_t n, usec_t now)
{
    if (p->rate == 0)
        return now;
    count(p, now);
    int64_t wanted = n <= pace_depth(p) ? (int64_t)n * TOKEN : depth(p);
    return p->tokens >= wanted ? now : now + (wanted - p->tokens + p->rate - 1) / p->rate;
}

void pace_spend(struct pace *p, size_t n, usec_t now)
{
    if (p->rate == 0)
        return;
    count(p, now);
    p->tokens -= (int64_t)n * TOKEN;
}
