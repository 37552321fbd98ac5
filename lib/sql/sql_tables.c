#include "sql/sql_tables.h"

#include <sqlite3ext.h>
#include <stdarg.h>
#include <stdlib.h>

SQLITE_EXTENSION_INIT3

#define ROWS_GUESS 1e9

int sql_table_connect(sqlite3 *db, void *tables, const char *schema, sqlite3_vtab **out)
{
    int code = sqlite3_declare_vtab(db, schema);
    if (code != SQLITE_OK)
        return code;
    struct sql_table *t = mem_zalloc(sizeof *t);
    t->tables = tables;
    *out = &t->base;
    return SQLITE_OK;
}

int sql_table_disconnect(sqlite3_vtab *table)
{
    free(table);
    return SQLITE_OK;
}

static const struct sql_comparison *find_comparison(
    sqlite3_index_info *info, int i, const struct sql_comparison *list, size_t n)
{
    const struct sqlite3_index_constraint *c = &info->aConstraint[i];
    for (size_t k = 0; c->usable && k < n; k++)
        if (list[k].column == c->iColumn && list[k].op == c->op &&
            sqlite3_stricmp(sqlite3_vtab_collation(info, i), "BINARY") == 0)
            return &list[k];
    return NULL;
}

int sql_table_plan(sqlite3_index_info *info, const struct sql_comparison *list, size_t n)
{
    double rows = ROWS_GUESS;
    int used = 0;
    sqlite3_str *plan = sqlite3_str_new(NULL);
    for (int i = 0; i < info->nConstraint; i++) {
        const struct sql_comparison *c = find_comparison(info, i, list, n);
        if (!c)
            continue;
        info->aConstraintUsage[i].argvIndex = ++used;
        info->aConstraintUsage[i].omit = c->is_last;
        sqlite3_str_appendf(plan, "%s%s", used > 1 ? " " : "", c->name);
        rows *= c->part;
    }
    info->idxStr = sqlite3_str_finish(plan);
    info->needToFreeIdxStr = 1;
    info->estimatedRows = rows < 1 ? 1 : (sqlite3_int64)rows;
    info->estimatedCost = rows + 10;
    return used > 0 && !info->idxStr ? SQLITE_NOMEM : SQLITE_OK;
}

int sql_table_fail(sqlite3_vtab *table, int code, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    sqlite3_free(table->zErrMsg);
    table->zErrMsg = sqlite3_vmprintf(fmt, ap);
    va_end(ap);
    return code;
}

struct sql_tables *sql_cursor_tables(const sqlite3_vtab_cursor *cursor)
{
    return ((struct sql_table *)cursor->pVtab)->tables;
}

int sql_cursor_is_end(sqlite3_vtab_cursor *cursor)
{
    return ((struct sql_cursor *)cursor)->is_end;
}

struct bytes sql_value_text(sqlite3_value *v)
{
    const unsigned char *text = sqlite3_value_text(v);
    return text ? bytes_of(text, (size_t)sqlite3_value_bytes(v)) : BYTES_NONE;
}

void sql_result_text(sqlite3_context *context, struct bytes text)
{
    sqlite3_result_text64(context, text.ptr ? text.ptr : "", text.len, SQLITE_TRANSIENT, SQLITE_UTF8);
}
