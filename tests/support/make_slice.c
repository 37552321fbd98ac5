#include "support/make_slice.h"

#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>

static void need(int ok, sqlite3 *db)
{
    if (ok)
        return;
    fprintf(stderr, "make_slice: %s\n", sqlite3_errmsg(db));
    abort();
}

static void run(sqlite3 *db, const char *sql)
{
    need(sqlite3_exec(db, sql, NULL, NULL, NULL) == SQLITE_OK, db);
}

static void add_row(sqlite3 *db, const struct slice_row *row)
{
    sqlite3_stmt *s = NULL;
    const char *sql = row->text ? "INSERT INTO lookups VALUES(CAST(?1 AS BLOB), CAST(?2 AS BLOB))"
                                : "INSERT INTO counts VALUES(CAST(?1 AS BLOB), ?2)";
    need(sqlite3_prepare_v2(db, sql, -1, &s, NULL) == SQLITE_OK, db);
    sqlite3_bind_text(s, 1, row->key, -1, SQLITE_STATIC);
    if (row->text)
        sqlite3_bind_text(s, 2, row->text, -1, SQLITE_STATIC);
    else
        sqlite3_bind_int64(s, 2, row->n);
    need(sqlite3_step(s) == SQLITE_DONE, db);
    sqlite3_finalize(s);
}

static void add_meta(sqlite3 *db, uint64_t number, const char *counters)
{
    unsigned long long n = number;
    char *sql = sqlite3_mprintf("INSERT INTO meta VALUES('number', %llu), ('counters', %Q), ('sealed', 1);"
                                "INSERT INTO cursors VALUES('clicks', 'c0ffee', %llu), ('later', '', 0);"
                                "INSERT INTO begins VALUES('clicks', 'c0ffee', %llu), ('later', '', 0)",
        n, counters, n * 1000, (n - 1) * 1000);
    run(db, sql);
    sqlite3_free(sql);
}

void make_slice(const char *path, uint64_t number, const char *counters, const struct slice_row *rows)
{
    sqlite3 *db = NULL;
    need(sqlite3_open(path, &db) == SQLITE_OK, db);
    run(db, "PRAGMA synchronous = OFF; PRAGMA journal_mode = OFF;"
            "CREATE TABLE counts(k BLOB PRIMARY KEY, n INTEGER NOT NULL) WITHOUT ROWID;"
            "CREATE TABLE lookups(k BLOB PRIMARY KEY, text BLOB NOT NULL) WITHOUT ROWID;"
            "CREATE TABLE cursors(stream TEXT PRIMARY KEY, id TEXT NOT NULL, offset INTEGER NOT NULL) "
            "WITHOUT ROWID;"
            "CREATE TABLE begins(stream TEXT PRIMARY KEY, id TEXT NOT NULL, offset INTEGER NOT NULL) "
            "WITHOUT ROWID;"
            "CREATE TABLE meta(key TEXT PRIMARY KEY, value NOT NULL) WITHOUT ROWID;"
            "PRAGMA application_id = 1297239123; PRAGMA user_version = 1; BEGIN");
    add_meta(db, number, counters);
    for (; rows->key; rows++)
        add_row(db, rows);
    run(db, "COMMIT");
    sqlite3_close(db);
}

void change_slice(const char *path, const char *sql)
{
    sqlite3 *db = NULL;
    need(sqlite3_open(path, &db) == SQLITE_OK, db);
    run(db, sql);
    sqlite3_close(db);
}
