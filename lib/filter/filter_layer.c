#include "filter/filter_layer.h"

#include "base/lower_bound.h"

#include <assert.h>
#include <math.h>

#define ALIGN UINT64_C(65536)
#define DENSEST 4  /* counters a member */
#define LOOSEST 64 /* counters a member */
#define BLOCK_COUNTERS ((uint64_t)FILTER_LINES * FILTER_LINE_COUNTERS)

/* If two counters of a text coincide, the counter changes by 1: otherwise a few adds of this text would fill it. */
static void change_line(unsigned char *line, uint64_t word, unsigned half, int by)
{
    uint64_t changed[2] = {0, 0};
    for (unsigned i = 0; i < half; i++, word >>= 7) {
        uint64_t *half_line = &changed[word >> 6 & 1], bit = UINT64_C(1) << (word & 63);
        if (*half_line & bit)
            continue;
        *half_line |= bit;
        unsigned char *pair = &line[(word & 127) >> 1];
        unsigned shift = (word & 1) * 4;
        int n = *pair >> shift & 15;
        if (n < 15 && n + by >= 0)
            *pair = (unsigned char)((*pair & 0xf0 >> shift) | (n + by) << shift);
    }
}

void filter_layer_change(struct filter_layer *l, const struct filter_place *p, int by)
{
    size_t block = filter_layer_block(l, p);
    assert(l->changed && block < l->shape.blocks);
    for (unsigned i = 0; i < 2; i++)
        change_line(filter_layer_line(l, p, i), p->words[i], l->shape.half, by);
    l->changed[block / 64] |= UINT64_C(1) << block % 64;
}

/* The number of texts with counters in a line has a Poisson distribution. With n texts, each counter of another text is
 * above 0 with the probability `set`. */
static double line_rate(double mean, unsigned half)
{
    double rate = 0, probability = exp(-mean);
    int end = (int)(mean + 12 * sqrt(mean) + 20);
    for (int n = 1; n < end; n++) {
        double set = 1 - pow(1 - 1.0 / FILTER_LINE_COUNTERS, (double)n * half);
        probability *= mean / n;
        rate += probability * pow(set, half);
    }
    return rate;
}

/* Both lines of a text are in one block, so the rate depends on the number of texts in the block, too. Three points stand for
 * its distribution (Gauss-Hermite quadrature). */
double filter_shape_rate(struct filter_shape s, uint64_t members)
{
    double in_block = (double)members / s.blocks, spread = sqrt(3 * in_block);
    double low = line_rate(fmax(in_block - spread, 0) * 2 / FILTER_LINES, s.half);
    double middle = line_rate(in_block * 2 / FILTER_LINES, s.half);
    double high = line_rate((in_block + spread) * 2 / FILTER_LINES, s.half);
    return (low * low + 4 * middle * middle + high * high) / 6;
}

static struct filter_shape best_half(uint32_t blocks, uint64_t members, double *rate)
{
    struct filter_shape best = {blocks, 1};
    *rate = filter_shape_rate(best, members);
    for (uint32_t half = 2; half <= FILTER_HALF_MAX; half++) {
        struct filter_shape s = {blocks, half};
        double other = filter_shape_rate(s, members);
        best = other < *rate ? s : best;
        *rate = other < *rate ? other : *rate;
    }
    return best;
}

struct filter_shape filter_shape_for(uint64_t members, double rate)
{
    uint64_t low = members * DENSEST / BLOCK_COUNTERS + 1, high = members * LOOSEST / BLOCK_COUNTERS + 1;
    double found;
    assert(high <= FILTER_BLOCKS_MAX);
    uint32_t blocks =
        (uint32_t)LOWER_BOUND(i, low, high, (best_half((uint32_t)i, members, &found), found > rate));
    return best_half(blocks, members, &found);
}

uint64_t filter_shape_bytes(struct filter_shape s)
{
    return ((uint64_t)s.blocks * FILTER_BLOCK + ALIGN - 1) / ALIGN * ALIGN;
}
