#include "counts/slice_reader.h"

#include "base/url.h"
#include "counts/slice_files.h"
#include "counts/slice_sql.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

struct slice_reader {
    char *path;
    sqlite3 *db;
    sqlite3_stmt *block;
    pthread_mutex_t lock; /* protects `db` and `block` while a source reads a block */
    struct slice_state state;
    struct count_run_index **indexes;
    struct error failure; /* code SLICE_OK: no failure */
};

static void free_indexes(struct count_run_index **indexes, size_t n)
{
    for (size_t i = 0; indexes && i < n; i++)
        count_run_index_free(&indexes[i]);
    free(indexes);
}

void slice_reader_close(struct slice_reader **rp)
{
    struct slice_reader *r = *rp;
    if (!r)
        return;
    sqlite3_finalize(r->block);
    sqlite3_close(r->db);
    free_indexes(r->indexes, r->state.n_runs);
    slice_state_free(&r->state);
    pthread_mutex_destroy(&r->lock);
    free(r->path);
    free(r);
    *rp = NULL;
}

static int read_block(void *arg, uint64_t run, uint32_t block, struct buf *out, struct error *error)
{
    struct slice_reader *r = arg;
    pthread_mutex_lock(&r->lock);
    int result = slice_sql_read_block(r->db, r->block, r->path, run, block, out, error);
    pthread_mutex_unlock(&r->lock);
    return result;
}

/* Loads the indexes of new runs and reuses the others. */
static enum slice_result begin(struct slice_reader *r, struct error *error)
{
    struct slice_state next;
    enum slice_result result = slice_sql_run(r->db, "BEGIN", error);
    if (result == SLICE_OK)
        result = slice_state_read(r->db, r->path, &next, error);
    if (result != SLICE_OK)
        return result;
    struct count_run_index **indexes = mem_zalloc((next.n_runs + 1) * sizeof *indexes);
    size_t old = 0;
    for (size_t i = 0; i < next.n_runs && result == SLICE_OK; i++) {
        const struct slice_run *run = &next.runs[i];
        while (old < r->state.n_runs && r->state.runs[old].id < run->id)
            old++;
        if (old < r->state.n_runs && r->state.runs[old].id == run->id && r->indexes[old]) {
            indexes[i] = r->indexes[old];
            r->indexes[old] = NULL;
        } else {
            result = slice_sql_read_index(r->db, r->path, run, &indexes[i], error);
        }
    }
    free_indexes(r->indexes, r->state.n_runs);
    slice_state_free(&r->state);
    r->state = next;
    r->indexes = indexes;
    if (result != SLICE_OK) {
        free_indexes(r->indexes, r->state.n_runs);
        r->indexes = NULL;
        slice_state_free(&r->state);
    }
    return result;
}

static enum slice_result open_at(
    const char *path, const char *place, int flags, struct slice_reader **out, struct error *error)
{
    struct slice_reader *r = mem_zalloc(sizeof *r);
    bool is_new;
    r->path = mem_strdup(path);
    pthread_mutex_init(&r->lock, NULL);
    enum slice_result result = slice_sql_open(path, place, flags, &r->db, error);
    if (result == SLICE_OK)
        result = slice_state_check_format(r->db, path, &is_new, error);
    if (result == SLICE_OK && is_new)
        result = error_set(error, SLICE_FOREIGN, "%.400s is empty", path);
    if (result == SLICE_OK && (flags & SQLITE_OPEN_READWRITE))
        result = slice_sql_run(r->db, "PRAGMA query_only = 1", error);
    if (result == SLICE_OK)
        result = slice_sql_prepare_block(r->db, &r->block, error);
    if (result == SLICE_OK)
        result = begin(r, error);
    /* slice_unlink deletes the log after the file. If the file exists, the reader has opened the file with its log. */
    if (result == SLICE_OK && access(path, F_OK) != 0)
        result = error_set(error, SLICE_FAILED, "%.400s was deleted", path);
    if (result != SLICE_OK)
        slice_reader_close(&r);
    *out = r;
    return result;
}

enum slice_result slice_reader_open(const char *path, struct slice_reader **out, struct error *error)
{
    /* In WAL mode a reader writes to the shared-memory index, so READONLY does not work. */
    return open_at(path, path, SQLITE_OPEN_READWRITE, out, error);
}

enum slice_result slice_reader_open_moved(const char *path, struct slice_reader **out, struct error *error)
{
    struct buf uri = {0};
    buf_append_str(&uri, "file:");
    url_encode(bytes_str(path), &uri);
    buf_append(&uri, "?immutable=1", sizeof("?immutable=1"));
    enum slice_result r = open_at(path, uri.ptr, SQLITE_OPEN_READONLY | SQLITE_OPEN_URI, out, error);
    buf_free(&uri);
    return r;
}

enum slice_result slice_reader_open_sealed(const char *path, struct slice_reader **out, struct error *error)
{
    enum slice_result r =
        slice_has_log(path) ? slice_reader_open(path, out, error) : slice_reader_open_moved(path, out, error);
    if (r != SLICE_OK || (*out)->state.sealed)
        return r;
    slice_reader_close(out);
    return error_set(error, SLICE_UNSEALED, "%.400s was never sealed", path);
}

enum slice_result slice_reader_renew(struct slice_reader *r)
{
    enum slice_result result = SLICE_OK;
    if (!sqlite3_get_autocommit(r->db))
        result = slice_sql_run(r->db, "COMMIT", &r->failure);
    if (result == SLICE_OK)
        result = begin(r, &r->failure);
    return r->failure.code = result;
}

const struct error *slice_reader_failure(const struct slice_reader *r)
{
    return r->failure.code == SLICE_OK ? NULL : &r->failure;
}

const struct slice_state *slice_reader_state(const struct slice_reader *r)
{
    return &r->state;
}

size_t slice_reader_runs(const struct slice_reader *r)
{
    return r->state.n_runs;
}

struct count_source *slice_reader_source(struct slice_reader *r, size_t i, struct bytes from)
{
    return count_run_source(r->indexes[i], from, r->path, read_block, r);
}

void slice_reader_add_sources(struct slice_reader *r, struct bytes from, struct count_sources *out)
{
    for (size_t i = 0; i < slice_reader_runs(r); i++)
        count_sources_add(out, slice_reader_source(r, i, from));
}

size_t slice_reader_counts(const struct slice_reader *r, struct bytes from, struct bytes last)
{
    size_t counts = 0;
    for (size_t i = 0; i < r->state.n_runs; i++)
        counts += count_run_index_counts(r->indexes[i], from, last);
    return counts;
}

size_t slice_reader_records(const struct slice_reader *r, struct bytes from, struct bytes last)
{
    size_t records = 0;
    for (size_t i = 0; i < r->state.n_runs; i++)
        records += count_run_index_records(r->indexes[i], from, last);
    return records;
}
