#include "aggregator/slice_sql.h"
#include "base/errno_class.h"

#include <errno.h>
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
    return primary == SQLITE_NOTADB ? SLICE_FOREIGN : SLICE_FAILED;
}

enum slice_result slice_sql_fail(sqlite3 *db, const char *what, char error[SLICE_ERROR_TEXT])
{
    int code = db ? sqlite3_extended_errcode(db) : SQLITE_NOMEM;
    enum slice_result r = slice_sql_result(db, code);
    snprintf(error, SLICE_ERROR_TEXT, "%s: %s", what, db ? sqlite3_errmsg(db) : sqlite3_errstr(code));
    return r == SLICE_OK ? SLICE_FAILED : r;
}

enum slice_result slice_sql_run(sqlite3 *db, const char *sql, char error[SLICE_ERROR_TEXT])
{
    if (sqlite3_exec(db, sql, NULL, NULL, NULL) == SQLITE_OK)
        return SLICE_OK;
    return slice_sql_fail(db, sql, error);
}

enum slice_result slice_sql_open(const char *path, int flags, sqlite3 **db, char error[SLICE_ERROR_TEXT])
{
    if (sqlite3_open_v2(path, db, flags | SQLITE_OPEN_NOMUTEX, NULL) != SQLITE_OK) {
        enum slice_result r = slice_sql_fail(*db, path, error);
        sqlite3_close(*db);
        *db = NULL;
        return r;
    }
    sqlite3_extended_result_codes(*db, 1);
    sqlite3_busy_timeout(*db, BUSY_MS);
    return SLICE_OK;
}

int slice_sql_bind(sqlite3_stmt *statement, int index, struct bytes b)
{
    return sqlite3_bind_blob64(statement, index, b.len > 0 ? b.ptr : "", b.len, SQLITE_STATIC);
}

struct bytes slice_sql_bytes(sqlite3_stmt *statement, int column)
{
    const void *p = sqlite3_column_blob(statement, column);
    return bytes_of(p, (size_t)sqlite3_column_bytes(statement, column));
}
