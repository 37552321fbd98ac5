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

/* The comparisons that a search uses. The plan of a query is a list of their names, which EXPLAIN QUERY PLAN shows. */
static const struct comparison {
    const char *name;
    enum column column;
    unsigned char op;
    double part; /* an estimate of the part of the rows that match */
} comparisons[] = {
    {"ns=", COLUMN_NS, SQLITE_INDEX_CONSTRAINT_EQ, 0.05},
    {"key=", COLUMN_KEY, SQLITE_INDEX_CONSTRAINT_EQ, 1e-4},
    {"sub=", COLUMN_SUB, SQLITE_INDEX_CONSTRAINT_EQ, 0.02},
    {"unit=", COLUMN_UNIT, SQLITE_INDEX_CONSTRAINT_EQ, 1},
    {"period=", COLUMN_PERIOD, SQLITE_INDEX_CONSTRAINT_EQ, 1e-3},
    {"period>", COLUMN_PERIOD, SQLITE_INDEX_CONSTRAINT_GT, 0.3},
    {"period>=", COLUMN_PERIOD, SQLITE_INDEX_CONSTRAINT_GE, 0.3},
    {"period<", COLUMN_PERIOD, SQLITE_INDEX_CONSTRAINT_LT, 0.3},
    {"period<=", COLUMN_PERIOD, SQLITE_INDEX_CONSTRAINT_LE, 0.3},
};
#define COMPARISONS (sizeof comparisons / sizeof *comparisons)
#define ROWS_GUESS 1e9
#define UNIT_LATER 1e6 /* factor of the cost of a plan that does not know the unit before the search */

struct counts_table {
    sqlite3_vtab base; /* first */
    struct sql_tables *tables;
};

struct counts_cursor {
    sqlite3_vtab_cursor base; /* first */
    struct count_scan *scan;  /* NULL: no rows */
    struct count_row row;
    bool is_end;
    struct buf text;
};

static struct counts_table *table_of(sqlite3_vtab_cursor *c)
{
    return (struct counts_table *)c->pVtab;
}

static int connect_table(
    sqlite3 *db, void *aux, int argc, const char *const *argv, sqlite3_vtab **out, char **error)
{
    (void)argc, (void)argv, (void)error;
    int code = sqlite3_declare_vtab(db, schema);
    if (code != SQLITE_OK)
        return code;
    struct counts_table *t = mem_zalloc(sizeof *t);
    t->tables = aux;
    *out = &t->base;
    return SQLITE_OK;
}

static int disconnect_table(sqlite3_vtab *table)
{
    free(table);
    return SQLITE_OK;
}

static const struct comparison *find_comparison(sqlite3_index_info *info, int i)
{
    const struct sqlite3_index_constraint *c = &info->aConstraint[i];
    for (size_t k = 0; k < COMPARISONS; k++)
        if ((int)comparisons[k].column == c->iColumn && comparisons[k].op == c->op &&
            sqlite3_stricmp(sqlite3_vtab_collation(info, i), "BINARY") == 0)
            return &comparisons[k];
    return NULL;
}

/* Rows of one key have the order of their periods. */
static bool has_order(const sqlite3_index_info *info, bool has_ns, bool has_key)
{
    return has_ns && has_key && info->nOrderBy == 1 && info->aOrderBy[0].iColumn == COLUMN_PERIOD &&
           !info->aOrderBy[0].desc;
}

static int best_index(sqlite3_vtab *table, sqlite3_index_info *info)
{
    bool has[COLUMN_RECORD + 1] = {false}, is_unit_later = false;
    double rows = ROWS_GUESS;
    int used = 0;
    (void)table;
    sqlite3_str *plan = sqlite3_str_new(NULL);
    for (int i = 0; i < info->nConstraint; i++) {
        const struct comparison *c = find_comparison(info, i);
        if (!c)
            continue;
        if (!info->aConstraint[i].usable) {
            is_unit_later = is_unit_later || c->column == COLUMN_UNIT;
            continue;
        }
        info->aConstraintUsage[i].argvIndex = ++used;
        sqlite3_str_appendf(plan, "%s%s", used > 1 ? " " : "", c->name);
        has[c->column] = true;
        rows *= c->part;
    }
    info->idxStr = sqlite3_str_finish(plan);
    info->needToFreeIdxStr = 1;
    info->orderByConsumed = has_order(info, has[COLUMN_NS], has[COLUMN_KEY]);
    info->estimatedRows = rows < 1 ? 1 : (sqlite3_int64)rows;
    info->estimatedCost = (rows + 10) * (is_unit_later && !has[COLUMN_UNIT] ? UNIT_LATER : 1);
    return used > 0 && !info->idxStr ? SQLITE_NOMEM : SQLITE_OK;
}

static int open_cursor(sqlite3_vtab *table, sqlite3_vtab_cursor **out)
{
    static const int codes[] = {[SQL_SNAPSHOT_OK] = SQLITE_OK,
        [SQL_SNAPSHOT_ABSENT] = SQLITE_CANTOPEN,
        [SQL_SNAPSHOT_DAMAGED] = SQLITE_CORRUPT,
        [SQL_SNAPSHOT_FAILED] = SQLITE_IOERR};
    struct sql_tables *t = ((struct counts_table *)table)->tables;
    struct error error;
    if (!t->snapshot)
        return sql_table_fail(table, SQLITE_CANTOPEN, "%s", t->no_pipeline);
    enum sql_snapshot_result r = sql_snapshot_begin(t->snapshot, &error);
    if (r != SQL_SNAPSHOT_OK)
        return sql_table_fail(
            table, sql_snapshot_is_cancelled(t->snapshot) ? SQLITE_INTERRUPT : codes[r], "%s", error.text);
    struct counts_cursor *c = mem_zalloc(sizeof *c);
    *out = &c->base;
    return SQLITE_OK;
}

static int close_cursor(sqlite3_vtab_cursor *cursor)
{
    struct counts_cursor *c = (struct counts_cursor *)cursor;
    count_scan_free(&c->scan);
    sql_snapshot_end(table_of(cursor)->tables->snapshot);
    buf_free(&c->text);
    free(c);
    return SQLITE_OK;
}

static int next_row(sqlite3_vtab_cursor *cursor)
{
    struct counts_cursor *c = (struct counts_cursor *)cursor;
    struct sql_tables *t = table_of(cursor)->tables;
    struct error error;
    enum count_next r = count_scan_next(c->scan, &c->row, &error);
    c->is_end = r == COUNT_END;
    t->rows += r == COUNT_FOUND;
    if (r == COUNT_FAILED && sql_snapshot_is_cancelled(t->snapshot))
        return SQLITE_INTERRUPT;
    if (r == COUNT_FAILED)
        return sql_table_fail(
            cursor->pVtab, error.code == COUNT_UNREADABLE ? SQLITE_IOERR : SQLITE_CORRUPT, "%s", error.text);
    if (r == COUNT_END && !sql_snapshot_is_whole(t->snapshot, &error))
        return sql_table_fail(cursor->pVtab, SQLITE_IOERR, "%s", error.text);
    return SQLITE_OK;
}

static struct bytes value_text(sqlite3_value *v)
{
    const unsigned char *text = sqlite3_value_text(v);
    return text ? bytes_of(text, (size_t)sqlite3_value_bytes(v)) : BYTES_NONE;
}

/* Narrows the periods of the bounds by a comparison. Returns false if no period matches. */
static bool narrow(struct count_scan_bounds *b, unsigned char op, struct bytes text)
{
    int64_t from, end;
    if (!sql_period_span(text, &from, &end))
        return op != SQLITE_INDEX_CONSTRAINT_EQ;
    bool is_upper = op == SQLITE_INDEX_CONSTRAINT_LT || op == SQLITE_INDEX_CONSTRAINT_LE;
    bool is_lower = op == SQLITE_INDEX_CONSTRAINT_GT || op == SQLITE_INDEX_CONSTRAINT_GE;
    if (!is_upper && from > b->from)
        b->from = from;
    if (!is_lower && end < b->end)
        b->end = end;
    return true;
}

struct stored_bounds {
    char key[COMPONENT_HASH + 1], sub[COMPONENT_HASH + 1];
};

/* Adds one comparison to the bounds. Returns false if no row matches. */
static bool add_bound(
    struct count_scan_bounds *b, const struct comparison *c, struct bytes text, struct stored_bounds *s)
{
    if (!text.ptr)
        return false;
    switch (c->column) {
    case COLUMN_NS:
        b->ns = text;
        return true;
    case COLUMN_KEY:
        b->key = component_store(text, s->key);
        return true;
    case COLUMN_SUB:
        b->sub = component_store(text, s->sub);
        return true;
    case COLUMN_UNIT:
        return sql_unit_read(text, &b->unit);
    default:
        return narrow(b, c->op, text);
    }
}

static const struct comparison *comparison_named(struct bytes name)
{
    size_t i = 0;
    while (i < COMPARISONS && !bytes_equal_str(name, comparisons[i].name))
        i++;
    return i < COMPARISONS ? &comparisons[i] : NULL;
}

static int filter(sqlite3_vtab_cursor *cursor, int number, const char *plan, int argc, sqlite3_value **argv)
{
    struct counts_cursor *c = (struct counts_cursor *)cursor;
    struct count_scan_bounds bounds = {.from = HOUR_FIRST, .end = HOUR_END, .unit = PERIOD_QUARTER};
    struct stored_bounds stored;
    struct bytes name;
    (void)number;
    count_scan_free(&c->scan);
    c->is_end = false;
    for (int i = 0; i < argc && bytes_next_word(&plan, " ", &name); i++)
        c->is_end = !add_bound(&bounds, comparison_named(name), value_text(argv[i]), &stored) || c->is_end;
    if (c->is_end)
        return SQLITE_OK;
    c->scan = count_scan_new(table_of(cursor)->tables->snapshot, &bounds);
    return next_row(cursor);
}

static int is_eof(sqlite3_vtab_cursor *cursor)
{
    return ((struct counts_cursor *)cursor)->is_end;
}

static void result_text(sqlite3_context *context, struct bytes text)
{
    sqlite3_result_text64(context, text.ptr ? text.ptr : "", text.len, SQLITE_TRANSIENT, SQLITE_UTF8);
}

static int result_component(struct counts_cursor *c, sqlite3_context *context, struct bytes stored)
{
    struct bytes text;
    struct error error;
    if (sql_snapshot_text(table_of(&c->base)->tables->snapshot, stored, &text, &error) != 0)
        return sql_table_fail(c->base.pVtab, SQLITE_CORRUPT, "%s", error.text);
    result_text(context, text);
    return SQLITE_OK;
}

/* Returns NS|KEY.PERIOD,SUB or NS|KEY,PERIOD, as the archive has it. */
static void result_record(struct counts_cursor *c, sqlite3_context *context)
{
    char text[PERIOD_TEXT_MAX + 1];
    const struct count_row *r = &c->row;
    struct bytes period = bytes_of(text, period_encode(r->unit, r->start, text));
    buf_clear(&c->text);
    buf_append_bytes(&c->text, r->ns);
    buf_append_char(&c->text, '|');
    buf_append_bytes(&c->text, r->key);
    buf_append_char(&c->text, r->sub.ptr ? '.' : RECORD_SEPARATOR);
    buf_append_bytes(&c->text, period);
    if (r->sub.ptr)
        buf_append_char(&c->text, RECORD_SEPARATOR);
    buf_append_bytes(&c->text, r->sub);
    result_text(context, buf_bytes(&c->text));
}

static int column(sqlite3_vtab_cursor *cursor, sqlite3_context *context, int n)
{
    struct counts_cursor *c = (struct counts_cursor *)cursor;
    const struct count_row *r = &c->row;
    char period[SQL_PERIOD_TEXT];
    switch ((enum column)n) {
    case COLUMN_NS:
        result_text(context, r->ns);
        return SQLITE_OK;
    case COLUMN_KEY:
        return result_component(c, context, r->key);
    case COLUMN_SUB:
        return r->sub.ptr ? result_component(c, context, r->sub) : SQLITE_OK;
    case COLUMN_PERIOD:
        result_text(context, bytes_of(period, sql_period_write(r->unit, r->start, period)));
        return SQLITE_OK;
    case COLUMN_UNIT:
        result_text(context, bytes_str(sql_unit_name(r->unit)));
        return SQLITE_OK;
    case COLUMN_N:
        sqlite3_result_int64(context, r->n);
        return SQLITE_OK;
    case COLUMN_RECORD:
        result_record(c, context);
        return SQLITE_OK;
    }
    return SQLITE_OK;
}

const sqlite3_module sql_counts_module = {.iVersion = 2,
    .xConnect = connect_table,
    .xBestIndex = best_index,
    .xDisconnect = disconnect_table,
    .xOpen = open_cursor,
    .xClose = close_cursor,
    .xFilter = filter,
    .xNext = next_row,
    .xEof = is_eof,
    .xColumn = column};
