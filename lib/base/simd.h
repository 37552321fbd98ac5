/* simd: operations on 64 bytes at once (AVX2). Call a function marked SIMD only if simd_available() returns true. For
 * other processors, each caller also has a plain C version. */
#ifndef MILLRACE_SIMD_H
#define MILLRACE_SIMD_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __x86_64__
#include <immintrin.h>

#define SIMD __attribute__((target("avx2,bmi,popcnt")))
#define SIMD_STEP ((size_t)64) /* bytes of two vectors; simd_bits returns one bit for each byte */

static inline bool simd_available(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") &&
           __builtin_cpu_supports("popcnt");
}

SIMD static inline __m256i simd_at(const char *at)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)at);
}

/* Returns 0xFF in each byte of `v` that equals c, and 0 in the other bytes. */
SIMD static inline __m256i simd_equal(__m256i v, char c)
{
    return _mm256_cmpeq_epi8(v, _mm256_set1_epi8(c));
}

/* Prefetches bytes that a scan at `at` will soon reach, because bytes that were just received are not in the cache
 * yet. */
static inline void simd_fetch_ahead(const char *at)
{
    _mm_prefetch(at + 2048, _MM_HINT_T0);
}

/* Returns one bit for each byte of the two vectors: 1 if the byte is 0xFF. */
SIMD static inline uint64_t simd_bits(__m256i low, __m256i high)
{
    return (uint32_t)_mm256_movemask_epi8(low) | (uint64_t)(uint32_t)_mm256_movemask_epi8(high) << 32;
}
#endif

#endif
