#include "counts/slice_sql.h"

#include "base/errno_class.h"

#include <inttypes.h>
#include <stdio.h>

#define BUSY_MS 10000

enum slice_result slice_sql_result(sqlite3 *db, int code)
{
    int primary = code & 0xff;
    if (primary == SQLITE_OK || primary == SQLITE_DONE || primary == SQLITE_ROW)
        return SLICE_OK;
    int system = db ? sqlite3_system_errno(db) : 0;
    bool no_room = (primary == SQLITE_IOERR || primary == SQLITE_CANTOPEN) && errno_is_full(system);
    if (primary == SQLITE_FULL || no_room)
        return SLICE_FULL;
    if (primary == SQLITE_CORRUPT)
        return SLICE_DAMAGED;
    return primary == SQLITE_NOTADB ? SLICE_FOREIGN : SLICE_FAILED;
}

enum slice_result slice_sql_fail(sqlite3 *db, const char *what, struct error *error)
{
    int code = db ? sqlite3_extended_errcode(db) : SQLITE_NOMEM;
    enum slice_result r = slice_sql_result(db, code);
    const char *path = db ? sqlite3_db_filename(db, "main") : NULL;
    return error_set(error, r == SLICE_OK ? SLICE_FAILED : r, "%.300s%s%s: %s", path ? path : "",
        path && *path ? ": " : "", what, db ? sqlite3_errmsg(db) : sqlite3_errstr(code));
}

enum slice_result slice_sql_run(sqlite3 *db, const char *sql, struct error *error)
{
    if (sqlite3_exec(db, sql, NULL, NULL, NULL) == SQLITE_OK)
        return SLICE_OK;
    return slice_sql_fail(db, sql, error);
}

enum slice_result slice_sql_open(
    const char *path, const char *place, int flags, sqlite3 **db, struct error *error)
{
    if (sqlite3_open_v2(place, db, flags | SQLITE_OPEN_NOMUTEX, NULL) != SQLITE_OK) {
        enum slice_result r = slice_sql_result(*db, *db ? sqlite3_extended_errcode(*db) : SQLITE_NOMEM);
        error_set(error, r, "%.300s: %s", path, *db ? sqlite3_errmsg(*db) : "out of memory");
        sqlite3_close(*db);
        *db = NULL;
        return r;
    }
    sqlite3_extended_result_codes(*db, 1);
    sqlite3_busy_timeout(*db, BUSY_MS);
    return SLICE_OK;
}

struct bytes slice_sql_bytes(sqlite3_stmt *statement, int column)
{
    const void *p = sqlite3_column_blob(statement, column);
    return bytes_of(p, (size_t)sqlite3_column_bytes(statement, column));
}

enum slice_result slice_sql_prepare_block(sqlite3 *db, sqlite3_stmt **out, struct error *error)
{
    const char *sql = "SELECT data FROM blocks WHERE id = ?1";
    if (sqlite3_prepare_v3(db, sql, -1, SQLITE_PREPARE_PERSISTENT, out, NULL) != SQLITE_OK)
        return slice_sql_fail(db, "prepare", error);
    return SLICE_OK;
}

int slice_sql_read_block(sqlite3 *db, sqlite3_stmt *statement, const char *path, uint64_t run, uint32_t block,
    struct buf *out, struct error *error)
{
    sqlite3_bind_int64(statement, 1, SLICE_BLOCK_ID(run, block));
    int code = sqlite3_step(statement);
    if (code == SQLITE_ROW) {
        buf_append_bytes(out, slice_sql_bytes(statement, 0));
    } else {
        bool is_unreadable = slice_sql_result(db, code) == SLICE_FAILED;
        error_set(error, is_unreadable ? COUNT_UNREADABLE : COUNT_DAMAGED,
            "%.300s: run %" PRIu64 ", block %" PRIu32 ": %s", path, run, block,
            code == SQLITE_DONE ? "missing" : sqlite3_errmsg(db));
    }
    sqlite3_reset(statement);
    return code == SQLITE_ROW ? 0 : -1;
}

enum slice_result slice_sql_read_index(sqlite3 *db, const char *path, const struct slice_run *run,
    struct count_run_index **out, struct error *error)
{
    sqlite3_stmt *statement;
    *out = NULL;
    if (sqlite3_prepare_v2(db, "SELECT blocks FROM runs WHERE id = ?1", -1, &statement, NULL) != SQLITE_OK)
        return slice_sql_fail(db, "prepare", error);
    sqlite3_bind_int64(statement, 1, (sqlite3_int64)run->id);
    if (sqlite3_step(statement) == SQLITE_ROW)
        *out = count_run_index_parse(run->id, slice_sql_bytes(statement, 0));
    if (sqlite3_finalize(statement) != SQLITE_OK) {
        count_run_index_free(out);
        return slice_sql_fail(db, "read a run's index", error);
    }
    if (*out && count_run_index_checksum(*out) == run->checksum)
        return SLICE_OK;
    count_run_index_free(out);
    return error_set(error, SLICE_DAMAGED, "%.400s is damaged: the index of run %" PRIu64 " does not match",
        path, run->id);
}
