#include "sets/set_bits.h"

#define WORD 64

/* The compiler makes a version for processors with AVX2 and POPCNT, and the loader selects one. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__)
#define VECTOR __attribute__((target_clones("arch=haswell", "default"), optimize("O3")))
#else
#define VECTOR
#endif

VECTOR void set_bits_or(uint64_t *restrict to, const uint64_t *restrict from)
{
    for (size_t i = 0; i < SET_BITS_WORDS; i++)
        to[i] |= from[i];
}

VECTOR void set_bits_and(uint64_t *restrict to, const uint64_t *restrict from)
{
    for (size_t i = 0; i < SET_BITS_WORDS; i++)
        to[i] &= from[i];
}

VECTOR void set_bits_and_not(uint64_t *restrict to, const uint64_t *restrict from)
{
    for (size_t i = 0; i < SET_BITS_WORDS; i++)
        to[i] &= ~from[i];
}

VECTOR uint64_t set_bits_count(const uint64_t *bits)
{
    uint64_t n = 0;
    for (size_t i = 0; i < SET_BITS_WORDS; i++)
        n += (uint64_t)__builtin_popcountll(bits[i]);
    return n;
}

void set_bits_add_list(uint64_t *bits, const uint16_t *list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        bits[list[i] / WORD] |= UINT64_C(1) << list[i] % WORD;
}

void set_bits_add_range(uint64_t *bits, uint32_t first, uint32_t last)
{
    uint64_t low = UINT64_MAX << first % WORD, high = UINT64_MAX >> (WORD - 1 - last % WORD);
    size_t from = first / WORD, to = last / WORD;
    if (from == to) {
        bits[from] |= low & high;
        return;
    }
    bits[from] |= low;
    for (size_t i = from + 1; i < to; i++)
        bits[i] = UINT64_MAX;
    bits[to] |= high;
}

size_t set_bits_list(const uint64_t *bits, uint16_t *out, size_t most)
{
    size_t n = 0;
    for (size_t i = 0; i < SET_BITS_WORDS; i++)
        for (uint64_t left = bits[i]; left != 0 && n < most; left &= left - 1)
            out[n++] = (uint16_t)(i * WORD + (size_t)__builtin_ctzll(left));
    return n;
}
