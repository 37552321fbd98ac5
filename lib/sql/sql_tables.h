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

#include "sql/sql_table.h"

/* Adds the tables to a connection. `t` must outlive the connection, which calls `free_tables` at its end, unless it is NULL.
 * Returns a code of SQLite. */
int sql_tables_add(sqlite3 *db, struct sql_tables *t, void (*free_tables)(void *t));

/* The modules of the tables. sql_tables_add adds only sql_counts_module. */
extern const sqlite3_module sql_counts_module, sql_events_module;

#endif
