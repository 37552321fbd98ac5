#include "base/backoff.h"

#include <assert.h>

void backoff_init(struct backoff *b, usec_t min, usec_t max, uint64_t seed)
{
    assert(min > 0 && min <= max);
    *b = (struct backoff){.min = min, .max = max, .random = seed ? seed : 1};
}

usec_t backoff_failed(struct backoff *b)
{
    if (b->current == 0)
        b->current = b->min;
    else
        b->current = b->current > b->max / 2 ? b->max : b->current * 2;
    b->random ^= b->random >> 12; /* xorshift64* */
    b->random ^= b->random << 25;
    b->random ^= b->random >> 27;
    usec_t half = b->current / 2;
    return b->current - (usec_t)(b->random * UINT64_C(2685821657736338717) % (uint64_t)(half + 1));
}

void backoff_succeeded(struct backoff *b)
{
    b->current = 0;
}
