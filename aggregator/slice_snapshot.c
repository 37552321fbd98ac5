#include "aggregator/slice_snapshot.h"

#include "aggregator/slice_sql.h"
#include "base/url.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

struct slice_snapshot {
    sqlite3 *db;
    sqlite3_stmt *counts, *lookups;
    bool scanning;
    bool is_lost;             /* a renewal failed: which moment it shows is not known, so it shows none */
    enum slice_result failed; /* of the scan */
    char error[SLICE_ERROR_TEXT];
};

void slice_snapshot_close(struct slice_snapshot **s)
{
    if (!*s)
        return;
    sqlite3_finalize((*s)->counts);
    sqlite3_finalize((*s)->lookups);
    sqlite3_close((*s)->db);
    free(*s);
    *s = NULL;
}

/* BEGIN alone takes no snapshot: the first read does. */
static enum slice_result begin(struct slice_snapshot *s, char *error)
{
    return slice_sql_run(s->db, "BEGIN; SELECT count(*) FROM cursors;", error);
}

static enum slice_result prepare(struct slice_snapshot *s, char *error)
{
    const unsigned keep = SQLITE_PREPARE_PERSISTENT;
    if (sqlite3_prepare_v3(
            s->db, "SELECT k, n FROM counts WHERE k >= ?1 ORDER BY k", -1, keep, &s->counts, NULL) ||
        sqlite3_prepare_v3(
            s->db, "SELECT k, text FROM lookups WHERE k >= ?1 ORDER BY k", -1, keep, &s->lookups, NULL))
        return slice_sql_fail(s->db, "prepare", error);
    return SLICE_OK;
}

static enum slice_result open_at(
    const char *place, int flags, const char *settings, struct slice_snapshot **out, char *error)
{
    struct slice_snapshot *s = mem_zalloc(sizeof(*s));
    enum slice_result r = slice_sql_open(place, flags, &s->db, error);
    if (r == SLICE_OK)
        r = slice_sql_run(s->db, settings, error);
    if (r == SLICE_OK)
        r = prepare(s, error);
    if (r == SLICE_OK)
        r = begin(s, error);
    if (r != SLICE_OK)
        slice_snapshot_close(&s);
    *out = s;
    return r;
}

enum slice_result slice_snapshot_open(
    const char *path, struct slice_snapshot **out, char error[SLICE_ERROR_TEXT])
{
    /* A reader of a log-keeping database writes to its index in shared memory, so not READONLY. */
    return open_at(
        path, SQLITE_OPEN_READWRITE, "PRAGMA query_only = 1; PRAGMA cache_size = -32768;", out, error);
}

enum slice_result slice_snapshot_open_sealed(
    const char *path, struct slice_snapshot **out, char error[SLICE_ERROR_TEXT])
{
    struct buf uri = {0};
    buf_append_str(&uri, "file:");
    url_encode(bytes_str(path), &uri);
    buf_append(&uri, "?immutable=1", sizeof("?immutable=1"));
    enum slice_result r =
        open_at(uri.ptr, SQLITE_OPEN_READONLY | SQLITE_OPEN_URI, "PRAGMA cache_size = -256;", out, error);
    buf_free(&uri);
    return r;
}

enum slice_result slice_snapshot_renew(struct slice_snapshot *s, char error[SLICE_ERROR_TEXT])
{
    assert(!s->scanning);
    enum slice_result r = slice_sql_run(s->db, "COMMIT", error);
    r = r == SLICE_OK ? begin(s, error) : r;
    s->is_lost = r != SLICE_OK;
    if (s->is_lost)
        snprintf(s->error, sizeof(s->error), "%s", error);
    return r;
}

void slice_scan_begin(struct slice_snapshot *s, struct bytes from)
{
    assert(!s->scanning);
    s->scanning = true;
    s->failed = s->is_lost ? SLICE_FAILED : SLICE_OK;
    slice_sql_bind(s->counts, 1, from);
    slice_sql_bind(s->lookups, 1, from);
}

static bool step(struct slice_snapshot *s, sqlite3_stmt *statement)
{
    assert(s->scanning);
    if (s->failed != SLICE_OK)
        return false;
    int code = sqlite3_step(statement);
    if (code != SQLITE_ROW && code != SQLITE_DONE)
        s->failed = slice_sql_fail(s->db, "read from the slice", s->error);
    return code == SQLITE_ROW;
}

bool slice_scan_next_count(struct slice_snapshot *s, struct row *row)
{
    if (!step(s, s->counts))
        return false;
    *row = (struct row){
        .key = slice_sql_bytes(s->counts, 0), .count = (uint64_t)sqlite3_column_int64(s->counts, 1)};
    return true;
}

bool slice_scan_next_lookup(struct slice_snapshot *s, struct row *row)
{
    if (!step(s, s->lookups))
        return false;
    *row = (struct row){
        .key = slice_sql_bytes(s->lookups, 0), .is_text = true, .text = slice_sql_bytes(s->lookups, 1)};
    return true;
}

enum slice_result slice_scan_end(struct slice_snapshot *s, const char **error)
{
    sqlite3_reset(s->counts);
    sqlite3_reset(s->lookups);
    s->scanning = false;
    *error = s->error;
    return s->failed;
}
