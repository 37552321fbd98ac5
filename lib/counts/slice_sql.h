/* slice_sql: the SQLite functions that a slice's writer and readers share. */
#ifndef MILLRACE_SLICE_SQL_H
#define MILLRACE_SLICE_SQL_H

#include "counts/count_run.h"
#include "counts/slice_state.h"

/* The row id of a run's block. */
#define SLICE_BLOCK_ID(run, block) ((sqlite3_int64)((run) << 32 | (block)))

/* Converts an SQLite code to a result. The connection's system error distinguishes a full disk from other failures. */
enum slice_result slice_sql_result(sqlite3 *db, int code);
/* Writes "PATH: what: SQLite's message" to error. Returns the result for the connection's latest failure. */
enum slice_result slice_sql_fail(sqlite3 *db, const char *what, char error[SLICE_ERROR_TEXT]);
enum slice_result slice_sql_run(sqlite3 *db, const char *sql, char error[SLICE_ERROR_TEXT]);
/* Opens a connection. One thread at a time may use it. */
enum slice_result slice_sql_open(const char *path, int flags, sqlite3 **db, char error[SLICE_ERROR_TEXT]);
struct bytes slice_sql_bytes(sqlite3_stmt *statement, int column);

enum slice_result slice_sql_prepare_block(sqlite3 *db, sqlite3_stmt **out, char error[SLICE_ERROR_TEXT]);
/* Appends a block's bytes, as count_block_read does. The error names the file. */
int slice_sql_read_block(sqlite3 *db, sqlite3_stmt *statement, const char *path, uint64_t run, uint32_t block,
    struct buf *out, bool *is_unreadable, char error[COUNT_ERROR_TEXT]);
/* Reads a run's index and compares it with the checksum in the state. */
enum slice_result slice_sql_read_index(sqlite3 *db, const char *path, const struct slice_run *run,
    struct count_run_index **out, char error[SLICE_ERROR_TEXT]);

#endif
