/* The bare loop of bench_sets: days of users as raw bitmaps in memory, united and counted in blocks that stay in the cache.
 * Shares no code with millrace.
 *   bare_sets USERS_MILLION PERCENT ROUNDS         prints "DAYS MEMBERS MICROSECONDS" for 1, 7 and 30 days (median)
 *   bare_sets USERS_MILLION PERCENT 0 DAY FILE     writes the bitmap of a day, for a peer */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define DAYS 30
#define BLOCK 1024 /* words */

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

/* Each day has its own sequence of pseudo-random numbers, a number a user. bench_sets has the same. */
static uint64_t next(uint64_t *state)
{
    *state += UINT64_C(0x9e3779b97f4a7c15);
    uint64_t z = (*state ^ *state >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    return z ^ z >> 31;
}

__attribute__((target_clones("arch=haswell", "default"), optimize("O3"))) static uint64_t unite(
    uint64_t *const *days, size_t n, size_t words)
{
    uint64_t count = 0, sum[BLOCK];
    for (size_t from = 0; from < words; from += BLOCK) {
        size_t len = words - from < BLOCK ? words - from : BLOCK;
        memcpy(sum, days[0] + from, len * sizeof *sum);
        for (size_t d = 1; d < n; d++)
            for (size_t i = 0; i < len; i++)
                sum[i] |= days[d][from + i];
        for (size_t i = 0; i < len; i++)
            count += (uint64_t)__builtin_popcountll(sum[i]);
    }
    return count;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static uint64_t *make_day(uint64_t day, size_t users, size_t words, uint64_t percent)
{
    uint64_t state = day, *bits = calloc(words, sizeof *bits);
    for (size_t u = 0; bits && u < users; u++)
        if (next(&state) % 100 < percent)
            bits[u / 64] |= UINT64_C(1) << u % 64;
    return bits;
}

static int write_day(const char *path, const uint64_t *bits, size_t words)
{
    FILE *f = fopen(path, "w");
    return f && fwrite(bits, sizeof *bits, words, f) == words && fclose(f) == 0 ? 0 : 1;
}

int main(int argc, char **argv)
{
    if (argc != 4 && argc != 6)
        return 64;
    size_t users = (size_t)atoi(argv[1]) * 1000000, words = (users + 63) / 64;
    uint64_t percent = (uint64_t)atoi(argv[2]), *days[DAYS];
    int rounds = atoi(argv[3]);
    if (argc == 6)
        return write_day(argv[5], make_day((uint64_t)atoi(argv[4]), users, words, percent), words);
    double *took = malloc((size_t)rounds * sizeof *took);
    for (size_t d = 0; d < DAYS; d++)
        days[d] = make_day(d, users, words, percent);
    static const size_t spans[] = {1, 7, 30};
    for (size_t s = 0; s < 3; s++) {
        uint64_t n = 0;
        for (int r = 0; r < rounds; r++) {
            double start = now();
            n = unite(days, spans[s], words);
            took[r] = now() - start;
        }
        qsort(took, (size_t)rounds, sizeof *took, compare);
        printf("%zu %llu %.1f\n", spans[s], (unsigned long long)n, took[rounds / 2]);
    }
    return 0;
}
