/* The virtual table `events` (sql_tables.h). */
#include "counts/event_seconds.h"
#include "sql/event_reader.h"
#include "sql/sql_period.h"
#include "sql/sql_tables.h"

#include <inttypes.h>
#include <sqlite3ext.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

SQLITE_EXTENSION_INIT3

static const char schema[] = "CREATE TABLE events(stream TEXT, offset INTEGER, time TEXT, line TEXT, file "
                             "TEXT HIDDEN, text TEXT HIDDEN, "
                             "place TEXT HIDDEN NOT NULL PRIMARY KEY) WITHOUT ROWID";
enum column {
    COLUMN_STREAM,
    COLUMN_OFFSET,
    COLUMN_TIME,
    COLUMN_LINE,
    COLUMN_FILE,
    COLUMN_TEXT,
    COLUMN_PLACE
};

struct events_table {
    sqlite3_vtab base; /* first */
    struct sql_tables *tables;
    struct json_fields *fields; /* of the time, or without counters in the configuration, of no field */
};

struct events_cursor {
    sqlite3_vtab_cursor base; /* first */
    struct event_reader *reader;
    struct event_reader_line row;
    bool is_end, is_file;
};

static int connect_table(
    sqlite3 *db, void *aux, int argc, const char *const *argv, sqlite3_vtab **out, char **error)
{
    (void)argc, (void)argv, (void)error;
    int code = sqlite3_declare_vtab(db, schema);
    if (code != SQLITE_OK)
        return code;
    struct events_table *t = mem_zalloc(sizeof *t);
    t->tables = aux;
    t->fields = json_fields_new(&t->tables->time_field, t->tables->time_field != NULL);
    *out = &t->base;
    return SQLITE_OK;
}

static int disconnect_table(sqlite3_vtab *table)
{
    json_fields_free(&((struct events_table *)table)->fields);
    free(table);
    return SQLITE_OK;
}

/* Returns the name of a comparison that a search uses, or NULL. */
static const char *comparison_of(sqlite3_index_info *info, int i)
{
    const struct sqlite3_index_constraint *c = &info->aConstraint[i];
    bool is_equal = c->op == SQLITE_INDEX_CONSTRAINT_EQ;
    if (!c->usable || sqlite3_stricmp(sqlite3_vtab_collation(info, i), "BINARY") != 0)
        return NULL;
    if (is_equal && (c->iColumn == COLUMN_STREAM || c->iColumn == COLUMN_FILE))
        return c->iColumn == COLUMN_FILE ? "file=" : "stream=";
    bool is_lower = is_equal || c->op == SQLITE_INDEX_CONSTRAINT_GT || c->op == SQLITE_INDEX_CONSTRAINT_GE;
    return is_lower && c->iColumn == COLUMN_TIME ? "time>=" : NULL;
}

static int best_index(sqlite3_vtab *table, sqlite3_index_info *info)
{
    int used = 0;
    double rows = 1e12;
    (void)table;
    sqlite3_str *plan = sqlite3_str_new(NULL);
    for (int i = 0; i < info->nConstraint; i++) {
        const char *name = comparison_of(info, i);
        if (!name)
            continue;
        info->aConstraintUsage[i].argvIndex = ++used;
        info->aConstraintUsage[i].omit = info->aConstraint[i].iColumn == COLUMN_FILE;
        sqlite3_str_appendf(plan, "%s%s", used > 1 ? " " : "", name);
        rows *= info->aConstraint[i].iColumn == COLUMN_TIME ? 0.1 : 1e-4;
    }
    info->idxStr = sqlite3_str_finish(plan);
    info->needToFreeIdxStr = 1;
    info->estimatedRows = (sqlite3_int64)rows;
    info->estimatedCost = rows;
    return used > 0 && !info->idxStr ? SQLITE_NOMEM : SQLITE_OK;
}

static int open_cursor(sqlite3_vtab *table, sqlite3_vtab_cursor **out)
{
    struct events_cursor *c = mem_zalloc(sizeof *c);
    (void)table;
    *out = &c->base;
    return SQLITE_OK;
}

static int close_cursor(sqlite3_vtab_cursor *cursor)
{
    struct events_cursor *c = (struct events_cursor *)cursor;
    event_reader_free(&c->reader);
    free(c);
    return SQLITE_OK;
}

static int next_row(sqlite3_vtab_cursor *cursor)
{
    struct events_cursor *c = (struct events_cursor *)cursor;
    struct sql_tables *t = ((struct events_table *)cursor->pVtab)->tables;
    struct error error;
    int got = event_reader_next(c->reader, &c->row, &error);
    c->is_end = got == 0;
    t->rows += got > 0;
    if (got >= 0)
        return SQLITE_OK;
    bool is_cancelled = t->cancel && atomic_load(t->cancel);
    return is_cancelled ? SQLITE_INTERRUPT : sql_table_fail(cursor->pVtab, SQLITE_IOERR, "%s", error.text);
}

/* Lowers *begin to the earliest publication of an event with a time from `text` on. */
static void seek_time(const struct sql_tables *t, const char *text, int64_t *begin)
{
    int64_t from, end;
    if (t->max_ahead > 0 && sql_period_span(bytes_str(text), &from, &end) && from - t->max_ahead > *begin)
        *begin = from - t->max_ahead;
}

static int filter(sqlite3_vtab_cursor *cursor, int number, const char *plan, int argc, sqlite3_value **argv)
{
    struct events_cursor *c = (struct events_cursor *)cursor;
    struct sql_tables *t = ((struct events_table *)cursor->pVtab)->tables;
    const char *stream = NULL, *file = NULL;
    char begin[24] = "earliest";
    int64_t from = 0;
    struct bytes name;
    (void)number;
    event_reader_free(&c->reader);
    c->is_end = false;
    for (int i = 0; i < argc && bytes_next_word(&plan, " ", &name); i++) {
        const char *value = (const char *)sqlite3_value_text(argv[i]);
        c->is_end = c->is_end || !value;
        if (bytes_equal_str(name, "stream="))
            stream = value;
        else if (bytes_equal_str(name, "file="))
            file = value;
        else if (value)
            seek_time(t, value, &from);
    }
    if (c->is_end || (stream && !bytes_is_name(bytes_str(stream)))) {
        c->is_end = true;
        return SQLITE_OK;
    }
    /* SQLite's authorizer does not see a column of events('PATH') or of USING (file). */
    if (file && !t->reads_files)
        return sql_table_fail(cursor->pVtab, SQLITE_AUTH, "access to files is prohibited");
    if (!stream && !file)
        return sql_table_fail(cursor->pVtab, SQLITE_ERROR, "events needs stream = 'NAME' or file = 'PATH'");
    if (from > 0)
        snprintf(begin, sizeof begin, "@%" PRId64, from);
    c->is_file = file != NULL;
    c->reader = file ? event_reader_of_files(file)
                     : event_reader_of_stream(t->pubsub_url, t->pubsub_token, stream, begin, t->cancel);
    return next_row(cursor);
}

static int is_eof(sqlite3_vtab_cursor *cursor)
{
    return ((struct events_cursor *)cursor)->is_end;
}

/* Sets *time to the field of the time. Returns false for a line that is not a JSON object. */
static bool parse_line(const struct events_cursor *c, struct json_value *time)
{
    const struct events_table *t = (const struct events_table *)c->base.pVtab;
    const char *reason;
    *time = (struct json_value){.type = JSON_MISSING};
    return t->fields && json_fields_extract(t->fields, c->row.line, time, &reason) == 0;
}

static void result_time(const struct events_cursor *c, sqlite3_context *context)
{
    const struct events_table *t = (const struct events_table *)c->base.pVtab;
    struct json_value value;
    int64_t seconds;
    struct tm when;
    char text[40];
    if (!parse_line(c, &value))
        return;
    bool (*read)(const struct json_value *, int64_t, int64_t *) =
        t->tables->time_is_lenient ? event_seconds_read_lenient : event_seconds_read;
    if (!read(&value, t->tables->units_a_second, &seconds) || seconds < HOUR_FIRST || seconds >= HOUR_END)
        return;
    time_t instant = (time_t)seconds;
    size_t n = strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", gmtime_r(&instant, &when));
    sqlite3_result_text(context, text, (int)n, SQLITE_TRANSIENT);
}

static int column(sqlite3_vtab_cursor *cursor, sqlite3_context *context, int n)
{
    const struct events_cursor *c = (const struct events_cursor *)cursor;
    const struct event_reader_line *row = &c->row;
    struct json_value time;
    switch ((enum column)n) {
    case COLUMN_STREAM:
    case COLUMN_FILE:
        if (c->is_file == (n == COLUMN_FILE))
            sqlite3_result_text(context, row->source, -1, SQLITE_TRANSIENT);
        break;
    case COLUMN_OFFSET:
        sqlite3_result_int64(context, (sqlite3_int64)row->offset);
        break;
    case COLUMN_TIME:
        result_time(c, context);
        break;
    case COLUMN_LINE:
        if (!parse_line(c, &time)) /* at another text, SQLite's functions of JSON end the statement */
            break;
        /* fall through */
    case COLUMN_TEXT:
        sqlite3_result_text64(
            context, row->line.len ? row->line.ptr : "", row->line.len, SQLITE_TRANSIENT, SQLITE_UTF8);
        break;
    case COLUMN_PLACE:
        sqlite3_result_text(context, sqlite3_mprintf("%s:%llu", row->source, row->offset), -1, sqlite3_free);
        break;
    }
    return SQLITE_OK;
}

const sqlite3_module sql_events_module = {.iVersion = 2,
    .xConnect = connect_table,
    .xBestIndex = best_index,
    .xDisconnect = disconnect_table,
    .xOpen = open_cursor,
    .xClose = close_cursor,
    .xFilter = filter,
    .xNext = next_row,
    .xEof = is_eof,
    .xColumn = column};
