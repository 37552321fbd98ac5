#include "tools/zipf.h"
#include "base/bytes.h"
#include <stdlib.h>

#define GOLDEN UINT64_C(0x9e3779b97f4a7c15)
#define ONE_BITS 31
#define ONE (UINT64_C(1) << ONE_BITS)
#define FRACTION_BITS 24

struct zipf {
    size_t n;
    uint64_t *up_to; /* sum of the weights of ranks 0..i */
};

static uint64_t mix(uint64_t z)
{
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

uint64_t random_next(uint64_t *state)
{
    return mix(*state += GOLDEN);
}

uint64_t random_of(uint64_t seed, uint64_t n)
{
    return mix(mix(seed + GOLDEN) ^ (n + 1) * GOLDEN);
}

static uint64_t scale(uint64_t random, uint64_t bound)
{
    return (uint64_t)((unsigned __int128)random * bound >> 64);
}

uint64_t random_below(uint64_t *state, uint64_t bound)
{
    return scale(random_next(state), bound);
}

/* log2(x) with FRACTION_BITS bits: squaring a number in [1, 2) doubles its logarithm; reaching 2 is the next bit. */
static uint64_t log2_fixed(uint64_t x)
{
    unsigned whole = 63 - (unsigned)__builtin_clzll(x);
    uint64_t log = whole, m = whole > ONE_BITS ? x >> (whole - ONE_BITS) : x << (ONE_BITS - whole);
    for (int i = 0; i < FRACTION_BITS; i++) {
        m = m * m >> ONE_BITS;
        bool bit = m >= 2 * ONE;
        m >>= bit;
        log = log << 1 | bit;
    }
    return log;
}

/* roots[k] is 2^-(2^-(k+1)), the factor of fraction bit k of an exponent. Each root is the square root of the previous root. */
static void make_roots(uint64_t roots[FRACTION_BITS])
{
    uint64_t root = ONE / 2;
    for (int i = 0; i < FRACTION_BITS; i++) {
        uint64_t square = root << ONE_BITS;
        root = 0;
        for (uint64_t bit = UINT64_C(1) << 31; bit; bit >>= 1)
            if ((root | bit) * (root | bit) <= square)
                root |= bit;
        roots[i] = root;
    }
}

/* 2^-e, where e has FRACTION_BITS bits; never 0, so that every rank can occur. */
static uint64_t exp2_minus(uint64_t e, const uint64_t roots[FRACTION_BITS])
{
    uint64_t whole = e >> FRACTION_BITS, value = ONE;
    for (int i = 0; i < FRACTION_BITS; i++)
        if (e >> (FRACTION_BITS - 1 - i) & 1)
            value = value * roots[i] >> ONE_BITS;
    value = whole > ONE_BITS ? 0 : value >> whole;
    return value ? value : 1;
}

struct zipf *zipf_new(size_t n, unsigned exponent_milli)
{
    struct zipf *z = mem_alloc(sizeof *z);
    uint64_t roots[FRACTION_BITS], sum = 0;
    make_roots(roots);
    z->n = n;
    z->up_to = mem_alloc(n * sizeof *z->up_to);
    for (size_t i = 0; i < n; i++)
        z->up_to[i] = sum += exp2_minus(log2_fixed(i + 1) * exponent_milli / 1000, roots);
    return z;
}

void zipf_free(struct zipf **z)
{
    free((*z)->up_to);
    free(*z);
    *z = NULL;
}

size_t zipf_rank(const struct zipf *z, uint64_t random)
{
    uint64_t at = scale(random, z->up_to[z->n - 1]);
    size_t low = 0, high = z->n - 1;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (at < z->up_to[middle])
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}
