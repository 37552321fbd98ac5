#include "base/text_hash.h"

#include "base/xxh3.h"

#include <assert.h>
#include <sys/random.h>

static uint64_t seed;

/* draw_seed runs before main, so no thread can see a zero seed. */
__attribute__((constructor)) static void draw_seed(void)
{
    ssize_t got = getrandom(&seed, sizeof seed, 0);
    assert(got == (ssize_t)sizeof seed);
    (void)got;
}

uint64_t text_hash_seed(void)
{
    return seed;
}

uint64_t text_hash(struct bytes text)
{
    return XXH3_64bits_withSeed(text.ptr, text.len, seed);
}
