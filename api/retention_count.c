#include "api/retention_count.h"

#include "sets/set_algebra.h"
#include "sets/set_bits.h"

#include <assert.h>
#include <roaring/roaring.h>
#include <stdlib.h>

#define CHUNKS 0x10000

struct walk {
    const struct set_view *views;
    const uint32_t *unit_of;
    size_t n;
    uint32_t n_units;
    uint64_t *table;
    size_t *at; /* next container of each view */
};

/* Returns the lowest chunk that a view still has, or CHUNKS. */
static uint32_t next_chunk(const struct walk *w)
{
    uint32_t least = CHUNKS;
    for (size_t v = 0; v < w->n; v++) {
        const struct roaring_bitmap_s *of = w->views[v].numbers;
        if (of && w->at[v] < (size_t)of->high_low_container.size &&
            of->high_low_container.keys[w->at[v]] < least)
            least = of->high_low_container.keys[w->at[v]];
    }
    return least;
}

/* Counts a chunk. `in` has the units that have accumulators. */
static void count_chunk(struct walk *w, uint64_t (*bits)[SET_BITS_WORDS], uint64_t in)
{
    uint64_t seen[SET_BITS_WORDS] = {0}, fresh[SET_BITS_WORDS], both[SET_BITS_WORDS];
    for (; in; in &= in - 1) {
        uint32_t first = (uint32_t)__builtin_ctzll(in);
        memcpy(fresh, bits[first], sizeof fresh);
        set_bits_and_not(fresh, seen);
        set_bits_or(seen, bits[first]);
        for (uint64_t later = in; later; later &= later - 1) {
            uint32_t unit = (uint32_t)__builtin_ctzll(later);
            memcpy(both, fresh, sizeof both);
            set_bits_and(both, bits[unit]);
            w->table[first * w->n_units + unit] += set_bits_count(both);
        }
    }
}

static void count_numbers(struct walk *w)
{
    uint64_t(*bits)[SET_BITS_WORDS] = mem_alloc(w->n_units * sizeof *bits);
    for (uint32_t chunk; (chunk = next_chunk(w)) < CHUNKS;) {
        uint64_t in = 0;
        for (size_t v = 0; v < w->n; v++) {
            const struct roaring_bitmap_s *of = w->views[v].numbers;
            uint32_t unit = w->unit_of[v];
            if (!of || w->at[v] == (size_t)of->high_low_container.size ||
                of->high_low_container.keys[w->at[v]] != chunk)
                continue;
            set_container_add(of, w->at[v]++, !(in >> unit & 1), bits[unit]);
            in |= UINT64_C(1) << unit;
        }
        count_chunk(w, bits, in);
    }
    free(bits);
}

static void count_hash(void *arg, uint64_t in)
{
    const struct walk *w = arg;
    uint64_t *row = w->table + (size_t)__builtin_ctzll(in) * w->n_units;
    for (; in; in &= in - 1)
        row[__builtin_ctzll(in)]++;
}

void retention_count(
    const struct set_view *views, const uint32_t *unit_of, size_t n, uint32_t n_units, uint64_t *table)
{
    struct walk w = {views, unit_of, n, n_units, table, mem_zalloc((n + 1) * sizeof(size_t))};
    assert(n_units > 0 && n_units <= RETENTION_UNITS_MAX);
    memset(table, 0, (size_t)n_units * n_units * sizeof *table);
    count_numbers(&w);
    set_visit_hashes(views, unit_of, n, count_hash, &w);
    free(w.at);
}
