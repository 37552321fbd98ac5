#include "base/name_table.h"
#include "base/bytes.h"
#include <assert.h>
#include <stdlib.h>

static int compare(const void *name, const void *entry)
{
    return strcmp(name, ((const struct name_entry *)entry)->name);
}

void *name_table_find(const struct name_table *t, const char *name)
{
    const struct name_entry *e =
        t->n > 0 ? bsearch(name, t->entries, t->n, sizeof *t->entries, compare) : NULL;
    return e ? e->thing : NULL;
}

void name_table_add(struct name_table *t, const char *name, void *thing)
{
    assert(!name_table_find(t, name));
    ARRAY_ROOM(t->entries, t->cap, t->n + 1);
    size_t at = t->n++;
    for (; at > 0 && strcmp(t->entries[at - 1].name, name) > 0; at--)
        t->entries[at] = t->entries[at - 1];
    t->entries[at] = (struct name_entry){name, thing};
}

void name_table_free(struct name_table *t)
{
    free(t->entries);
    *t = (struct name_table){0};
}
