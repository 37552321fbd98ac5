/* filter_layer: the counters of one layer, and their number for an error rate.
 *
 * A layer is an array of blocks of 4096 bytes; a block has 64 lines of 128 counters. All counters of a text are in two lines
 * of one block, `half` counters in each. A check therefore reads at most two lines of the cache, and an update changes
 * one page (Putze, Sanders and Singler 2007: "Cache-, Hash- and Space-Efficient Bloom Filters"). Lines fill unevenly, which
 * filter_shape_rate computes.
 *
 * 1. The counters of a text depend on its hash and the layer's shape alone.
 * 2. A counter never passes 15, a counter at 15 never changes, and no counter passes 0. */
#ifndef MILLRACE_FILTER_LAYER_H
#define MILLRACE_FILTER_LAYER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FILTER_BLOCK 4096
#define FILTER_LINE 64
enum { FILTER_LINES = FILTER_BLOCK / FILTER_LINE };
#define FILTER_LINE_COUNTERS 128
#define FILTER_HALF_MAX 8 /* seven bits for each counter of a line, six bits for the line */
#define FILTER_BLOCKS_MAX (UINT32_C(1) << 30)

struct filter_shape {
    uint32_t blocks, half;
};

struct filter_layer {
    struct filter_shape shape;
    unsigned char *counters; /* mapped */
    uint64_t *changed;       /* a bit for each block; NULL in a reader */
};

/* Where the counters of a text are: the block, two lines of the block, and for each line its counters (7 bits each). */
struct filter_place {
    uint32_t block; /* scaled to the number of blocks */
    uint32_t lines[2];
    uint64_t words[2];
};

static inline struct filter_place filter_place_of(uint64_t hash)
{
    uint64_t mixed = hash ^ hash >> 29;
    uint64_t a = mixed * UINT64_C(0x9e3779b97f4a7c15), b = mixed * UINT64_C(0xbf58476d1ce4e5b9);
    uint32_t line = (uint32_t)(a >> 58), other = (uint32_t)(b >> 58);
    return (struct filter_place){
        (uint32_t)(hash >> 32), {line, other ^ (other == line)}, {a ^ a >> 32, b ^ b >> 32}};
}

static inline size_t filter_layer_block(const struct filter_layer *l, const struct filter_place *p)
{
    return (size_t)((uint64_t)p->block * l->shape.blocks >> 32);
}

static inline unsigned char *filter_layer_line(
    const struct filter_layer *l, const struct filter_place *p, unsigned i)
{
    return l->counters + filter_layer_block(l, p) * FILTER_BLOCK + (size_t)p->lines[i] * FILTER_LINE;
}

/* Has no branches, because about half of all counters are 0, at random. */
static inline bool filter_line_has(const unsigned char *line, uint64_t word, unsigned half)
{
    unsigned has = 1;
    for (unsigned i = 0; i < half; i++, word >>= 7)
        has &= (line[(word & 127) >> 1] >> ((word & 1) * 4) & 15) != 0;
    return has;
}

static inline bool filter_layer_has(const struct filter_layer *l, const struct filter_place *p)
{
    return filter_line_has(filter_layer_line(l, p, 0), p->words[0], l->shape.half) &&
           filter_line_has(filter_layer_line(l, p, 1), p->words[1], l->shape.half);
}

/* Adds 1 or -1 to each counter of a text, once, and marks the block as changed. */
void filter_layer_change(struct filter_layer *l, const struct filter_place *p, int by);

/* The smallest shape that has at most this error rate with this number of members. */
struct filter_shape filter_shape_for(uint64_t members, double rate);
/* The expected error rate. */
double filter_shape_rate(struct filter_shape s, uint64_t members);
/* Length in the file: a multiple of 64 KiB, the largest page of any processor. */
uint64_t filter_shape_bytes(struct filter_shape s);

#endif
