#include "counts/slice_copy.h"

#include "counts/count_merge.h"
#include "counts/slice_reader.h"
#include "counts/slice_sql.h"

#include <stdio.h>
#include <unistd.h>

#define STEP 4096 /* pages */

/* Copies all pages. The transaction of `source` is open, so every step reads the same snapshot. */
static enum slice_result copy_pages(
    sqlite3 *source, sqlite3 *copy, void (*meanwhile)(void *arg), void *arg, struct error *error)
{
    sqlite3_backup *backup = sqlite3_backup_init(copy, "main", source, "main");
    if (!backup)
        return slice_sql_fail(copy, "copy", error);
    while (sqlite3_backup_step(backup, STEP) == SQLITE_OK)
        if (meanwhile)
            meanwhile(arg);
    return sqlite3_backup_finish(backup) == SQLITE_OK ? SLICE_OK : slice_sql_fail(copy, "copy", error);
}

enum slice_result slice_copy(
    const char *from, const char *to, void (*meanwhile)(void *arg), void *arg, struct error *error)
{
    sqlite3 *source = NULL, *copy = NULL;
    /* In WAL mode a reader writes to the shared-memory index, so READONLY does not work. */
    enum slice_result r = slice_sql_open(from, from, SQLITE_OPEN_READWRITE, &source, error);
    /* Closing the last connection must not move the log into the slice and delete the log, because the slice belongs to
     * the aggregator. */
    if (r == SLICE_OK)
        sqlite3_db_config(source, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
    if (r == SLICE_OK)
        r = slice_sql_run(source, "PRAGMA query_only = 1; BEGIN; SELECT count(*) FROM sqlite_master", error);
    /* If the file exists after the begin, its log was not deleted before the begin. */
    if (r == SLICE_OK && access(from, F_OK) != 0)
        r = error_set(error, SLICE_FAILED, "%.400s was deleted", from);
    if (r == SLICE_OK)
        r = slice_sql_open(to, to, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, &copy, error);
    if (r == SLICE_OK)
        r = copy_pages(source, copy, meanwhile, arg, error);
    sqlite3_close(copy);
    sqlite3_close(source);
    return r;
}

static enum count_next read_run(
    struct count_source *source, bool (*pace)(void *arg, size_t bytes), void *arg, bool *stopped)
{
    enum count_next next = COUNT_FOUND, value;
    while (!*stopped && (next = source->kind->next_record(source)) == COUNT_FOUND) {
        size_t bytes = source->key.len;
        while ((value = source->kind->next_value(source)) == COUNT_FOUND)
            bytes += source->name.len + source->text.len + 1;
        if (value == COUNT_FAILED)
            return COUNT_FAILED;
        *stopped = pace && !pace(arg, bytes);
    }
    return next;
}

enum slice_result slice_verify(const char *path, bool (*pace)(void *arg, size_t bytes), void *arg,
    struct slice_state *state, struct error *error)
{
    struct slice_reader *reader;
    bool stopped = false;
    enum slice_result r = slice_reader_open_sealed(path, &reader, error);
    if (r == SLICE_UNSEALED)
        r = slice_reader_open(path, &reader, error);
    if (r != SLICE_OK)
        return r;
    for (size_t i = 0; i < slice_reader_runs(reader) && r == SLICE_OK; i++) {
        struct count_source *source = slice_reader_source(reader, i, BYTES_NONE);
        if (read_run(source, pace, arg, &stopped) == COUNT_FAILED)
            r = slice_counts_failed(&source->error, error);
        count_source_close(&source);
    }
    if (r == SLICE_OK && state)
        *state = slice_state_copy(slice_reader_state(reader));
    slice_reader_close(&reader);
    return r;
}
