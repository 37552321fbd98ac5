#include "counts/id_index.h"

#include "base/bytes.h"

#include <stdlib.h>

static void put(struct id_index_part *p, uint64_t slot)
{
    uint32_t mask = p->n_slots - 1, at = (uint32_t)(slot >> 32);
    while (p->slots[at & mask])
        at++;
    p->slots[at & mask] = slot;
}

/* Returns the number of ids with which part i grows: 3/8 to 5/8 of its slots, so that the parts do not all grow at
 * once. */
static uint32_t limit_of(size_t i, uint32_t n_slots)
{
    return (uint32_t)((uint64_t)n_slots * (3 * ID_INDEX_PARTS + 1 + 2 * i) / (8 * ID_INDEX_PARTS));
}

void id_index_init(struct id_index *x)
{
    for (size_t i = 0; i < ID_INDEX_PARTS; i++)
        x->parts[i] = (struct id_index_part){
            &x->first[i * ID_INDEX_FIRST_SLOTS], ID_INDEX_FIRST_SLOTS, limit_of(i, ID_INDEX_FIRST_SLOTS)};
    x->bytes = sizeof *x;
}

static void free_slots(struct id_index *x, const struct id_index_part *p)
{
    if (p->n_slots == ID_INDEX_FIRST_SLOTS)
        return;
    x->bytes -= p->n_slots * sizeof *p->slots;
    free(p->slots);
}

void id_index_free_parts(struct id_index *x)
{
    for (size_t i = 0; i < ID_INDEX_PARTS; i++)
        free_slots(x, &x->parts[i]);
}

static void grow(struct id_index *x, struct id_index_part *p)
{
    struct id_index_part old = *p;
    size_t at = (size_t)(p - x->parts);
    p->n_slots *= 2;
    p->left = limit_of(at, p->n_slots) - limit_of(at, old.n_slots);
    p->slots = mem_zalloc(p->n_slots * sizeof *p->slots);
    x->bytes += p->n_slots * sizeof *p->slots;
    for (uint32_t i = 0; i < old.n_slots; i++)
        if (old.slots[i])
            put(p, old.slots[i]);
    free_slots(x, &old);
}

void id_index_add(struct id_index *x, uint64_t hash, uint32_t id)
{
    struct id_index_part *p = &x->parts[hash >> (64 - ID_INDEX_PART_BITS)];
    put(p, hash >> 32 << 32 | (id + 1));
    if (--p->left == 0)
        grow(x, p);
}
