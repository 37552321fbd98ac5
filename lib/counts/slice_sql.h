/* slice_sql: reads and writes a slice's SQLite file, for the slice and its readers. */
#ifndef MILLRACE_SLICE_SQL_H
#define MILLRACE_SLICE_SQL_H

#include "counts/count_run.h"
#include "counts/slice_state.h"

/* The id of a block's row. The lower 32 bits are the block's number, and the upper bits are the run's number. */
#define SLICE_BLOCK_ID(run, block) ((sqlite3_int64)((run) << 32 | (block)))

/* Converts an SQLite result code to a slice_result. The connection's errno shows whether the disk is full. */
enum slice_result slice_sql_result(sqlite3 *db, int code);
/* Returns the result of the connection's latest failure, with the error "PATH: what: SQLite's message". */
enum slice_result slice_sql_fail(sqlite3 *db, const char *what, struct error *error);
/* Runs statements that return no rows. */
enum slice_result slice_sql_run(sqlite3 *db, const char *sql, struct error *error);
/* Opens a connection to the slice `path`. SQLite's own locking is off, so only one thread at a time may use the
 * connection. `place` is the path, or a file: URI of the path. */
enum slice_result slice_sql_open(
    const char *path, const char *place, int flags, sqlite3 **db, struct error *error);
/* Returns the bytes of a column, valid until the statement's next step. */
struct bytes slice_sql_bytes(sqlite3_stmt *statement, int column);

/* Prepares a statement for slice_sql_read_block. */
enum slice_result slice_sql_prepare_block(sqlite3 *db, sqlite3_stmt **out, struct error *error);
/* Appends a block's bytes to `out`, with the results of count_block_read (count_run.h). The error names the file. */
int slice_sql_read_block(sqlite3 *db, sqlite3_stmt *statement, const char *path, uint64_t run, uint32_t block,
    struct buf *out, struct error *error);
/* Reads and verifies the index of a run. The caller frees *out. */
enum slice_result slice_sql_read_index(sqlite3 *db, const char *path, const struct slice_run *run,
    struct count_run_index **out, struct error *error);

#endif
