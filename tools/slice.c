/* millrace slice: prints a slice as archive text, and converts slices of former formats. */
#include "base/io.h"
#include "counts/records.h"
#include "counts/slice.h"
#include "counts/slice_reader.h"
#include "counts/slice_sql.h"
#include "counts/slice_state.h"
#include "tools/tool.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <unistd.h>

static const char help[] =
    "prints a slice of the aggregator as archive text, or converts slices of a former format\n\n"
    "usage: millrace slice FILE\n"
    "       millrace slice convert FILE...\n"
    "\n"
    "  FILE     verify the slice and print its records in order; 65: damaged, 78: not a slice\n"
    "  convert  rewrite each FILE in the current format, unless it has that format; stop the\n"
    "           aggregator first\n";

static int fail(enum slice_result r, const char *error)
{
    if (r == SLICE_DAMAGED)
        return tool_fail(EX_DATAERR, "%s", error);
    return tool_fail(r == SLICE_FULL || r == SLICE_FAILED ? EX_TEMPFAIL : EX_CONFIG, "%s", error);
}

int tool_open_slice(const char *path, struct slice_reader **out, char *error)
{
    struct stat st;
    char *log = mem_printf("%s-wal", path);
    bool is_open = stat(log, &st) == 0 && st.st_size > 0;
    enum slice_result opened = SLICE_FOREIGN;
    free(log);
    if (stat(path, &st) != 0)
        snprintf(error, SLICE_ERROR_TEXT, "%.400s: %s", path, strerror(errno));
    else /* Only a sealed slice can be opened as immutable: any other may still have a -wal file. */
        opened = is_open ? SLICE_UNSEALED : slice_reader_open_sealed(path, out, error);
    return (int)(opened == SLICE_UNSEALED ? slice_reader_open(path, out, error) : opened);
}

static int print(const char *path)
{
    char error[SLICE_ERROR_TEXT];
    struct slice_reader *reader;
    struct buf text = {0};
    enum count_next r;
    enum slice_result opened = (enum slice_result)tool_open_slice(path, &reader, error);
    if (opened != SLICE_OK)
        return fail(opened, error);
    struct count_sources sources = {0};
    slice_reader_add_sources(reader, BYTES_NONE, &sources);
    struct count_merge *m = count_merge_new(sources.list, sources.n);
    while ((r = count_merge_next_record(m)) == COUNT_FOUND) {
        buf_clear(&text);
        r = count_merge_print(m, &text);
        if (r == COUNT_FAILED)
            break;
        fwrite(text.ptr, 1, text.len, stdout);
    }
    int status = r == COUNT_FAILED ? fail(SLICE_DAMAGED, count_merge_error(m)) : EX_OK;
    count_merge_free(&m);
    count_sources_free(&sources);
    buf_free(&text);
    slice_reader_close(&reader);
    return tool_flush(status);
}

/* The former format stores each count in a row of its own. A row's key consists of the record's key, the separator and
 * the count's name. The rows are sorted, so the rows of one record are adjacent. */
struct row_source {
    struct count_source base; /* first */
    sqlite3 *db;
    sqlite3_stmt *rows;
    bool has_row;
    bool is_taken; /* the current row's value was returned */
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

/* Splits the row's key into the record's key, with its separator, and the name of the count. */
static bool record_part(struct row_source *s, struct bytes *key, struct bytes *name)
{
    struct bytes k = slice_sql_bytes(s->rows, 0);
    const char *separator = k.len ? memchr(k.ptr, RECORD_SEPARATOR, k.len) : NULL;
    if (!separator) {
        snprintf(s->base.error, sizeof(s->base.error), "a row has no separator in its key");
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
    static const struct count_source_kind kind = {row_next_record, row_next_value, row_close, NULL};
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

/* Writes the new slice beside the old one, syncs it, and renames it over the old one. So a killed conversion can be run
 * again. *is_done is false if the slice already has the current format. */
static enum slice_result convert(const char *path, bool *is_done, char error[SLICE_ERROR_TEXT])
{
    struct slice_state old = {0};
    sqlite3 *db = NULL;
    struct buf log = {0};
    bool is_new;
    *is_done = false;
    enum slice_result r = slice_sql_open(path, SQLITE_OPEN_READWRITE, &db, error);
    if (r == SLICE_OK)
        r = slice_state_check_format(db, path, &is_new, error);
    if (r != SLICE_OLDER) {
        sqlite3_close(db);
        return r;
    }
    char *to = mem_printf("%s.new", path);
    buf_printf(&log, "%s-wal", path);
    io->unlink(to);
    r = slice_sql_run(db, "PRAGMA locking_mode = EXCLUSIVE; BEGIN IMMEDIATE", error);
    if (r == SLICE_OK)
        r = slice_state_read_former(db, path, &old, error);
    if (r == SLICE_OK)
        r = write_new(path, to, db, &old, error);
    sqlite3_close(db);
    if (r == SLICE_OK &&
        access(log.ptr, F_OK) == 0) { /* with a log, the new slice would lack the counts in the log */
        snprintf(error, SLICE_ERROR_TEXT, "%.400s is in use: stop the aggregator first", path);
        r = SLICE_FULL;
    } else if (r == SLICE_OK) {
        int fd = io->open(to, O_RDWR | O_CLOEXEC, 0);
        *is_done = fd >= 0 && io->fsync(fd) == 0 && io->rename(to, path) == 0 && io_sync_parent(path) == 0;
        if (!*is_done)
            snprintf(error, SLICE_ERROR_TEXT, "%.400s: %s", path, strerror(errno));
        if (fd >= 0)
            io->close(fd);
        r = *is_done ? SLICE_OK : SLICE_FAILED;
    }
    slice_state_free(&old);
    free(to);
    buf_free(&log);
    return r;
}

int tool_slice(int argc, char **argv)
{
    bool asks = argc == 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0);
    bool converts = argc > 2 && strcmp(argv[1], "convert") == 0;
    for (int i = 2; i < argc && converts; i++) {
        char error[SLICE_ERROR_TEXT];
        bool is_done;
        enum slice_result r = convert(argv[i], &is_done, error);
        if (r != SLICE_OK)
            return fail(r, error);
        printf("%s: %s\n", argv[i], is_done ? "converted" : "already has the current format");
    }
    if (converts)
        return EX_OK;
    if (argc == 2 && argv[1][0] != '-' && strcmp(argv[1], "convert") != 0)
        return print(argv[1]);
    fputs(help, asks ? stdout : stderr);
    return asks ? EX_OK : EX_USAGE;
}
