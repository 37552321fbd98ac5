#include "sql/sql_tables.h"

#include <sqlite3ext.h>

SQLITE_EXTENSION_INIT3

int sql_tables_add(sqlite3 *db, struct sql_tables *t, void (*free_tables)(void *t))
{
    return sqlite3_create_module_v2(db, "counts", &sql_counts_module, t, free_tables);
}
