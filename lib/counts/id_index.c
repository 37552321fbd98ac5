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

void id_index_init(struct id_index *x)
{
    for (size_t i = 0; i < ID_INDEX_PARTS; i++)
        x->parts[i] = (struct id_index_part){
            .slots = &x->first[i * ID_INDEX_FIRST_SLOTS], .n_slots = ID_INDEX_FIRST_SLOTS};
    x->bytes = sizeof(*x);
}

static void free_slots(struct id_index *x, const struct id_index_part *p)
{
    if (p->n_slots == ID_INDEX_FIRST_SLOTS)
        return;
    x->bytes -= p->n_slots * sizeof(*p->slots);
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
    p->n_slots *= 2;
    p->slots = mem_zalloc(p->n_slots * sizeof(*p->slots));
    x->bytes += p->n_slots * sizeof(*p->slots);
    for (uint32_t i = 0; i < old.n_slots; i++)
        if (old.slots[i])
            put(p, old.slots[i]);
    free_slots(x, &old);
}

void id_index_add(struct id_index *x, uint64_t hash, uint32_t id)
{
    struct id_index_part *p = &x->parts[hash >> (64 - ID_INDEX_PART_BITS)];
    put(p, hash >> 32 << 32 | (id + 1));
    if (++p->n * 2 > p->n_slots)
        grow(x, p);
}
