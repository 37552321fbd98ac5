#include "api/retention_count.h"

#include "base/text_hash.h"
#include "sets/set_bits.h"

#include <assert.h>
#include <roaring/roaring.h>
#include <stdlib.h>

#define CHUNKS 0x10000
#define RANGE_HASHES 16384 /* hashes of a range, on average */
#define RANGE_BITS_MAX 24

struct walk {
    const struct set_view *views;
    const uint32_t *unit_of;
    size_t n;
    uint32_t n_units;
    uint64_t *table;
    size_t *at; /* next container or hash of each view */
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

/* The hashes of one range, and the units of each. */
struct places {
    struct place {
        uint64_t code, in;
    } * list;
    size_t room; /* a power of two */
    uint64_t factor;
};

static void clear_places(struct places *p, size_t codes)
{
    size_t room = 2;
    while (room < 2 * codes)
        room *= 2;
    if (room > p->room || p->room / 8 > room) {
        free(p->list);
        p->list = mem_alloc(room * sizeof *p->list);
        p->room = room;
    }
    memset(p->list, 0, p->room * sizeof *p->list);
}

static void add_hash(struct places *p, uint64_t code, uint64_t unit)
{
    size_t i = (size_t)(code * p->factor >> 32) & (p->room - 1);
    while (p->list[i].in != 0 && p->list[i].code != code)
        i = (i + 1) & (p->room - 1);
    p->list[i].code = code;
    p->list[i].in |= unit;
}

/* Returns the index of the first hash of the view above `last`. */
static size_t end_of(const struct set_view *v, size_t low, uint64_t last)
{
    size_t high = v->n_hashes;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (v->hashes[middle] <= last)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void count_range(struct walk *w, struct places *p, uint64_t last)
{
    size_t codes = 0;
    for (size_t v = 0; v < w->n; v++)
        codes += end_of(&w->views[v], w->at[v], last) - w->at[v];
    if (codes == 0)
        return;
    clear_places(p, codes);
    for (size_t v = 0; v < w->n; v++) {
        const struct set_view *view = &w->views[v];
        for (; w->at[v] < view->n_hashes && view->hashes[w->at[v]] <= last; w->at[v]++)
            add_hash(p, view->hashes[w->at[v]], UINT64_C(1) << w->unit_of[v]);
    }
    for (size_t i = 0; i < p->room; i++) {
        uint64_t in = p->list[i].in;
        uint64_t *row = in ? w->table + (size_t)__builtin_ctzll(in) * w->n_units : NULL;
        for (; in; in &= in - 1)
            row[__builtin_ctzll(in)]++;
    }
}

static void count_hashes(struct walk *w)
{
    struct places p = {.factor = text_hash_seed() | 1};
    uint64_t hashes = 0;
    unsigned bits = 0;
    for (size_t v = 0; v < w->n; v++)
        hashes += w->views[v].n_hashes;
    while (bits < RANGE_BITS_MAX && hashes >> bits > RANGE_HASHES)
        bits++;
    memset(w->at, 0, w->n * sizeof *w->at);
    for (uint64_t range = 0; hashes > 0 && range < UINT64_C(1) << bits; range++)
        count_range(w, &p, bits ? ((range + 1) << (64 - bits)) - 1 : UINT64_MAX);
    free(p.list);
}

void retention_count(
    const struct set_view *views, const uint32_t *unit_of, size_t n, uint32_t n_units, uint64_t *table)
{
    struct walk w = {views, unit_of, n, n_units, table, mem_zalloc((n + 1) * sizeof(size_t))};
    assert(n_units > 0 && n_units <= RETENTION_UNITS_MAX);
    memset(table, 0, (size_t)n_units * n_units * sizeof *table);
    count_numbers(&w);
    count_hashes(&w);
    free(w.at);
}
