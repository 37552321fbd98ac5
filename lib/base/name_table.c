#include "base/name_table.h"
#include "base/bytes.h"
#include <assert.h>
#include <stdlib.h>

/* The index of the name, or where to insert it. */
static size_t place_of(const struct name_table *t, const char *name, bool *found)
{
    size_t low = 0, high = t->n;
    *found = false;
    while (low < high && !*found) {
        size_t middle = low + (high - low) / 2;
        int order = strcmp(t->entries[middle].name, name);
        *found = order == 0;
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return high;
}

void *name_table_find(const struct name_table *t, const char *name)
{
    bool found;
    size_t at = place_of(t, name, &found);
    return found ? t->entries[at].thing : NULL;
}

void name_table_add(struct name_table *t, const char *name, void *thing)
{
    bool found;
    size_t at = place_of(t, name, &found);
    assert(!found);
    if (t->n == t->cap) {
        t->cap = t->cap > 0 ? 2 * t->cap : 8;
        t->entries = mem_realloc(t->entries, t->cap * sizeof *t->entries);
    }
    if (at < t->n)
        memmove(t->entries + at + 1, t->entries + at, (t->n - at) * sizeof *t->entries);
    t->entries[at] = (struct name_entry){name, thing};
    t->n++;
}

void name_table_free(struct name_table *t)
{
    free(t->entries);
    *t = (struct name_table){0};
}
