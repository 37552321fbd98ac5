#include "aggregator/slice.h"

#include "base/io.h"
#include "aggregator/slice_sql.h"

#include <inttypes.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define APPLICATION_ID 0x4d524c53 /* "MRLS" */
#define FILE_DIGITS 10

static const char schema[] =
    "CREATE TABLE counts(k BLOB PRIMARY KEY, n INTEGER NOT NULL) WITHOUT ROWID;"
    "CREATE TABLE lookups(k BLOB PRIMARY KEY, text BLOB NOT NULL) WITHOUT ROWID;"
    "CREATE TABLE cursors(stream TEXT PRIMARY KEY, id TEXT NOT NULL, offset INTEGER NOT NULL)"
    " WITHOUT ROWID;"
    "CREATE TABLE begins(stream TEXT PRIMARY KEY, id TEXT NOT NULL, offset INTEGER NOT NULL)"
    " WITHOUT ROWID;"
    "CREATE TABLE meta(key TEXT PRIMARY KEY, value NOT NULL) WITHOUT ROWID;"
    "PRAGMA application_id = 1297239123; PRAGMA user_version = 1;";

enum { ADD_COUNT, ADD_LOOKUP, GET_LOOKUP, SET_LOOKUP, SET_CURSOR, SET_BEGIN, SET_META, STATEMENTS };

static const char *const statement_sql[STATEMENTS] = {
    [ADD_COUNT] = "INSERT INTO counts VALUES(?1, ?2) ON CONFLICT(k) DO UPDATE SET n = n + excluded.n",
    [ADD_LOOKUP] = "INSERT INTO lookups VALUES(?1, ?2) ON CONFLICT(k) DO NOTHING",
    [GET_LOOKUP] = "SELECT text FROM lookups WHERE k = ?1",
    [SET_LOOKUP] = "UPDATE lookups SET text = ?2 WHERE k = ?1",
    [SET_CURSOR] = ("INSERT INTO cursors VALUES(?1, ?2, ?3) ON CONFLICT(stream) "
                    "DO UPDATE SET id = excluded.id, offset = excluded.offset"),
    [SET_BEGIN] = "INSERT INTO begins VALUES(?1, ?2, ?3)",
    [SET_META] = "INSERT INTO meta VALUES(?1, ?2) ON CONFLICT(key) DO UPDATE SET value = excluded.value",
};

static const char SEALED_SQL[] = "SELECT value FROM meta WHERE key = 'sealed'";

struct slice {
    sqlite3 *db;
    sqlite3_stmt *statements[STATEMENTS];
    unsigned wal_pages;
};

const char *slice_strerror(enum slice_result r)
{
    switch (r) {
    case SLICE_OK:
        return "ok";
    case SLICE_FULL:
        return "no room on the disk";
    case SLICE_FAILED:
        return "storage failed";
    case SLICE_FOREIGN:
        return "not a slice of this aggregator";
    case SLICE_NEWER:
        return "written by a later version";
    case SLICE_DIFFERENT:
        return "counted under other counters";
    }
    return "?";
}

void slice_file_name(uint64_t number, char out[SLICE_NAME_TEXT])
{
    snprintf(out, SLICE_NAME_TEXT, "%0*" PRIu64 ".db", FILE_DIGITS, number);
}

bool slice_file_number(const char *name, uint64_t *number)
{
    char again[SLICE_NAME_TEXT];
    const char *dot = strchr(name, '.');
    if (!dot || !bytes_to_u64(bytes_of(name, (size_t)(dot - name)), number) || *number == 0)
        return false;
    slice_file_name(*number, again);
    return strcmp(name, again) == 0;
}

void slice_state_free(struct slice_state *state)
{
    free(state->counters);
    free(state->begins);
    free(state->cursors);
    *state = (struct slice_state){0};
}

void slice_close(struct slice **s)
{
    if (!*s)
        return;
    for (int i = 0; i < STATEMENTS; i++)
        sqlite3_finalize((*s)->statements[i]);
    sqlite3_close((*s)->db);
    free(*s);
    *s = NULL;
}

/* Runs a bound statement to its end and makes it ready for the next use. */
static enum slice_result finish(struct slice *s, int which, char *error)
{
    sqlite3_stmt *statement = s->statements[which];
    int code = sqlite3_step(statement);
    enum slice_result r = code == SQLITE_DONE || code == SQLITE_ROW
                              ? SLICE_OK
                              : slice_sql_fail(s->db, "write to the slice", error);
    sqlite3_reset(statement);
    return r;
}

static enum slice_result set_meta(struct slice *s, const char *key, uint64_t value, char *error)
{
    sqlite3_stmt *statement = s->statements[SET_META];
    sqlite3_bind_text(statement, 1, key, -1, SQLITE_STATIC);
    sqlite3_bind_int64(statement, 2, (sqlite3_int64)value);
    return finish(s, SET_META, error);
}

static enum slice_result set_tally(
    struct slice *s, const char *const keys[3], const struct slice_tally *t, char *error)
{
    const uint64_t values[3] = {t->events, t->skipped, t->rejected};
    enum slice_result r = SLICE_OK;
    for (int i = 0; i < 3 && r == SLICE_OK; i++)
        r = set_meta(s, keys[i], values[i], error);
    return r;
}

static const char *const tally_keys[3] = {"events", "skipped", "rejected"};
static const char *const before_keys[3] = {"events_before", "skipped_before", "rejected_before"};

static enum slice_result set_cursors(
    struct slice *s, int which, const struct slice_cursor *cursors, size_t n, char *error)
{
    enum slice_result r = SLICE_OK;
    for (size_t i = 0; i < n && r == SLICE_OK; i++) {
        sqlite3_stmt *statement = s->statements[which];
        sqlite3_bind_text(statement, 1, cursors[i].stream, -1, SQLITE_STATIC);
        sqlite3_bind_text(statement, 2, cursors[i].id, -1, SQLITE_STATIC);
        sqlite3_bind_int64(statement, 3, (sqlite3_int64)cursors[i].offset);
        r = finish(s, which, error);
    }
    return r;
}

static int count_wal_pages(void *arg, sqlite3 *db, const char *name, int pages)
{
    (void)db, (void)name;
    *(unsigned *)arg = (unsigned)pages;
    return SQLITE_OK;
}

static enum slice_result prepare(struct slice *s, char *error)
{
    for (int i = 0; i < STATEMENTS; i++) {
        if (sqlite3_prepare_v3(
                s->db, statement_sql[i], -1, SQLITE_PREPARE_PERSISTENT, &s->statements[i], NULL))
            return slice_sql_fail(s->db, "prepare", error);
    }
    return SLICE_OK;
}

static enum slice_result query_number(sqlite3 *db, const char *sql, uint64_t *out, char *error)
{
    sqlite3_stmt *statement;
    if (sqlite3_prepare_v2(db, sql, -1, &statement, NULL) != SQLITE_OK)
        return slice_sql_fail(db, sql, error);
    *out = 0;
    if (sqlite3_step(statement) == SQLITE_ROW)
        *out = (uint64_t)sqlite3_column_int64(statement, 0);
    return sqlite3_finalize(statement) == SQLITE_OK ? SLICE_OK : slice_sql_fail(db, sql, error);
}

static enum slice_result fill_new(struct slice *s, const struct slice_config *c, char *error)
{
    enum slice_result r = prepare(s, error);
    if (r == SLICE_OK)
        r = set_meta(s, "number", c->number, error);
    if (r == SLICE_OK)
        r = set_meta(s, "started", (uint64_t)c->started, error);
    if (r == SLICE_OK)
        r = set_meta(s, "rejects_length", 0, error);
    if (r == SLICE_OK)
        r = set_tally(s, tally_keys, &(struct slice_tally){0}, error);
    if (r == SLICE_OK)
        r = set_tally(s, before_keys, &c->before, error);
    if (r == SLICE_OK)
        r = set_cursors(s, SET_CURSOR, c->cursors, c->n_cursors, error);
    if (r == SLICE_OK)
        r = set_cursors(s, SET_BEGIN, c->cursors, c->n_cursors, error);
    if (r != SLICE_OK)
        return r;
    sqlite3_bind_text(s->statements[SET_META], 1, "counters", -1, SQLITE_STATIC);
    sqlite3_bind_text(s->statements[SET_META], 2, c->counters_text, -1, SQLITE_STATIC);
    return finish(s, SET_META, error);
}

/* In one transaction, so that a slice whose making was interrupted is an empty database: made again. */
static enum slice_result make(struct slice *s, const struct slice_config *c, char *error)
{
    enum slice_result r = slice_sql_run(s->db, "BEGIN IMMEDIATE", error);
    if (r == SLICE_OK)
        r = slice_sql_run(s->db, schema, error);
    if (r == SLICE_OK)
        r = fill_new(s, c, error);
    if (r == SLICE_OK)
        r = slice_sql_run(s->db, "COMMIT", error);
    if (r != SLICE_OK)
        return r;
    char *path = mem_strdup(c->path);
    int synced = io_sync_dir(dirname(path));
    if (synced != 0)
        snprintf(error, SLICE_ERROR_TEXT, "cannot sync the directory of %s", c->path);
    free(path);
    return synced == 0 ? SLICE_OK : SLICE_FAILED;
}

static enum slice_result check_format(struct slice *s, const char *path, bool *is_new, char *error)
{
    uint64_t application = 0, version = 0, tables = 0;
    enum slice_result r = query_number(s->db, "PRAGMA application_id", &application, error);
    if (r == SLICE_OK)
        r = query_number(s->db, "PRAGMA user_version", &version, error);
    if (r == SLICE_OK)
        r = query_number(s->db, "SELECT count(*) FROM sqlite_master", &tables, error);
    if (r != SLICE_OK)
        return r;
    *is_new = application == 0 && version == 0 && tables == 0;
    if (!*is_new && application != APPLICATION_ID) {
        snprintf(
            error, SLICE_ERROR_TEXT, "%s is no slice: its application id is %" PRIu64, path, application);
        return SLICE_FOREIGN;
    }
    if (version > SLICE_FORMAT) {
        snprintf(error, SLICE_ERROR_TEXT, "%s has format %" PRIu64 ", this version knows %d", path, version,
            SLICE_FORMAT);
        return SLICE_NEWER;
    }
    return SLICE_OK;
}

/* Appends the lines of `a` that `b` lacks, each behind `mark`. */
static void append_missing(struct buf *out, char mark, const char *a, const char *b)
{
    while (*a) {
        size_t n = strcspn(a, "\n");
        bool found = false;
        for (const char *l = b; *l && !found; l += strcspn(l, "\n"), l += *l == '\n')
            found = bytes_equal(bytes_of(a, n), bytes_of(l, strcspn(l, "\n")));
        if (!found && n > 0)
            buf_printf(out, "%s%c %.*s", out->len > 0 ? "; " : "", mark, (int)n, a);
        a += n + (a[n] == '\n');
    }
}

static enum slice_result check_counters(
    const struct slice_state *state, const struct slice_config *c, char *error)
{
    if (strcmp(state->counters, c->counters_text) == 0)
        return SLICE_OK;
    struct buf changes = {0};
    append_missing(&changes, '-', state->counters, c->counters_text);
    append_missing(&changes, '+', c->counters_text, state->counters);
    snprintf(error, SLICE_ERROR_TEXT, "%s was counted under other counters: %.*s", c->path, (int)changes.len,
        changes.ptr ? changes.ptr : "");
    buf_free(&changes);
    return SLICE_DIFFERENT;
}

static enum slice_result read_counters(
    struct slice *s, const char *path, struct slice_state *state, char *error)
{
    sqlite3_stmt *statement;
    if (sqlite3_prepare_v2(s->db, "SELECT value FROM meta WHERE key = 'counters'", -1, &statement, NULL))
        return slice_sql_fail(s->db, "read the counters", error);
    if (sqlite3_step(statement) == SQLITE_ROW)
        state->counters = bytes_dup(slice_sql_bytes(statement, 0));
    else
        snprintf(error, SLICE_ERROR_TEXT, "%s names no counters", path);
    sqlite3_finalize(statement);
    return state->counters ? SLICE_OK : SLICE_FOREIGN;
}

static enum slice_result read_meta(struct slice *s, struct slice_state *state, char *error)
{
    const struct {
        const char *key;
        uint64_t *to;
    } fields[] = {{"number", &state->number}, {"rejects_length", &state->rejects_length},
        {"events", &state->tally.events}, {"skipped", &state->tally.skipped},
        {"rejected", &state->tally.rejected}, {"events_before", &state->before.events},
        {"skipped_before", &state->before.skipped}, {"rejected_before", &state->before.rejected}};
    enum slice_result r = SLICE_OK;
    char sql[96];
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]) && r == SLICE_OK; i++) {
        snprintf(sql, sizeof(sql), "SELECT value FROM meta WHERE key = '%s'", fields[i].key);
        r = query_number(s->db, sql, fields[i].to, error);
    }
    uint64_t started = 0;
    if (r == SLICE_OK)
        r = query_number(s->db, "SELECT value FROM meta WHERE key = 'started'", &started, error);
    state->started = (int64_t)started;
    uint64_t sealed = 0;
    if (r == SLICE_OK)
        r = query_number(s->db, SEALED_SQL, &sealed, error);
    state->sealed = sealed != 0;
    return r;
}

static void add_cursor(struct slice_cursor **list, size_t *n, sqlite3_stmt *row)
{
    *list = mem_realloc(*list, (*n + 1) * sizeof(**list));
    struct slice_cursor *c = &(*list)[(*n)++];
    *c = (struct slice_cursor){.offset = (uint64_t)sqlite3_column_int64(row, 2)};
    snprintf(c->stream, sizeof(c->stream), "%s", (const char *)sqlite3_column_text(row, 0));
    snprintf(c->id, sizeof(c->id), "%s", (const char *)sqlite3_column_text(row, 1));
}

static enum slice_result read_cursors(
    struct slice *s, const char *sql, struct slice_cursor **list, size_t *n, char *error)
{
    sqlite3_stmt *statement;
    if (sqlite3_prepare_v2(s->db, sql, -1, &statement, NULL) != SQLITE_OK)
        return slice_sql_fail(s->db, "read the cursors", error);
    while (sqlite3_step(statement) == SQLITE_ROW)
        add_cursor(list, n, statement);
    return sqlite3_finalize(statement) == SQLITE_OK ? SLICE_OK
                                                    : slice_sql_fail(s->db, "read the cursors", error);
}

static enum slice_result set_up(struct slice *s, const struct slice_config *c, char *error)
{
    /* The log is moved into the file by slice_checkpoint only, when snapshots are out of its way. */
    enum slice_result r = slice_sql_run(s->db,
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = 0; "
        "PRAGMA cache_size = -32768;",
        error);
    char sql[64];
    snprintf(sql, sizeof(sql), "PRAGMA max_page_count = %u", c->max_pages);
    if (r == SLICE_OK && c->max_pages > 0)
        r = slice_sql_run(s->db, sql, error);
    sqlite3_wal_hook(s->db, count_wal_pages, &s->wal_pages);
    return r;
}

static enum slice_result check_number(
    const char *path, uint64_t number, const struct slice_state *state, char *error)
{
    if (state->number == number)
        return SLICE_OK;
    snprintf(error, SLICE_ERROR_TEXT, "%s says that it is slice %" PRIu64, path, state->number);
    return SLICE_FOREIGN;
}

static enum slice_result read_state(
    struct slice *s, const char *path, uint64_t number, struct slice_state *state, char *error)
{
    enum slice_result r = read_meta(s, state, error);
    if (r == SLICE_OK)
        r = check_number(path, number, state, error);
    if (r == SLICE_OK)
        r = read_counters(s, path, state, error);
    if (r == SLICE_OK)
        r = read_cursors(s, "SELECT stream, id, offset FROM begins", &state->begins, &state->n_begins, error);
    if (r == SLICE_OK)
        r = read_cursors(
            s, "SELECT stream, id, offset FROM cursors", &state->cursors, &state->n_cursors, error);
    return r;
}

static enum slice_result open_made(
    struct slice *s, const struct slice_config *c, struct slice_state *state, char *error)
{
    enum slice_result r = s->statements[0] ? SLICE_OK : prepare(s, error);
    if (r == SLICE_OK)
        r = read_state(s, c->path, c->number, state, error);
    return r == SLICE_OK ? check_counters(state, c, error) : r;
}

enum slice_result slice_open(const struct slice_config *config, struct slice **out, struct slice_state *state,
    char error[SLICE_ERROR_TEXT])
{
    struct slice *s = mem_zalloc(sizeof(*s));
    bool is_new = false;
    *state = (struct slice_state){0};
    enum slice_result r =
        slice_sql_open(config->path, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, &s->db, error);
    if (r == SLICE_OK)
        r = check_format(s, config->path, &is_new, error);
    if (r == SLICE_OK)
        r = set_up(s, config, error);
    if (r == SLICE_OK && is_new)
        r = make(s, config, error);
    if (r == SLICE_OK)
        r = open_made(s, config, state, error);
    if (r != SLICE_OK) {
        slice_state_free(state);
        slice_close(&s);
    }
    *out = s;
    return r;
}

/* Two texts with one hash have met, or the text is the one that is there. The smaller stays. */
static enum slice_result settle_lookup(
    struct slice *s, const struct row *row, struct slice_written *w, char *error)
{
    sqlite3_stmt *get = s->statements[GET_LOOKUP], *set = s->statements[SET_LOOKUP];
    slice_sql_bind(get, 1, row->key);
    if (sqlite3_step(get) != SQLITE_ROW) {
        sqlite3_reset(get);
        return slice_sql_fail(s->db, "read a lookup", error);
    }
    int order = bytes_compare(row->text, slice_sql_bytes(get, 0));
    sqlite3_reset(get);
    if (order == 0)
        return SLICE_OK;
    w->collisions++;
    snprintf(w->collision, sizeof(w->collision), "%.*s", (int)row->key.len, row->key.ptr);
    if (order > 0)
        return SLICE_OK;
    slice_sql_bind(set, 1, row->key);
    slice_sql_bind(set, 2, row->text);
    return finish(s, SET_LOOKUP, error);
}

static enum slice_result write_lookup(
    struct slice *s, const struct row *row, struct slice_written *w, char *error)
{
    slice_sql_bind(s->statements[ADD_LOOKUP], 1, row->key);
    slice_sql_bind(s->statements[ADD_LOOKUP], 2, row->text);
    enum slice_result r = finish(s, ADD_LOOKUP, error);
    if (r == SLICE_OK && sqlite3_changes(s->db) == 0)
        r = settle_lookup(s, row, w, error);
    return r;
}

static enum slice_result write_row(
    struct slice *s, const struct row *row, struct slice_written *w, char *error)
{
    w->rows++;
    if (row->is_text)
        return write_lookup(s, row, w, error);
    slice_sql_bind(s->statements[ADD_COUNT], 1, row->key);
    sqlite3_bind_int64(s->statements[ADD_COUNT], 2, (sqlite3_int64)row->count);
    return finish(s, ADD_COUNT, error);
}

static enum slice_result write_batch(
    struct slice *s, const struct slice_batch *batch, struct slice_written *w, char *error)
{
    enum slice_result r = SLICE_OK;
    struct row row;
    struct count_cursor at = count_map_seek(batch->rows, BYTES_NONE);
    while (r == SLICE_OK && count_cursor_next(&at, &row))
        r = write_row(s, &row, w, error);
    if (r == SLICE_OK)
        r = set_cursors(s, SET_CURSOR, batch->cursors, batch->n_cursors, error);
    if (r == SLICE_OK)
        r = set_tally(s, tally_keys, &batch->tally, error);
    if (r == SLICE_OK)
        r = set_meta(s, "rejects_length", batch->rejects_length, error);
    if (r == SLICE_OK && batch->seal)
        r = set_meta(s, "sealed", 1, error);
    return r;
}

enum slice_result slice_commit(struct slice *s, const struct slice_batch *batch,
    struct slice_written *written, char error[SLICE_ERROR_TEXT])
{
    *written = (struct slice_written){0};
    enum slice_result r = slice_sql_run(s->db, "BEGIN IMMEDIATE", error);
    if (r != SLICE_OK)
        return r;
    r = write_batch(s, batch, written, error);
    if (r == SLICE_OK)
        r = slice_sql_run(s->db, "COMMIT", error);
    /* SQLite may have rolled back by itself; whether it did shows in the autocommit flag. */
    if (r != SLICE_OK && !sqlite3_get_autocommit(s->db) &&
        sqlite3_exec(s->db, "ROLLBACK", NULL, NULL, NULL) != SQLITE_OK)
        r = SLICE_FAILED;
    written->wal_pages = s->wal_pages;
    return r;
}

enum slice_result slice_checkpoint(struct slice *s, char error[SLICE_ERROR_TEXT])
{
    int code = sqlite3_wal_checkpoint_v2(s->db, NULL, SQLITE_CHECKPOINT_PASSIVE, NULL, NULL);
    if (code == SQLITE_OK || (code & 0xff) == SQLITE_BUSY) {
        s->wal_pages = 0;
        return SLICE_OK;
    }
    return slice_sql_fail(s->db, "checkpoint", error);
}

enum slice_result slice_look(
    const char *path, uint64_t number, struct slice_state *state, char error[SLICE_ERROR_TEXT])
{
    struct slice s = {0};
    bool is_new = true;
    *state = (struct slice_state){0};
    if (access(path, F_OK) != 0)
        return SLICE_OK;
    enum slice_result r = slice_sql_open(path, SQLITE_OPEN_READWRITE, &s.db, error);
    if (r == SLICE_OK)
        r = check_format(&s, path, &is_new, error);
    if (r == SLICE_OK && !is_new)
        r = read_state(&s, path, number, state, error);
    sqlite3_close(s.db);
    if (r != SLICE_OK)
        slice_state_free(state);
    return r;
}

/* The log is folded in when the last connection leaves this mode; SQLite answers the mode that is in force. */
static enum slice_result leave_log_mode(sqlite3 *db, const char *path, char *error)
{
    sqlite3_stmt *statement;
    enum slice_result r = slice_sql_run(db, "PRAGMA synchronous = FULL", error);
    if (r != SLICE_OK)
        return r;
    if (sqlite3_prepare_v2(db, "PRAGMA journal_mode = DELETE", -1, &statement, NULL) != SQLITE_OK)
        return slice_sql_fail(db, "settle", error);
    bool done =
        sqlite3_step(statement) == SQLITE_ROW && bytes_equal_str(slice_sql_bytes(statement, 0), "delete");
    if (sqlite3_finalize(statement) != SQLITE_OK)
        return slice_sql_fail(db, "settle", error);
    if (!done)
        snprintf(error, SLICE_ERROR_TEXT, "%s cannot be settled: it is open elsewhere", path);
    return done ? SLICE_OK : SLICE_FAILED;
}

enum slice_result slice_settle(
    const char *path, uint64_t number, struct slice_state *state, char error[SLICE_ERROR_TEXT])
{
    struct slice s = {0};
    bool is_new = false;
    *state = (struct slice_state){0};
    enum slice_result r = slice_sql_open(path, SQLITE_OPEN_READWRITE, &s.db, error);
    if (r == SLICE_OK)
        r = check_format(&s, path, &is_new, error);
    if (r == SLICE_OK && !is_new)
        r = read_state(&s, path, number, state, error);
    if (r == SLICE_OK && !state->sealed) {
        snprintf(error, SLICE_ERROR_TEXT, "%s was never sealed, and a later slice is there", path);
        r = SLICE_FOREIGN;
    }
    if (r == SLICE_OK)
        r = leave_log_mode(s.db, path, error);
    if (sqlite3_close(s.db) != SQLITE_OK && r == SLICE_OK)
        r = SLICE_FAILED;
    if (r != SLICE_OK)
        slice_state_free(state);
    return r;
}
