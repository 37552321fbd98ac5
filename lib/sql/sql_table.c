#include "sql/sql_table.h"

#include <sqlite3ext.h>
#include <stdarg.h>

SQLITE_EXTENSION_INIT3

int sql_table_fail(sqlite3_vtab *table, int code, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    sqlite3_free(table->zErrMsg);
    table->zErrMsg = sqlite3_vmprintf(fmt, ap);
    va_end(ap);
    return code;
}
