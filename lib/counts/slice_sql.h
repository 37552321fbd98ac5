/* slice_sql: what a slice's writer and its readers share of SQLite. */
#ifndef MILLRACE_SLICE_SQL_H
#define MILLRACE_SLICE_SQL_H

#include "counts/count_run.h"
#include "counts/slice_state.h"

/* The row id of a run's block. */
#define SLICE_BLOCK_ID(run, block) ((sqlite3_int64)((run) << 32 | (block)))

/* The result that an SQLite code means. The system's error tells a full disk from other failures. */
enum slice_result slice_sql_result(sqlite3 *db, int code);
/* Writes "what: SQLite's message" to error and returns the result of the connection's last failure. */
enum slice_result slice_sql_fail(sqlite3 *db, const char *what, char error[SLICE_ERROR_TEXT]);
enum slice_result slice_sql_run(sqlite3 *db, const char *sql, char error[SLICE_ERROR_TEXT]);
/* Opens a connection that one thread uses at a time. */
enum slice_result slice_sql_open(const char *path, int flags, sqlite3 **db, char error[SLICE_ERROR_TEXT]);
struct bytes slice_sql_bytes(sqlite3_stmt *statement, int column);

enum slice_result slice_sql_prepare_block(sqlite3 *db, sqlite3_stmt **out, char error[SLICE_ERROR_TEXT]);
/* Appends a block's bytes. 0, or -1 with the reason, which names the file. */
int slice_sql_read_block(sqlite3 *db, sqlite3_stmt *statement, const char *path, uint64_t run, uint32_t block,
    struct buf *out, char error[COUNT_ERROR_TEXT]);
/* Reads a run's index, which must be the one that the state names. */
enum slice_result slice_sql_read_index(sqlite3 *db, const char *path, const struct slice_run *run,
    struct count_run_index **out, char error[SLICE_ERROR_TEXT]);

#endif
