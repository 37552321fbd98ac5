#include "sets/set_algebra.h"

#include "base/lower_bound.h"
#include "base/text_hash.h"

#include <assert.h>
#include <roaring/roaring.h>
#include <stdlib.h>

#define CHUNKS ((size_t)1 << 16)
#define RANGE_HASHES 16384 /* hashes of a range, on average */
#define RANGE_BITS_MAX 24
#define RANGE_HASHES_MAX ((size_t)1 << 20) /* hashes of a range whose table is made */

struct cohort {
    const struct set_operand *operands;
    size_t n;
    uint64_t all, any, not ; /* operands of each role, as bits */
    uint64_t size;
};

static struct cohort cohort_of(const struct set_operand *operands, size_t n)
{
    struct cohort c = {.operands = operands, .n = n};
    assert(n > 0 && n <= SET_OPERANDS_MAX);
    for (size_t i = 0; i < n; i++)
        *(operands[i].role == SET_ALL     ? &c.all
            : operands[i].role == SET_ANY ? &c.any
                                          : &c.not ) |= UINT64_C(1) << i;
    assert((c.all | c.any) != 0);
    return c;
}

static bool is_counted(const struct cohort *c, uint64_t in)
{
    return (in & c->all) == c->all && (c->any == 0 || (in & c->any) != 0) && (in & c->not ) == 0;
}

/* One container of one view. */
struct part {
    const roaring_bitmap_t *of;
    uint32_t container, group;
};

/* The containers of all views, ordered by their chunks. The parts of chunk k are [first[k], first[k + 1]). */
struct parts {
    struct part *list;
    uint32_t *first;
};

static struct parts collect(const struct set_view *views, const uint32_t *group_of, size_t n_views)
{
    struct parts p = {.first = mem_zalloc((CHUNKS + 2) * sizeof *p.first)};
    size_t n = 0;
    for (int is_placing = 0; is_placing < 2; is_placing++) {
        for (size_t v = 0; v < n_views; v++) {
            const roaring_bitmap_t *of = views[v].numbers;
            for (int32_t k = 0; of && k < of->high_low_container.size; k++) {
                /* The first pass counts the parts of chunk k in first[k + 2]. After the sums below, first[k + 1] is the
                 * begin of chunk k, and the second pass moves it to the end of chunk k. */
                uint32_t *at = &p.first[of->high_low_container.keys[k] + (is_placing ? 1 : 2)];
                if (is_placing)
                    p.list[(*at)++] = (struct part){of, (uint32_t)k, group_of[v]};
                else
                    (*at)++;
                n += !is_placing;
            }
        }
        if (is_placing)
            break;
        for (size_t k = 2; k < CHUNKS + 2; k++)
            p.first[k] += p.first[k - 1];
        p.list = mem_alloc((n + 1) * sizeof *p.list);
    }
    return p;
}

void set_visit_chunks(const struct set_view *views, const uint32_t *group_of, size_t n, size_t n_groups,
    set_visit_chunk *visit, void *arg)
{
    struct parts p = collect(views, group_of, n);
    uint64_t(*bits)[SET_BITS_WORDS] = mem_alloc((n_groups + 1) * sizeof *bits);
    for (size_t k = 0; k < CHUNKS; k++) {
        uint64_t in = 0;
        for (uint32_t i = p.first[k]; i < p.first[k + 1]; i++) {
            const struct part *part = &p.list[i];
            bool is_first = !(in >> part->group & 1);
            in |= UINT64_C(1) << part->group;
            set_container_add(part->of, part->container, is_first, bits[part->group]);
        }
        if (in)
            visit(arg, bits, in);
    }
    free(bits);
    free(p.list);
    free(p.first);
}

/* Combines the accumulators of a chunk. An operand without a container in the chunk is empty, and has no bit in
 * `in`. */
static uint64_t count_chunk(const struct cohort *c, uint64_t (*bits)[SET_BITS_WORDS], uint64_t in)
{
    uint64_t *out = bits[c->n];
    bool has_any = false, has_out = false;
    if ((in & c->all) != c->all || (c->any != 0 && (in & c->any) == 0))
        return 0;
    for (size_t i = 0; i < c->n; i++) {
        if (c->operands[i].role != SET_ANY || !(in >> i & 1))
            continue;
        if (!has_any)
            memcpy(out, bits[i], SET_BITS_BYTES);
        else
            set_bits_or(out, bits[i]);
        has_any = has_out = true;
    }
    for (size_t i = 0; i < c->n; i++) {
        if (c->operands[i].role != SET_ALL)
            continue;
        if (!has_out)
            out = bits[i];
        else
            set_bits_and(out, bits[i]);
        has_out = true;
    }
    for (size_t i = 0; i < c->n; i++)
        if (c->operands[i].role == SET_NOT && in >> i & 1)
            set_bits_and_not(out, bits[i]);
    return set_bits_count(out);
}

/* The hashes of one range, and the groups of each. */
struct table {
    struct entry {
        uint64_t code, in;
    } * entries;
    size_t room; /* a power of two */
    unsigned shift;
    uint64_t factor; /* odd */
};

static void table_clear(struct table *t, size_t codes)
{
    size_t room = 1;
    unsigned bits = 0;
    while (room < 2 * codes) {
        room *= 2;
        bits++;
    }
    if (room > t->room || t->room / 8 > room) {
        free(t->entries);
        t->entries = mem_zalloc(room * sizeof *t->entries);
        t->room = room;
    } else {
        room = t->room;
        for (bits = 0; (size_t)1 << bits < room; bits++) {
        }
        memset(t->entries, 0, room * sizeof *t->entries);
    }
    t->shift = 64 - (bits ? bits : 1);
}

/* After a single product, codes at equal distances may collide: for one factor in a hundred, a search in such a table
 * takes 13 steps. */
static size_t place_of(const struct table *t, uint64_t code)
{
    uint64_t product = code * t->factor;
    return (size_t)((product ^ product >> 32) * t->factor >> t->shift) & (t->room - 1);
}

static void table_add(struct table *t, uint64_t code, uint64_t group)
{
    size_t i = place_of(t, code);
    while (t->entries[i].in != 0 && t->entries[i].code != code)
        i = (i + 1) & (t->room - 1);
    t->entries[i].code = code;
    t->entries[i].in |= group;
}

static unsigned range_bits(uint64_t hashes)
{
    unsigned bits = 0;
    while (bits < RANGE_BITS_MAX && hashes >> bits > RANGE_HASHES)
        bits++;
    return bits;
}

/* Returns the end of the hashes from `at` on that are at most `last`. */
static size_t end_of(const struct set_view *v, size_t at, uint64_t last)
{
    size_t step = 1, low = at;
    while (low + step < v->n_hashes && v->hashes[low + step] <= last) {
        low += step;
        step *= 2;
    }
    size_t high = low + step < v->n_hashes ? low + step : v->n_hashes;
    return LOWER_BOUND(i, low, high, v->hashes[i] <= last);
}

struct span {
    size_t at, end;
};

struct walk {
    const struct set_view *views;
    const uint32_t *group_of;
    size_t n;
    struct span *spans; /* the hashes of each view in the range */
    struct table table;
    set_visit_hash *visit;
    void *arg;
};

/* Visits the hashes in [first, last]. Halves a range with too many hashes, because clients can choose close hashes. */
static void walk_range(struct walk *w, uint64_t first, uint64_t last)
{
    size_t codes = 0;
    struct table *t = &w->table;
    for (size_t v = 0; v < w->n; v++) {
        w->spans[v].end = end_of(&w->views[v], w->spans[v].at, last);
        codes += w->spans[v].end - w->spans[v].at;
    }
    if (codes == 0)
        return;
    if (codes > RANGE_HASHES_MAX && first < last) {
        uint64_t middle = first + (last - first) / 2;
        walk_range(w, first, middle);
        walk_range(w, middle + 1, last);
        return;
    }
    table_clear(t, codes);
    for (size_t v = 0; v < w->n; v++) {
        for (size_t h = w->spans[v].at; h < w->spans[v].end; h++)
            table_add(t, w->views[v].hashes[h], UINT64_C(1) << w->group_of[v]);
        w->spans[v].at = w->spans[v].end;
    }
    for (size_t i = 0; i < t->room; i++)
        if (t->entries[i].in != 0)
            w->visit(w->arg, t->entries[i].in);
}

void set_visit_hashes(
    const struct set_view *views, const uint32_t *group_of, size_t n, set_visit_hash *visit, void *arg)
{
    uint64_t hashes = 0;
    struct walk w = {views, group_of, n, NULL, {.factor = text_hash_seed() | 1}, visit, arg};
    for (size_t v = 0; v < n; v++)
        hashes += views[v].n_hashes;
    if (hashes == 0)
        return;
    w.spans = mem_zalloc(n * sizeof *w.spans);
    unsigned bits = range_bits(hashes);
    for (uint64_t range = 0; range < UINT64_C(1) << bits; range++)
        walk_range(&w, bits ? range << (64 - bits) : 0, bits ? ((range + 1) << (64 - bits)) - 1 : UINT64_MAX);
    free(w.spans);
    free(w.table.entries);
}

static void add_chunk(void *arg, uint64_t (*bits)[SET_BITS_WORDS], uint64_t in)
{
    struct cohort *c = arg;
    c->size += count_chunk(c, bits, in);
}

static void add_hash(void *arg, uint64_t in)
{
    struct cohort *c = arg;
    c->size += is_counted(c, in);
}

uint64_t set_cohort_size(const struct set_operand *operands, size_t n)
{
    struct cohort c = cohort_of(operands, n);
    struct set_view *views = NULL;
    uint32_t *group_of = NULL;
    size_t n_views = 0, n_groups = 0, room = 0, room_groups = 0;
    for (size_t i = 0; i < n; i++) {
        for (size_t v = 0; v < operands[i].n; v++) {
            *ARRAY_ADD(views, n_views, room) = operands[i].views[v];
            *ARRAY_ADD(group_of, n_groups, room_groups) = (uint32_t)i;
        }
    }
    set_visit_chunks(views, group_of, n_views, n, add_chunk, &c);
    set_visit_hashes(views, group_of, n_views, add_hash, &c);
    free(views);
    free(group_of);
    return c.size;
}

uint64_t set_union_size(const struct set_view *views, size_t n)
{
    if (n == 1)
        return set_view_size(views);
    return n == 0 ? 0 : set_cohort_size(&(struct set_operand){SET_ALL, views, n}, 1);
}
