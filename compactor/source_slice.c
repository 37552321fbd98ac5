/* A sealed slice as a source: rows of one record's key, which follow each other, become its line. */
#include "compactor/source_internal.h"

#include "counts/records.h"
#include "base/url.h"
#include <errno.h>
#include <inttypes.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#define SLICE_APPLICATION 0x4d524c53
#define SLICE_FORMAT_KNOWN 1
#define SLICE_DIGITS 10

struct slice {
    sqlite3 *db;
    sqlite3_stmt *rows;
    char *path;
    enum slice_table table;
    bool has_row;    /* a row is read and not yet given */
    struct buf line; /* the record in the making */
};

void slice_path(const char *directory, uint64_t number, struct buf *out)
{
    buf_printf(out, "%s/%0*" PRIu64 ".db", directory, SLICE_DIGITS, number);
}

static enum compact_result damaged(const char *path, const char *what, char error[COMPACT_ERROR_TEXT])
{
    return compact_fail(error, COMPACT_DAMAGED, "%.300s: %s", path, what);
}

/* SQLite's failures to read are the system's when it says so, else the file's. */
static enum compact_result sql_failed(sqlite3 *db, const char *path, char error[COMPACT_ERROR_TEXT])
{
    int code = sqlite3_errcode(db) & 0xff;
    bool system = code == SQLITE_CANTOPEN || code == SQLITE_IOERR || code == SQLITE_NOMEM;
    return compact_fail(
        error, system ? COMPACT_FAILED : COMPACT_DAMAGED, "%.300s: %s", path, sqlite3_errmsg(db));
}

/* A log beside the file would be passed over by an immutable opening, and its counts with it. */
static enum compact_result check_is_sealed(const char *path, uint64_t *bytes, char error[COMPACT_ERROR_TEXT])
{
    struct stat st;
    struct buf log = {0};
    buf_printf(&log, "%s-wal", path);
    bool has_log = stat(log.ptr, &st) == 0 && st.st_size > 0;
    buf_free(&log);
    if (has_log)
        return compact_fail(error, COMPACT_TRY_AGAIN, "%.300s: not sealed: its log is not empty", path);
    if (stat(path, &st) != 0 && errno == ENOENT)
        return compact_fail(error, COMPACT_REFUSED,
            "%.300s is missing, and the archive does not include it: is it the right directory of slices?",
            path);
    if (stat(path, &st) != 0)
        return compact_fail_errno(error, path);
    *bytes = (uint64_t)st.st_size;
    return COMPACT_OK;
}

static int64_t ask_number(sqlite3 *db, const char *sql)
{
    sqlite3_stmt *statement = NULL;
    int64_t n = -1;
    if (sqlite3_prepare_v2(db, sql, -1, &statement, NULL) == SQLITE_OK &&
        sqlite3_step(statement) == SQLITE_ROW)
        n = sqlite3_column_int64(statement, 0);
    sqlite3_finalize(statement);
    return n;
}

static enum compact_result check_format(sqlite3 *db, const char *path, char error[COMPACT_ERROR_TEXT])
{
    if (ask_number(db, "PRAGMA application_id") != SLICE_APPLICATION)
        return damaged(path, "not a slice", error);
    if (ask_number(db, "PRAGMA user_version") != SLICE_FORMAT_KNOWN)
        return compact_fail(error, COMPACT_REFUSED, "%.300s: a slice of another version", path);
    return COMPACT_OK;
}

static enum compact_result open_database(const char *path, sqlite3 **out, char error[COMPACT_ERROR_TEXT])
{
    struct buf uri = {0};
    uint64_t bytes;
    enum compact_result r = check_is_sealed(path, &bytes, error);
    if (r != COMPACT_OK)
        return r;
    buf_append_str(&uri, "file:");
    url_encode(bytes_str(path), &uri);
    buf_append(&uri, "?immutable=1", sizeof("?immutable=1"));
    int code =
        sqlite3_open_v2(uri.ptr, out, SQLITE_OPEN_READONLY | SQLITE_OPEN_URI | SQLITE_OPEN_NOMUTEX, NULL);
    buf_free(&uri);
    r = code == SQLITE_OK ? check_format(*out, path, error) : sql_failed(*out, path, error);
    if (r != COMPACT_OK) {
        sqlite3_close(*out);
        *out = NULL;
    }
    return r;
}

static struct bytes column_bytes(sqlite3_stmt *statement, int column)
{
    const void *p = sqlite3_column_blob(statement, column);
    return bytes_of(p ? p : "", (size_t)sqlite3_column_bytes(statement, column));
}

static enum compact_result step(struct slice *s, char error[COMPACT_ERROR_TEXT])
{
    int code = sqlite3_step(s->rows);
    s->has_row = code == SQLITE_ROW;
    return code == SQLITE_ROW || code == SQLITE_DONE ? COMPACT_OK : sql_failed(s->db, s->path, error);
}

/* The row's key up to its separator, and what is behind it; false when there is none. */
static bool split_row(const struct slice *s, struct bytes *key, struct bytes *name)
{
    struct bytes k = column_bytes(s->rows, 0);
    const char *separator = k.len ? memchr(k.ptr, RECORD_SEPARATOR, k.len) : NULL;
    if (!separator)
        return false;
    *key = bytes_of(k.ptr, (size_t)(separator + 1 - k.ptr));
    *name = bytes_of(separator + 1, k.len - key->len);
    return true;
}

static bool append_count(struct slice *s, struct bytes name, bool is_first)
{
    int64_t n = sqlite3_column_int64(s->rows, 1);
    if (n <= 0)
        return false;
    if (!is_first)
        buf_append_char(&s->line, ' ');
    buf_append_bytes(&s->line, name);
    buf_append_char(&s->line, ':');
    buf_append_u64(&s->line, (uint64_t)n);
    return true;
}

/* Puts the row that was read, and every one after it with the same key, on the line. */
static enum compact_result gather_counts(struct slice *s, size_t key_len, char error[COMPACT_ERROR_TEXT])
{
    struct bytes key, name;
    bool is_first = true;
    while (s->has_row) {
        if (!split_row(s, &key, &name))
            return damaged(s->path, "a row without a separator", error);
        if (!bytes_equal(key, bytes_of(s->line.ptr, key_len)))
            return COMPACT_OK;
        if (!append_count(s, name, is_first))
            return damaged(s->path, "a count below 1", error);
        is_first = false;
        enum compact_result r = step(s, error);
        if (r != COMPACT_OK)
            return r;
    }
    return COMPACT_OK;
}

static enum compact_result slice_next(void *state, struct record_line *out, char error[COMPACT_ERROR_TEXT])
{
    struct slice *s = state;
    struct bytes key, name;
    enum compact_result r;
    out->text = BYTES_NONE;
    if (!s->has_row)
        return COMPACT_OK;
    if (!split_row(s, &key, &name))
        return damaged(s->path, "a row without a separator", error);
    buf_clear(&s->line);
    buf_append_bytes(&s->line, key);
    size_t key_len = key.len;
    if (s->table == SLICE_COUNTS) {
        r = gather_counts(s, key_len, error);
    } else {
        lookup_escape(column_bytes(s->rows, 1), &s->line);
        r = step(s, error);
    }
    *out = (struct record_line){buf_bytes(&s->line), key_len};
    return r;
}

static void slice_close(void *state)
{
    struct slice *s = state;
    sqlite3_finalize(s->rows);
    sqlite3_close(s->db);
    buf_free(&s->line);
    free(s->path);
    free(s);
}

enum compact_result record_source_open_slice(
    const char *path, enum slice_table table, struct record_source **out, char error[COMPACT_ERROR_TEXT])
{
    static const struct source_kind kind = {slice_next, slice_close};
    static const char *const sql[] = {[SLICE_COUNTS] = "SELECT k, n FROM counts ORDER BY k",
        [SLICE_LOOKUPS] = "SELECT k, text FROM lookups ORDER BY k"};
    sqlite3 *db;
    enum compact_result r = open_database(path, &db, error);
    if (r != COMPACT_OK)
        return r;
    struct slice *s = mem_zalloc(sizeof(*s));
    *s = (struct slice){.db = db, .path = mem_strdup(path), .table = table};
    if (sqlite3_prepare_v2(db, sql[table], -1, &s->rows, NULL) != SQLITE_OK)
        r = sql_failed(db, path, error);
    if (r == COMPACT_OK)
        r = step(s, error);
    if (r == COMPACT_OK)
        *out = source_new(&kind, s, path);
    else
        slice_close(s);
    return r;
}

static void take_text(struct bytes text, char out[NAME_LEN_MAX + 1])
{
    snprintf(out, NAME_LEN_MAX + 1, "%.*s", (int)text.len, text.ptr);
}

/* Where the slice begins or ends in the streams that were seen by then. */
static enum compact_result read_places(sqlite3 *db, const char *sql, const char *path,
    struct manifest_stream **list, size_t *n, char error[COMPACT_ERROR_TEXT])
{
    sqlite3_stmt *rows = NULL;
    int code;
    if (sqlite3_prepare_v2(db, sql, -1, &rows, NULL) != SQLITE_OK)
        return sql_failed(db, path, error);
    while ((code = sqlite3_step(rows)) == SQLITE_ROW) {
        *list = mem_realloc(*list, (*n + 1) * sizeof(**list));
        struct manifest_stream *s = &(*list)[(*n)++];
        take_text(column_bytes(rows, 0), s->name);
        take_text(column_bytes(rows, 1), s->id);
        s->end = (uint64_t)sqlite3_column_int64(rows, 2);
    }
    sqlite3_finalize(rows);
    return code == SQLITE_DONE ? COMPACT_OK : sql_failed(db, path, error);
}

static enum compact_result read_cursors(
    sqlite3 *db, const char *path, struct slice_facts *f, char error[COMPACT_ERROR_TEXT])
{
    enum compact_result r =
        read_places(db, "SELECT stream, id, offset FROM cursors WHERE id <> '' ORDER BY stream", path,
            &f->streams, &f->n_streams, error);
    if (r == COMPACT_OK)
        r = read_places(db, "SELECT stream, id, offset FROM begins WHERE id <> '' ORDER BY stream", path,
            &f->begins, &f->n_begins, error);
    return r;
}

static enum compact_result read_meta(
    sqlite3 *db, const char *path, struct slice_facts *f, char error[COMPACT_ERROR_TEXT])
{
    sqlite3_stmt *row = NULL;
    int64_t number = ask_number(db, "SELECT value FROM meta WHERE key = 'number'");
    int code = sqlite3_prepare_v2(db, "SELECT value FROM meta WHERE key = 'counters'", -1, &row, NULL);
    if (code == SQLITE_OK && sqlite3_step(row) == SQLITE_ROW)
        f->counters = bytes_dup(column_bytes(row, 0));
    sqlite3_finalize(row);
    f->number = number > 0 ? (uint64_t)number : 0;
    if (!f->counters || !f->number)
        return damaged(path, "it does not say what it counts", error);
    if (ask_number(db, "SELECT value FROM meta WHERE key = 'sealed'") != 1)
        return compact_fail(error, COMPACT_REFUSED, "%.300s: it was never sealed", path);
    return COMPACT_OK;
}

enum compact_result slice_facts_read(
    const char *path, struct slice_facts *out, char error[COMPACT_ERROR_TEXT])
{
    sqlite3 *db;
    *out = (struct slice_facts){0};
    enum compact_result r = check_is_sealed(path, &out->bytes, error);
    if (r != COMPACT_OK || (r = open_database(path, &db, error)) != COMPACT_OK)
        return r;
    r = read_meta(db, path, out, error);
    if (r == COMPACT_OK)
        r = read_cursors(db, path, out, error);
    sqlite3_close(db);
    if (r != COMPACT_OK)
        slice_facts_free(out);
    return r;
}

void slice_facts_free(struct slice_facts *f)
{
    free(f->counters);
    free(f->streams);
    free(f->begins);
    *f = (struct slice_facts){0};
}
