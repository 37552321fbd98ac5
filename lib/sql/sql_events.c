/* The virtual table `events` (sql_tables.h). */
#include "counts/counters.h"
#include "counts/event_seconds.h"
#include "sql/event_reader.h"
#include "sql/sql_period.h"
#include "sql/sql_tables.h"

#include <inttypes.h>
#include <sqlite3ext.h>
#include <stdio.h>
#include <stdlib.h>

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

static const struct sql_comparison comparisons[] = {
    {"stream=", COLUMN_STREAM, SQLITE_INDEX_CONSTRAINT_EQ, 1e-4, false},
    {"file=", COLUMN_FILE, SQLITE_INDEX_CONSTRAINT_EQ, 1e-4, true},
    {"time>=", COLUMN_TIME, SQLITE_INDEX_CONSTRAINT_EQ, 0.1, false},
    {"time>=", COLUMN_TIME, SQLITE_INDEX_CONSTRAINT_GT, 0.1, false},
    {"time>=", COLUMN_TIME, SQLITE_INDEX_CONSTRAINT_GE, 0.1, false},
};

struct events_cursor {
    struct sql_cursor base; /* first */
    struct event_reader *reader;
    struct event_reader_line row;
    struct json_fields
        *fields; /* reads the field of the time; without counters in the configuration, no field */
    bool is_file;
};

static int connect_table(
    sqlite3 *db, void *tables, int argc, const char *const *argv, sqlite3_vtab **out, char **error)
{
    (void)argc, (void)argv, (void)error;
    return sql_table_connect(db, tables, schema, out);
}

static int best_index(sqlite3_vtab *table, sqlite3_index_info *info)
{
    (void)table;
    return sql_table_plan(info, comparisons, sizeof comparisons / sizeof *comparisons);
}

static int open_cursor(sqlite3_vtab *table, sqlite3_vtab_cursor **out)
{
    const struct counters *counters = ((struct sql_table *)table)->tables->counters;
    struct events_cursor *c = mem_zalloc(sizeof *c);
    c->fields = json_fields_new(counters ? &counters->time_field : NULL, counters != NULL);
    *out = &c->base.base;
    return SQLITE_OK;
}

static int close_cursor(sqlite3_vtab_cursor *cursor)
{
    struct events_cursor *c = (struct events_cursor *)cursor;
    event_reader_free(&c->reader);
    json_fields_free(&c->fields);
    free(c);
    return SQLITE_OK;
}

static int next_row(sqlite3_vtab_cursor *cursor)
{
    struct events_cursor *c = (struct events_cursor *)cursor;
    struct sql_tables *t = sql_cursor_tables(cursor);
    struct error error;
    int got = event_reader_next(c->reader, &c->row, &error);
    c->base.is_end = got == 0;
    t->rows += got > 0;
    if (got >= 0)
        return SQLITE_OK;
    bool is_cancelled = t->cancel && atomic_load(t->cancel);
    return is_cancelled ? SQLITE_INTERRUPT : sql_table_fail(cursor->pVtab, SQLITE_IOERR, "%s", error.text);
}

/* Raises *begin to the earliest publication of an event with a time from `text` on. */
static void seek_time(const struct counters *counters, struct bytes text, int64_t *begin)
{
    int64_t max_ahead = counters ? counters->max_ahead : 0;
    int64_t earliest = sql_period_search(text) - SECONDS_PER_QUARTER - max_ahead;
    if (max_ahead > 0 && earliest > *begin)
        *begin = earliest;
}

static int filter(sqlite3_vtab_cursor *cursor, int number, const char *plan, int argc, sqlite3_value **argv)
{
    struct events_cursor *c = (struct events_cursor *)cursor;
    struct sql_tables *t = sql_cursor_tables(cursor);
    const char *stream = NULL, *file = NULL;
    char begin[24] = "earliest";
    int64_t from = 0;
    struct bytes name;
    (void)number;
    event_reader_free(&c->reader);
    c->base.is_end = false;
    for (int i = 0; i < argc && bytes_next_word(&plan, " ", &name); i++) {
        const char *value = (const char *)sqlite3_value_text(argv[i]);
        c->base.is_end = c->base.is_end || !value;
        if (bytes_equal_str(name, "stream="))
            stream = value;
        else if (bytes_equal_str(name, "file="))
            file = value;
        else if (value)
            seek_time(t->counters, bytes_str(value), &from);
    }
    if (c->base.is_end || (stream && !bytes_is_name(bytes_str(stream)))) {
        c->base.is_end = true;
        return SQLITE_OK;
    }
    /* SQLite's authorizer does not see a column of events('PATH') or of USING (file). */
    if (file && !t->reads_files)
        return sql_table_fail(cursor->pVtab, SQLITE_AUTH, "access to files is prohibited");
    if (!stream && !file)
        return sql_table_fail(cursor->pVtab, SQLITE_ERROR, "events needs stream = 'NAME' or file = 'PATH'");
    if (!file && t->no_pubsub)
        return sql_table_fail(cursor->pVtab, SQLITE_IOERR, "%s", t->no_pubsub);
    if (from > 0)
        snprintf(begin, sizeof begin, "@%" PRId64, from);
    c->is_file = file != NULL;
    c->reader = file ? event_reader_of_files(file)
                     : event_reader_of_stream(t->pubsub_url, t->pubsub_token, stream, begin, t->cancel);
    return next_row(cursor);
}

/* Sets *time to the field of the time. Returns false for a line that is not a JSON object. */
static bool parse_line(const struct events_cursor *c, struct json_value *time)
{
    const char *reason;
    *time = (struct json_value){.type = JSON_MISSING};
    return json_fields_extract(c->fields, c->row.line, time, &reason) == 0;
}

static void result_time(const struct events_cursor *c, sqlite3_context *context)
{
    const struct counters *counters = sql_cursor_tables(&c->base.base)->counters;
    struct json_value value;
    int64_t seconds;
    char text[SQL_PERIOD_TEXT];
    if (!counters || !parse_line(c, &value))
        return;
    bool (*read)(const struct json_value *, int64_t, int64_t *) =
        counters->time_is_lenient ? event_seconds_read_lenient : event_seconds_read;
    if (read(&value, counters->units_a_second, &seconds) && seconds >= HOUR_FIRST && seconds < HOUR_END)
        sql_result_text(context, bytes_of(text, sql_period_write(PERIOD_QUARTER, seconds, text)));
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
        if (!parse_line(c, &time)) /* SQLite's JSON functions fail at other text */
            break;
        /* fall through */
    case COLUMN_TEXT:
        sql_result_text(context, row->line);
        break;
    case COLUMN_PLACE:
        sqlite3_result_text(context, sqlite3_mprintf("%s:%llu", row->source, row->offset), -1, sqlite3_free);
        break;
    }
    return SQLITE_OK;
}

int sql_tables_add_events(sqlite3 *db, struct sql_tables *t)
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
    return sqlite3_create_module_v2(db, "events", &module, t, NULL);
}
