/* sql_tables: the virtual tables of a pipeline for a connection of SQLite.
 *
 *     counts(ns, key, sub, period, unit, n)      the archive and the slices after it (count_scan.h, sql_counts.c)
 *     events(stream, offset, time, line)         lines of streams and files (event_reader.h, sql_events.c)
 *
 * The extension has only counts. docs/guide/sql.md describes the columns. The tables are read only.
 *
 * 1. All tables of a statement show one snapshot (sql_snapshot.h).
 * 2. Every comparison that a table uses for its search is made again by SQLite, so a search may return too many rows.
 * 3. A comparison is used only under the collation BINARY. */
#ifndef MILLRACE_SQL_TABLES_H
#define MILLRACE_SQL_TABLES_H

#include "sql/sql_snapshot.h"

#include <sqlite3.h>

struct counters;

struct sql_tables {
    struct sql_snapshot *snapshot; /* NULL: the tables have no pipeline */
    const char *no_pipeline;       /* the error without a snapshot */
    uint64_t rows;                 /* rows read so far */
    const atomic_bool *cancel;     /* NULL: none */
    bool reads_files;              /* `events` may read files */
    /* For `events`; borrowed. counters NULL: the times of events are unknown. */
    const char *pubsub_url, *pubsub_token;
    const char *no_pubsub; /* the error of `events` of a stream; NULL: pubsub_url is asked */
    const struct counters *counters;
};

/* Adds the table `counts` to a connection. `t` must outlive the connection, which calls `free_tables` at its end, unless
 * it is NULL. Returns a code of SQLite. */
int sql_tables_add(sqlite3 *db, struct sql_tables *t, void (*free_tables)(void *t));
/* Adds the table `events`. */
int sql_tables_add_events(sqlite3 *db, struct sql_tables *t);

/* The rest is for the modules of the tables. */

struct sql_table {
    sqlite3_vtab base; /* first */
    struct sql_tables *tables;
};
struct sql_cursor {
    sqlite3_vtab_cursor base; /* first */
    bool is_end;
};

/* A comparison that a search uses. The plan of a query is a list of the names of such comparisons, which EXPLAIN QUERY PLAN
 * shows. */
struct sql_comparison {
    const char *name;
    int column;
    unsigned char op;
    double part;  /* estimated part of the rows that match (0 to 1) */
    bool is_last; /* the table makes the whole comparison, so SQLite does not compare again */
};

int sql_table_connect(sqlite3 *db, void *tables, const char *schema, sqlite3_vtab **out);
int sql_table_disconnect(sqlite3_vtab *table);
/* Plans a search with all comparisons of the query that are in the list. */
int sql_table_plan(sqlite3_index_info *info, const struct sql_comparison *list, size_t n);
/* Sets the error of a virtual table. Returns `code`. */
int sql_table_fail(sqlite3_vtab *table, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

struct sql_tables *sql_cursor_tables(const sqlite3_vtab_cursor *cursor);
int sql_cursor_is_end(sqlite3_vtab_cursor *cursor);
/* Returns the text of a value; NULL: a null. */
struct bytes sql_value_text(sqlite3_value *v);
void sql_result_text(sqlite3_context *context, struct bytes text);

#endif
