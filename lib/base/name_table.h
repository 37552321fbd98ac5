/* name_table: a sorted table that finds an object by its name, for up to thousands of queues or streams. An insertion
 * shifts all later entries. Entries cannot be removed. A zeroed table is empty. The table does not copy the names, so
 * the names must stay valid and unchanged. */
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

/* Returns NULL if the name is unknown. */
void *name_table_find(const struct name_table *t, const char *name);
void name_table_add(struct name_table *t, const char *name, void *thing);
static inline void *name_table_at(const struct name_table *t, size_t i)
{
    return t->entries[i].thing;
}
void name_table_free(struct name_table *t); /* does not free the things */

#endif
