/* zipf: random numbers and Zipf-distributed ranks, the same on every machine.
 *
 * Integers only: floating point may round differently elsewhere, so one seed would produce different events. */
#ifndef MILLRACE_ZIPF_H
#define MILLRACE_ZIPF_H

#include <stddef.h>
#include <stdint.h>

/* SplitMix64 (Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014). */
uint64_t random_next(uint64_t *state);
/* The n-th number of a seed. */
uint64_t random_of(uint64_t seed, uint64_t n);
/* 0 <= result < bound. */
uint64_t random_below(uint64_t *state, uint64_t bound);

/* Ranks 0..n-1, where rank r has the weight 1 / (r + 1)^(exponent_milli / 1000). */
struct zipf;
struct zipf *zipf_new(size_t n, unsigned exponent_milli); /* n >= 1, exponent up to 3000 */
void zipf_free(struct zipf **z);
/* `random` is a uniform 64-bit number. */
size_t zipf_rank(const struct zipf *z, uint64_t random);

#endif
