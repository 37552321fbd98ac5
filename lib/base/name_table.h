/* name_table: things found by their names and walked in the names' order. For the tens or thousands of queues or
 * streams of a daemon: adding moves what sorts behind. A zeroed table is empty. The names are the things' own: they
 * must live, unchanged, as long as they are in the table. Nothing is removed one by one. */
#ifndef MILLRACE_NAME_TABLE_H
#define MILLRACE_NAME_TABLE_H

#include <stddef.h>

struct name_entry {
    const char *name;
    void *thing;
};
struct name_table {
    struct name_entry *entries; /* in the order of strcmp */
    size_t n, cap;
};

/* NULL when there is none of that name. */
void *name_table_find(const struct name_table *t, const char *name);
/* The name must not be there yet (asserted). */
void name_table_add(struct name_table *t, const char *name, void *thing);
static inline void *name_table_at(const struct name_table *t, size_t i)
{
    return t->entries[i].thing;
}
void name_table_free(struct name_table *t); /* the things are the caller's */

#endif
