#include "api/earlier_counts.h"

#include "base/text_hash.h"
#include <stdlib.h>

/* Returns the slot of a row, or an empty slot. */
static uint32_t *find_slot(const struct earlier_counts *e, struct bytes stored)
{
    size_t i = text_hash(stored) & (e->n_slots - 1);
    while (e->slots[i] > 0 && !bytes_equal(breakdown_stored(&e->rows->rows[e->slots[i] - 1].sum), stored))
        i = (i + 1) & (e->n_slots - 1);
    return &e->slots[i];
}

void earlier_counts_init(struct earlier_counts *e, const struct query *q, const struct breakdown *rows)
{
    *e = (struct earlier_counts){.query = q, .rows = rows, .n_slots = 16};
    while (e->n_slots < 2 * rows->n_rows)
        e->n_slots *= 2;
    e->slots = mem_zalloc(e->n_slots * sizeof *e->slots);
    e->counts = mem_zalloc((rows->n_rows + 1) * sizeof *e->counts);
    for (size_t i = 0; i < rows->n_rows; i++)
        *find_slot(e, breakdown_stored(&rows->rows[i].sum)) = (uint32_t)i + 1;
}

void earlier_counts_free(struct earlier_counts *e)
{
    free(e->slots);
    free(e->counts);
    *e = (struct earlier_counts){0};
}

void earlier_counts_reset(struct earlier_counts *e)
{
    memset(e->counts, 0, (e->rows->n_rows + 1) * sizeof *e->counts);
    e->total = e->absolute = e->over = 0;
    e->needs_dropped_hours = e->is_too_large = false;
}

size_t earlier_counts_bytes(const struct earlier_counts *e)
{
    return e->rows ? e->n_slots * sizeof *e->slots + (e->rows->n_rows + 1) * sizeof *e->counts : 0;
}

static void add_count(struct earlier_counts *e, struct bytes stored, int64_t n)
{
    uint32_t row = *find_slot(e, stored);
    e->is_too_large |= !query_add_absolute(&e->absolute, n);
    if (e->is_too_large)
        return;
    e->total += n;
    if (row > 0)
        e->counts[row - 1] += n;
    if (query_may_have_other(e->query) && bytes_equal_str(stored, COMPONENT_OTHER))
        e->over += n;
}

bool earlier_counts_add(struct earlier_counts *e, const struct record *r)
{
    struct record_key key;
    struct bytes value = r->value, name;
    int64_t n;
    bool bad = false;
    if (!record_key_parse(r->key, &key) || !bytes_equal_str(key.ns, e->query->sub->ns))
        return false;
    enum query_overlap overlap = query_overlap(e->query, &key);
    e->needs_dropped_hours |= overlap == QUERY_PARTLY;
    while (overlap == QUERY_WITHIN && record_next_count(&value, &name, &n, &bad))
        add_count(e, name, n);
    return !bad;
}
