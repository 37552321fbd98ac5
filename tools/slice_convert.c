#include "tools/slice_convert.h"

#include "base/io.h"
#include "counts/records.h"
#include "counts/slice.h"
#include "counts/slice_sql.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* The rows of a table in order; rows of one record follow each other. A row's key is the record's key, its separator and
 * the name of the count. */
struct row_source {
    struct count_source base; /* first */
    sqlite3 *db;
    sqlite3_stmt *rows;
    bool is_lookup, has_row;
    bool is_taken; /* the row's value was given */
    struct buf key;
};

static enum count_next step(struct row_source *s)
{
    int code = sqlite3_step(s->rows);
    s->has_row = code == SQLITE_ROW;
    s->is_taken = false;
    if (code == SQLITE_ROW || code == SQLITE_DONE)
        return COUNT_FOUND;
    snprintf(s->base.error, sizeof(s->base.error), "%s", sqlite3_errmsg(s->db));
    return COUNT_FAILED;
}

/* The part of the row's key that is the record's. */
static bool record_part(struct row_source *s, struct bytes *key, struct bytes *name)
{
    struct bytes k = slice_sql_bytes(s->rows, 0);
    const char *separator = k.len ? memchr(k.ptr, RECORD_SEPARATOR, k.len) : NULL;
    if (!separator) {
        snprintf(s->base.error, sizeof(s->base.error), "a row without a separator");
        return false;
    }
    *key = bytes_of(k.ptr, (size_t)(separator + 1 - k.ptr));
    *name = bytes_of(separator + 1, k.len - key->len);
    return true;
}

static enum count_next row_next_value(struct count_source *base)
{
    struct row_source *s = (struct row_source *)base;
    struct bytes key;
    if (s->is_taken && step(s) == COUNT_FAILED)
        return COUNT_FAILED;
    if (!s->has_row)
        return COUNT_END;
    if (!record_part(s, &key, &base->name))
        return COUNT_FAILED;
    if (!bytes_equal(key, base->key))
        return COUNT_END;
    s->is_taken = true;
    base->count = (uint64_t)sqlite3_column_int64(s->rows, 1);
    base->text = slice_sql_bytes(s->rows, 1);
    return COUNT_FOUND;
}

static enum count_next row_next_record(struct count_source *base)
{
    struct row_source *s = (struct row_source *)base;
    struct bytes key, name;
    enum count_next r = COUNT_FOUND;
    if (s->key.len == 0)
        r = step(s);
    while (r == COUNT_FOUND && s->key.len > 0)
        if ((r = row_next_value(base)) == COUNT_END)
            break;
    if (r == COUNT_FAILED)
        return r;
    if (!s->has_row)
        return COUNT_END;
    if (!record_part(s, &key, &name))
        return COUNT_FAILED;
    buf_clear(&s->key);
    buf_append_bytes(&s->key, key);
    base->key = buf_bytes(&s->key);
    return COUNT_FOUND;
}

static void row_close(struct count_source *base)
{
    struct row_source *s = (struct row_source *)base;
    sqlite3_finalize(s->rows);
    buf_free(&s->key);
    free(s);
}

static struct count_source *row_source(sqlite3 *db, const char *path, const char *sql)
{
    static const struct count_source_kind kind = {row_next_record, row_next_value, row_close};
    struct row_source *s = mem_zalloc(sizeof(*s));
    s->base.kind = &kind;
    s->base.container = path;
    s->db = db;
    if (sqlite3_prepare_v2(db, sql, -1, &s->rows, NULL) == SQLITE_OK)
        return &s->base;
    row_close(&s->base);
    return NULL;
}

static enum slice_result write_new(const char *path, const char *to, sqlite3 *db,
    const struct slice_state *old, char error[SLICE_ERROR_TEXT])
{
    const struct slice_config config = {.path = to,
        .number = old->number,
        .counters_text = old->counters,
        .started = old->started,
        .before = old->before,
        .cursors = old->begins,
        .n_cursors = old->n_begins};
    struct count_source *sources[2] = {row_source(db, path, "SELECT k, n FROM counts ORDER BY k"),
        row_source(db, path, "SELECT k, text FROM lookups ORDER BY k")};
    struct slice_batch batch = {.sources = sources,
        .n_sources = 2,
        .cursors = old->cursors,
        .n_cursors = old->n_cursors,
        .tally = old->tally,
        .rejects_length = old->rejects_length,
        .seal = old->sealed};
    struct slice_written written;
    struct slice *slice = NULL;
    enum slice_result r = sources[0] && sources[1] ? slice_open(&config, &slice, error)
                                                   : slice_sql_fail(db, "read the counts", error);
    if (r == SLICE_OK)
        r = slice_commit(slice, &batch, &written, error);
    slice_close(&slice);
    count_source_close(&sources[0]);
    count_source_close(&sources[1]);
    return r;
}

/* Replaces the old slice. Its log must be gone: otherwise the new one lacks the counts in it. */
static enum slice_result replace(const char *from, const char *path, char error[SLICE_ERROR_TEXT])
{
    struct buf log = {0};
    buf_printf(&log, "%s-wal", path);
    bool in_use = access(log.ptr, F_OK) == 0;
    buf_free(&log);
    if (in_use) {
        snprintf(error, SLICE_ERROR_TEXT, "%.400s is in use: stop the aggregator first", path);
        return SLICE_FULL;
    }
    int fd = io->open(from, O_RDWR | O_CLOEXEC, 0);
    bool ok = fd >= 0 && io->fsync(fd) == 0 && io->rename(from, path) == 0 && io_sync_parent(path) == 0;
    if (!ok)
        snprintf(error, SLICE_ERROR_TEXT, "%.400s: %s", path, strerror(errno));
    if (fd >= 0)
        io->close(fd);
    return ok ? SLICE_OK : SLICE_FAILED;
}

enum slice_result slice_convert(const char *path, bool *is_done, char error[SLICE_ERROR_TEXT])
{
    struct slice_state old = {0};
    sqlite3 *db = NULL;
    struct buf to = {0};
    bool is_new;
    *is_done = false;
    enum slice_result r = slice_sql_open(path, SQLITE_OPEN_READWRITE, &db, error);
    if (r == SLICE_OK)
        r = slice_state_check_format(db, path, &is_new, error);
    if (r != SLICE_OLDER) {
        sqlite3_close(db);
        return r;
    }
    buf_printf(&to, "%s.new", path);
    io->unlink(to.ptr);
    r = slice_sql_run(db, "PRAGMA locking_mode = EXCLUSIVE; BEGIN IMMEDIATE", error);
    if (r == SLICE_OK)
        r = slice_state_read_former(db, path, &old, error);
    if (r == SLICE_OK)
        r = write_new(path, to.ptr, db, &old, error);
    sqlite3_close(db);
    if (r == SLICE_OK)
        r = replace(to.ptr, path, error);
    *is_done = r == SLICE_OK;
    slice_state_free(&old);
    buf_free(&to);
    return r;
}
