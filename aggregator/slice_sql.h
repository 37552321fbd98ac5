/* slice_sql: what the slice's writer and its snapshots share of SQLite. */
#ifndef MILLRACE_SLICE_SQL_H
#define MILLRACE_SLICE_SQL_H

#include "aggregator/slice.h"

#include <sqlite3.h>

/* The result an SQLite code means; no room is told from failure by the system's error. */
enum slice_result slice_sql_result(sqlite3 *db, int code);
/* Writes "what: SQLite's message" to error and returns the result of the connection's last failure. */
enum slice_result slice_sql_fail(sqlite3 *db, const char *what, char error[SLICE_ERROR_TEXT]);
enum slice_result slice_sql_run(sqlite3 *db, const char *sql, char error[SLICE_ERROR_TEXT]);
/* Opens a connection used by one thread at a time. */
enum slice_result slice_sql_open(const char *path, int flags, sqlite3 **db, char error[SLICE_ERROR_TEXT]);
/* Binds a span that stays in place until the statement is reset. */
int slice_sql_bind(sqlite3_stmt *statement, int index, struct bytes b);
struct bytes slice_sql_bytes(sqlite3_stmt *statement, int column);

#endif
