#include "filter/exact_table.h"

#include <stdlib.h>

struct exact_entry *exact_table_find(const struct exact_table *t, struct bytes text)
{
    struct exact_entry *e;
    HASH_FIND(hh, t->oldest, text.ptr, text.len, e);
    return e;
}

void exact_table_drop(struct exact_table *t, struct exact_entry *e)
{
    t->bytes -= sizeof *e + e->hh.keylen + EXACT_TABLE_COST;
    HASH_DEL(t->oldest, e);
    free(e);
}

void exact_table_put(struct exact_table *t, struct bytes text, uint64_t id, bool is_added, uint64_t offset)
{
    struct exact_entry *old = exact_table_find(t, text), *e = mem_alloc(sizeof *e + text.len);
    if (old)
        exact_table_drop(t, old);
    e->id = id;
    e->offset = offset;
    e->is_added = is_added;
    memcpy(e->text, text.ptr, text.len);
    HASH_ADD(hh, t->oldest, text, (unsigned)text.len, e);
    t->bytes += sizeof *e + text.len + EXACT_TABLE_COST;
}

void exact_table_drop_before(struct exact_table *t, uint64_t offset)
{
    while (t->oldest && t->oldest->offset < offset)
        exact_table_drop(t, t->oldest);
}

void exact_table_clear(struct exact_table *t)
{
    while (t->oldest)
        exact_table_drop(t, t->oldest);
}
