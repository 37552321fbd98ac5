#include "api/retention_count.h"

#include "sets/set_algebra.h"

#include <assert.h>

#define FEW_MAX 256 /* numbers of a chunk for each unit that are counted one by one */

struct retention {
    uint32_t n_units;
    uint64_t *table;
};

/* Counts a member that is in the units `in`. */
static void count_member(void *arg, uint64_t in)
{
    const struct retention *r = arg;
    uint64_t *row = r->table + (size_t)__builtin_ctzll(in) * r->n_units;
    for (; in; in &= in - 1)
        row[__builtin_ctzll(in)]++;
}

/* Counts the numbers of a chunk one by one. Returns false if there are so many that count_chunk is faster. */
static bool count_few(void *arg, uint64_t (*bits)[SET_BITS_WORDS], uint64_t units)
{
    uint64_t all[SET_BITS_WORDS] = {0};
    uint16_t list[FEW_MAX * RETENTION_UNITS_MAX];
    size_t most = FEW_MAX * (size_t)__builtin_popcountll(units);
    for (uint64_t left = units; left; left &= left - 1)
        set_bits_or(all, bits[__builtin_ctzll(left)]);
    if (set_bits_count(all) > most)
        return false;
    size_t n = set_bits_list(all, list, most);
    for (size_t i = 0; i < n; i++) {
        uint64_t in = 0;
        for (uint64_t left = units; left; left &= left - 1) {
            unsigned unit = (unsigned)__builtin_ctzll(left);
            in |= (bits[unit][list[i] / 64] >> list[i] % 64 & 1) << unit;
        }
        count_member(arg, in);
    }
    return true;
}

/* Counts a chunk. `in` has the units that have accumulators. */
static void count_chunk(void *arg, uint64_t (*bits)[SET_BITS_WORDS], uint64_t in)
{
    const struct retention *r = arg;
    uint64_t seen[SET_BITS_WORDS] = {0}, fresh[SET_BITS_WORDS], both[SET_BITS_WORDS];
    if (count_few(arg, bits, in))
        return;
    for (; in; in &= in - 1) {
        uint32_t first = (uint32_t)__builtin_ctzll(in);
        memcpy(fresh, bits[first], sizeof fresh);
        set_bits_and_not(fresh, seen);
        set_bits_or(seen, bits[first]);
        for (uint64_t later = in; later; later &= later - 1) {
            uint32_t unit = (uint32_t)__builtin_ctzll(later);
            memcpy(both, fresh, sizeof both);
            set_bits_and(both, bits[unit]);
            r->table[first * r->n_units + unit] += set_bits_count(both);
        }
    }
}

void retention_count(
    const struct set_view *views, const uint32_t *unit_of, size_t n, uint32_t n_units, uint64_t *table)
{
    struct retention r = {n_units, table};
    assert(n_units > 0 && n_units <= RETENTION_UNITS_MAX);
    memset(table, 0, (size_t)n_units * n_units * sizeof *table);
    set_visit_chunks(views, unit_of, n, n_units, count_chunk, &r);
    set_visit_hashes(views, unit_of, n, count_member, &r);
}
