/* The virtual table `counts` (sql_tables.h). */
#include "sql/count_scan.h"
#include "sql/sql_period.h"
#include "sql/sql_tables.h"

#include <sqlite3ext.h>
#include <stdlib.h>

SQLITE_EXTENSION_INIT3

/* `record` identifies a row, because SQLite must recognize a row that several parts of an OR return. */
static const char schema[] =
    "CREATE TABLE counts(ns TEXT, key TEXT, sub TEXT, period TEXT, unit TEXT, n INTEGER, "
    "record TEXT HIDDEN NOT NULL PRIMARY KEY) WITHOUT ROWID";
enum column { COLUMN_NS, COLUMN_KEY, COLUMN_SUB, COLUMN_PERIOD, COLUMN_UNIT, COLUMN_N, COLUMN_RECORD };

static const struct sql_comparison comparisons[] = {
    {"ns=", COLUMN_NS, SQLITE_INDEX_CONSTRAINT_EQ, 0.05, false},
    {"key=", COLUMN_KEY, SQLITE_INDEX_CONSTRAINT_EQ, 1e-4, false},
    {"sub=", COLUMN_SUB, SQLITE_INDEX_CONSTRAINT_EQ, 0.02, false},
    {"unit=", COLUMN_UNIT, SQLITE_INDEX_CONSTRAINT_EQ, 1, false},
    {"period=", COLUMN_PERIOD, SQLITE_INDEX_CONSTRAINT_EQ, 1e-3, false},
    {"period>", COLUMN_PERIOD, SQLITE_INDEX_CONSTRAINT_GT, 0.3, false},
    {"period>=", COLUMN_PERIOD, SQLITE_INDEX_CONSTRAINT_GE, 0.3, false},
    {"period<", COLUMN_PERIOD, SQLITE_INDEX_CONSTRAINT_LT, 0.3, false},
    {"period<=", COLUMN_PERIOD, SQLITE_INDEX_CONSTRAINT_LE, 0.3, false},
};
#define UNIT_LATER 1e6 /* factor of the cost of a plan that does not know the unit before the search */

struct counts_cursor {
    struct sql_cursor base;  /* first */
    struct count_scan *scan; /* NULL: no rows */
    struct count_row row;
};

static int connect_table(
    sqlite3 *db, void *tables, int argc, const char *const *argv, sqlite3_vtab **out, char **error)
{
    (void)argc, (void)argv, (void)error;
    return sql_table_connect(db, tables, schema, out);
}

/* True if the query compares a unit that is known only after the search. */
static bool is_unit_later(const sqlite3_index_info *info)
{
    for (int i = 0; i < info->nConstraint; i++) {
        const struct sqlite3_index_constraint *c = &info->aConstraint[i];
        if (c->iColumn == COLUMN_UNIT && c->op == SQLITE_INDEX_CONSTRAINT_EQ && !c->usable)
            return true;
    }
    return false;
}

static int best_index(sqlite3_vtab *table, sqlite3_index_info *info)
{
    (void)table;
    int code = sql_table_plan(info, comparisons, sizeof comparisons / sizeof *comparisons);
    const char *plan = info->idxStr ? info->idxStr : "";
    if (is_unit_later(info) && !strstr(plan, "unit="))
        info->estimatedCost *= UNIT_LATER;
    /* Rows of one key have the order of their periods. */
    info->orderByConsumed = strstr(plan, "ns=") && strstr(plan, "key=") && info->nOrderBy == 1 &&
                            info->aOrderBy[0].iColumn == COLUMN_PERIOD && !info->aOrderBy[0].desc;
    return code;
}

static int open_cursor(sqlite3_vtab *table, sqlite3_vtab_cursor **out)
{
    static const int codes[] = {[SQL_SNAPSHOT_OK] = SQLITE_OK,
        [SQL_SNAPSHOT_ABSENT] = SQLITE_CANTOPEN,
        [SQL_SNAPSHOT_DAMAGED] = SQLITE_CORRUPT,
        [SQL_SNAPSHOT_FAILED] = SQLITE_IOERR};
    struct sql_tables *t = ((struct sql_table *)table)->tables;
    struct error error;
    if (!t->snapshot)
        return sql_table_fail(table, SQLITE_CANTOPEN, "%s", t->no_pipeline);
    enum sql_snapshot_result r = sql_snapshot_begin(t->snapshot, &error);
    if (r != SQL_SNAPSHOT_OK)
        return sql_table_fail(
            table, sql_snapshot_is_cancelled(t->snapshot) ? SQLITE_INTERRUPT : codes[r], "%s", error.text);
    struct counts_cursor *c = mem_zalloc(sizeof *c);
    *out = &c->base.base;
    return SQLITE_OK;
}

static int close_cursor(sqlite3_vtab_cursor *cursor)
{
    struct counts_cursor *c = (struct counts_cursor *)cursor;
    count_scan_free(&c->scan);
    sql_snapshot_end(sql_cursor_tables(cursor)->snapshot);
    free(c);
    return SQLITE_OK;
}

static int next_row(sqlite3_vtab_cursor *cursor)
{
    struct counts_cursor *c = (struct counts_cursor *)cursor;
    struct sql_tables *t = sql_cursor_tables(cursor);
    struct error error;
    enum count_next r = count_scan_next(c->scan, &c->row, &error);
    c->base.is_end = r == COUNT_END;
    t->rows += r == COUNT_FOUND;
    if (r == COUNT_FAILED && sql_snapshot_is_cancelled(t->snapshot))
        return SQLITE_INTERRUPT;
    if (r == COUNT_FAILED)
        return sql_table_fail(
            cursor->pVtab, error.code == COUNT_UNREADABLE ? SQLITE_IOERR : SQLITE_CORRUPT, "%s", error.text);
    if (r == COUNT_END &&
        !generation_is_whole(sql_snapshot_generation(t->snapshot), GENERATION_NO_SHARD, &error))
        return sql_table_fail(cursor->pVtab, SQLITE_IOERR, "%s", error.text);
    return SQLITE_OK;
}

/* Narrows the periods of the bounds by a comparison with `op`. */
static void narrow(struct count_scan_bounds *b, char op, struct bytes text)
{
    int64_t at = sql_period_search(text);
    if (op != '<' && at > b->from)
        b->from = at;
    if (op != '>' && at < b->end)
        b->end = at + 1;
}

struct stored_bounds {
    char key[COMPONENT_HASH + 1], sub[COMPONENT_HASH + 1];
};

/* Adds the comparison that the plan names to the bounds. Returns false if no row matches. */
static bool add_bound(
    struct count_scan_bounds *b, struct bytes name, struct bytes text, struct stored_bounds *s)
{
    if (!text.ptr)
        return false;
    if (bytes_equal_str(name, "unit="))
        return period_unit_find(text, &b->unit);
    if (bytes_equal_str(name, "ns="))
        b->ns = text;
    else if (bytes_equal_str(name, "key="))
        b->key = component_store(text, s->key);
    else if (bytes_equal_str(name, "sub="))
        b->sub = component_store(text, s->sub);
    else
        narrow(b, name.ptr[strlen("period")], text);
    return true;
}

static int filter(sqlite3_vtab_cursor *cursor, int number, const char *plan, int argc, sqlite3_value **argv)
{
    struct counts_cursor *c = (struct counts_cursor *)cursor;
    struct count_scan_bounds bounds = {.from = HOUR_FIRST, .end = HOUR_END, .unit = PERIOD_QUARTER};
    struct stored_bounds stored;
    struct bytes name;
    (void)number;
    count_scan_free(&c->scan);
    c->base.is_end = false;
    for (int i = 0; i < argc && bytes_next_word(&plan, " ", &name); i++)
        if (!add_bound(&bounds, name, sql_value_text(argv[i]), &stored))
            c->base.is_end = true;
    if (c->base.is_end)
        return SQLITE_OK;
    c->scan = count_scan_new(sql_cursor_tables(cursor)->snapshot, &bounds);
    return next_row(cursor);
}

static int result_component(const struct counts_cursor *c, sqlite3_context *context, struct bytes stored)
{
    struct bytes text;
    struct error error;
    if (sql_snapshot_text(sql_cursor_tables(&c->base.base)->snapshot, stored, &text, &error) != 0)
        return sql_table_fail(c->base.base.pVtab, SQLITE_CORRUPT, "%s", error.text);
    sql_result_text(context, text);
    return SQLITE_OK;
}

static void result_record(const struct count_row *r, sqlite3_context *context)
{
    sqlite3_result_text(context,
        sqlite3_mprintf("%.*s|%.*s|%d|%lld|%.*s", (int)r->ns.len, r->ns.ptr, (int)r->key.len, r->key.ptr,
            (int)r->unit, (long long)r->start, (int)r->sub.len, r->sub.ptr),
        -1, sqlite3_free);
}

static int column(sqlite3_vtab_cursor *cursor, sqlite3_context *context, int n)
{
    const struct counts_cursor *c = (struct counts_cursor *)cursor;
    const struct count_row *r = &c->row;
    char period[SQL_PERIOD_TEXT];
    switch ((enum column)n) {
    case COLUMN_NS:
        sql_result_text(context, r->ns);
        return SQLITE_OK;
    case COLUMN_KEY:
        return result_component(c, context, r->key);
    case COLUMN_SUB:
        return r->sub.ptr ? result_component(c, context, r->sub) : SQLITE_OK;
    case COLUMN_PERIOD:
        sql_result_text(context, bytes_of(period, sql_period_write(r->unit, r->start, period)));
        return SQLITE_OK;
    case COLUMN_UNIT:
        sql_result_text(context, bytes_str(period_unit_name(r->unit)));
        return SQLITE_OK;
    case COLUMN_N:
        sqlite3_result_int64(context, r->n);
        return SQLITE_OK;
    case COLUMN_RECORD:
        result_record(r, context);
        return SQLITE_OK;
    }
    return SQLITE_OK;
}

int sql_tables_add(sqlite3 *db, struct sql_tables *t, void (*free_tables)(void *t))
{
    static const sqlite3_module module = {.iVersion = 2,
        .xConnect = connect_table,
        .xBestIndex = best_index,
        .xDisconnect = sql_table_disconnect,
        .xOpen = open_cursor,
        .xClose = close_cursor,
        .xFilter = filter,
        .xNext = next_row,
        .xEof = sql_cursor_is_end,
        .xColumn = column};
    return sqlite3_create_module_v2(db, "counts", &module, t, free_tables);
}
