#include "counts/slice.h"

#include "base/io.h"
#include "counts/count_run.h"
#include "counts/slice_sql.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define MERGE_STEP_BYTES (1u << 20)
#define DELETE_STEP_BLOCKS 256

static const char schema[] =
    "CREATE TABLE runs(id INTEGER PRIMARY KEY, level INTEGER NOT NULL, counts INTEGER NOT NULL,"
    " bytes INTEGER NOT NULL, checksum INTEGER NOT NULL, blocks BLOB NOT NULL);"
    "CREATE TABLE blocks(id INTEGER PRIMARY KEY, data BLOB NOT NULL);"
    "CREATE TABLE cursors(stream TEXT PRIMARY KEY, id TEXT NOT NULL, offset INTEGER NOT NULL,"
    " until INTEGER NOT NULL) WITHOUT ROWID;"
    "CREATE TABLE begins(stream TEXT PRIMARY KEY, id TEXT NOT NULL, offset INTEGER NOT NULL,"
    " until INTEGER NOT NULL) WITHOUT ROWID;"
    "CREATE TABLE meta(key TEXT PRIMARY KEY, value NOT NULL) WITHOUT ROWID;"
    "PRAGMA application_id = 1297239123; PRAGMA user_version = 5;";

enum { ADD_RUN, DROP_RUN, ADD_BLOCK, DROP_BLOCKS, FIND_BLOCK, SET_CURSOR, SET_BEGIN, SET_META, STATEMENTS };

static const char *const statement_sql[STATEMENTS] = {
    [ADD_RUN] = "INSERT INTO runs VALUES(?1, ?2, ?3, ?4, ?5, ?6)",
    [DROP_RUN] = "DELETE FROM runs WHERE id = ?1",
    [ADD_BLOCK] = "INSERT INTO blocks VALUES(?1, ?2)",
    [DROP_BLOCKS] = "DELETE FROM blocks WHERE id >= ?1 AND id < ?2",
    [FIND_BLOCK] = "SELECT id FROM blocks WHERE id >= ?1 ORDER BY id LIMIT 1",
    [SET_CURSOR] = ("INSERT INTO cursors VALUES(?1, ?2, ?3, ?4) ON CONFLICT(stream) DO "
                    "UPDATE SET id = excluded.id, offset = excluded.offset, until = excluded.until"),
    [SET_BEGIN] = "INSERT INTO begins VALUES(?1, ?2, ?3, ?4)",
    [SET_META] = "INSERT INTO meta VALUES(?1, ?2) ON CONFLICT(key) DO UPDATE SET value = excluded.value",
};

struct run_sink {
    struct slice *slice;
    uint64_t run;
    enum slice_result result;
    struct error *error;
};

struct garbage {
    uint64_t run;
    uint32_t next;
};

struct merge {
    struct slice_run into;
    struct count_run_index **indexes;
    struct count_source **sources;
    uint64_t *runs;
    size_t n;
    struct count_merge *merge;
    struct run_sink sink;
    struct count_run_writer *writer;
    uint64_t collisions; /* number of collisions that earlier steps have reported */
};

struct slice {
    char *path;
    sqlite3 *db;
    sqlite3_stmt *statements[STATEMENTS], *block;
    unsigned log_pages;
    struct slice_state state;
    uint64_t next_run;
    struct merge *merge;
    struct garbage *garbage;
    size_t n_garbage, room_garbage;
};

const struct slice_state *slice_committed(const struct slice *s)
{
    return &s->state;
}

unsigned slice_log_pages(const struct slice *s)
{
    return s->log_pages;
}

static enum slice_result finish(struct slice *s, int which, struct error *error)
{
    sqlite3_stmt *statement = s->statements[which];
    int code = sqlite3_step(statement);
    enum slice_result r = code == SQLITE_DONE || code == SQLITE_ROW
                              ? SLICE_OK
                              : slice_sql_fail(s->db, "write to the slice", error);
    sqlite3_reset(statement);
    return r;
}

static enum slice_result set_meta(struct slice *s, const char *key, uint64_t value, struct error *error)
{
    sqlite3_stmt *statement = s->statements[SET_META];
    sqlite3_bind_text(statement, 1, key, -1, SQLITE_STATIC);
    sqlite3_bind_int64(statement, 2, (sqlite3_int64)value);
    return finish(s, SET_META, error);
}

static enum slice_result set_cursors(
    struct slice *s, int which, const struct slice_cursor *cursors, size_t n, struct error *error)
{
    enum slice_result r = SLICE_OK;
    for (size_t i = 0; i < n && r == SLICE_OK; i++) {
        sqlite3_stmt *statement = s->statements[which];
        sqlite3_bind_text(statement, 1, cursors[i].stream, -1, SQLITE_STATIC);
        sqlite3_bind_text(statement, 2, cursors[i].id, -1, SQLITE_STATIC);
        sqlite3_bind_int64(statement, 3, (sqlite3_int64)cursors[i].offset);
        sqlite3_bind_int64(statement, 4, cursors[i].until);
        r = finish(s, which, error);
    }
    return r;
}

/* Writes the part of the state that a batch changes, and the checksum of the state. */
static enum slice_result set_state(struct slice *s, const struct slice_state *next, struct error *error)
{
    const struct {
        const char *key;
        uint64_t value;
    } fields[] = {{"events", next->tally.events}, {"skipped", next->tally.skipped},
        {"rejected", next->tally.rejected}, {"rejects_length", next->rejects_length},
        {"newest_hour", (uint64_t)next->newest_hour}, {"sealed", next->sealed},
        {"checksum", slice_state_checksum(next)}};
    enum slice_result r = SLICE_OK;
    for (size_t i = 0; i < next->n_cursors && r == SLICE_OK; i++) {
        const struct slice_cursor *old =
            slice_cursors_find(s->state.cursors, s->state.n_cursors, next->cursors[i].stream);
        if (!old || old->offset != next->cursors[i].offset || old->until != next->cursors[i].until ||
            strcmp(old->id, next->cursors[i].id) != 0)
            r = set_cursors(s, SET_CURSOR, &next->cursors[i], 1, error);
    }
    for (size_t i = 0; i < sizeof fields / sizeof fields[0] && r == SLICE_OK; i++)
        r = set_meta(s, fields[i].key, fields[i].value, error);
    for (size_t i = 0; i < next->sums.n && r == SLICE_OK; i++) {
        char key[sizeof SLICE_SUM_KEY + VALUE_SUM_NS_TEXT];
        snprintf(key, sizeof key, "%s%s", SLICE_SUM_KEY, next->sums.list[i].ns);
        r = set_meta(s, key, next->sums.list[i].sum, error);
    }
    return r;
}

static struct slice_cursor *sorted_cursors(const struct slice_cursor *cursors, size_t n)
{
    struct slice_cursor *copy = mem_alloc((n + 1) * sizeof *copy);
    if (n > 0)
        memcpy(copy, cursors, n * sizeof *copy);
    slice_cursors_sort(copy, n);
    return copy;
}

static enum slice_result prepare(struct slice *s, struct error *error)
{
    for (int i = 0; i < STATEMENTS; i++) {
        if (sqlite3_prepare_v3(
                s->db, statement_sql[i], -1, SQLITE_PREPARE_PERSISTENT, &s->statements[i], NULL))
            return slice_sql_fail(s->db, "prepare", error);
    }
    return slice_sql_prepare_block(s->db, &s->block, error);
}

/* Creates the slice in one transaction. If the creation is interrupted, the database stays empty, and slice_open
 * creates the slice again. */
static enum slice_result make(struct slice *s, const struct slice_config *c, struct error *error)
{
    struct slice_state state = {.number = c->number,
        .started = c->started,
        .quarters_since = c->quarters_since,
        .before = c->before,
        .counters = mem_strdup(c->counters_text),
        .begins = sorted_cursors(c->cursors, c->n_cursors),
        .n_begins = c->n_cursors,
        .cursors = sorted_cursors(c->cursors, c->n_cursors),
        .n_cursors = c->n_cursors};
    value_sums_note(&state.sums, state.counters);
    const struct {
        const char *key;
        uint64_t value;
    } fields[] = {{"number", c->number}, {"started", (uint64_t)c->started},
        {"quarters_since", (uint64_t)c->quarters_since}, {"events_before", c->before.events},
        {"skipped_before", c->before.skipped}, {"rejected_before", c->before.rejected}};
    enum slice_result r = slice_sql_run(s->db, "BEGIN IMMEDIATE", error);
    if (r == SLICE_OK)
        r = slice_sql_run(s->db, schema, error);
    if (r == SLICE_OK)
        r = prepare(s, error);
    if (r == SLICE_OK)
        r = set_cursors(s, SET_BEGIN, state.begins, state.n_begins, error);
    for (size_t i = 0; i < sizeof fields / sizeof fields[0] && r == SLICE_OK; i++)
        r = set_meta(s, fields[i].key, fields[i].value, error);
    if (r == SLICE_OK) {
        sqlite3_bind_text(s->statements[SET_META], 1, "counters", -1, SQLITE_STATIC);
        sqlite3_bind_text(s->statements[SET_META], 2, state.counters, -1, SQLITE_STATIC);
        r = finish(s, SET_META, error);
    }
    if (r == SLICE_OK)
        r = set_state(s, &state, error);
    if (r == SLICE_OK)
        r = slice_sql_run(s->db, "COMMIT", error);
    slice_state_free(&state);
    if (r != SLICE_OK)
        return r;
    char *path = mem_strdup(c->path);
    int synced = io_sync_dir(dirname(path));
    free(path);
    return synced == 0 ? SLICE_OK
                       : error_set(error, SLICE_FAILED, "cannot sync the directory of %.400s", c->path);
}

/* Appends the lines of `a` that `b` does not contain, each with `mark` before it. */
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
    const struct slice_state *state, const struct slice_config *c, struct error *error)
{
    if (strcmp(state->counters, c->counters_text) == 0)
        return SLICE_OK;
    struct buf changes = {0};
    append_missing(&changes, '-', state->counters, c->counters_text);
    append_missing(&changes, '+', c->counters_text, state->counters);
    error_set(error, SLICE_DIFFERENT, "%.300s was counted with other counter definitions: %.*s", c->path,
        (int)changes.len, changes.ptr ? changes.ptr : "");
    buf_free(&changes);
    return SLICE_DIFFERENT;
}

static int count_log_pages(void *arg, sqlite3 *db, const char *name, int pages)
{
    (void)db, (void)name;
    *(unsigned *)arg = (unsigned)pages;
    return SQLITE_OK;
}

static void add_garbage(struct slice *s, uint64_t run)
{
    *ARRAY_ADD(s->garbage, s->n_garbage, s->room_garbage) = (struct garbage){.run = run};
}

/* Finds blocks that belong to no run, because a crash interrupted a merge. Checks that the ids ascend, because a
 * damaged id could make the search endless. */
static enum slice_result find_garbage(struct slice *s, struct error *error)
{
    sqlite3_stmt *find = s->statements[FIND_BLOCK];
    sqlite3_int64 from = INT64_MIN;
    int code;
    s->next_run = s->state.n_runs > 0 ? s->state.runs[s->state.n_runs - 1].id + 1 : 1;
    for (;;) {
        sqlite3_bind_int64(find, 1, from);
        code = sqlite3_step(find);
        sqlite3_int64 id = code == SQLITE_ROW ? sqlite3_column_int64(find, 0) : 0;
        sqlite3_reset(find);
        if (code != SQLITE_ROW)
            break;
        uint64_t run = (uint64_t)id >> 32;
        if (id < from || run > SLICE_RUN_MAX)
            return error_set(error, SLICE_DAMAGED, "%.400s is damaged: a block has the id %lld", s->path, id);
        bool is_used = false;
        for (size_t i = 0; i < s->state.n_runs; i++)
            is_used = is_used || s->state.runs[i].id == run;
        if (!is_used)
            add_garbage(s, run);
        s->next_run = run + 1 > s->next_run ? run + 1 : s->next_run;
        from = SLICE_BLOCK_ID(run + 1, 0);
    }
    return code == SQLITE_DONE ? SLICE_OK : slice_sql_fail(s->db, "read the blocks", error);
}

enum slice_result slice_open(const struct slice_config *config, struct slice **out, struct error *error)
{
    struct slice *s = mem_zalloc(sizeof *s);
    bool is_new = false;
    s->path = mem_strdup(config->path);
    enum slice_result r =
        slice_sql_open(config->path, config->path, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, &s->db, error);
    if (r == SLICE_OK)
        r = slice_state_check_format(s->db, config->path, &is_new, error);
    /* Automatic checkpoints are off, because slice_checkpoint moves the log at a time when the readers were renewed. */
    if (r == SLICE_OK)
        r = slice_sql_run(s->db,
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = 0; "
            "PRAGMA cache_size = -8192;",
            error);
    char sql[64];
    snprintf(sql, sizeof sql, "PRAGMA max_page_count = %u", config->max_pages);
    if (r == SLICE_OK && config->max_pages > 0)
        r = slice_sql_run(s->db, sql, error);
    if (r == SLICE_OK)
        sqlite3_wal_hook(s->db, count_log_pages, &s->log_pages);
    if (r == SLICE_OK && is_new)
        r = make(s, config, error);
    if (r == SLICE_OK && !s->block)
        r = prepare(s, error);
    if (r == SLICE_OK)
        r = slice_state_read(s->db, config->path, &s->state, error);
    if (r == SLICE_OK)
        r = slice_state_check_number(&s->state, config->path, config->number, error);
    if (r == SLICE_OK)
        r = check_counters(&s->state, config, error);
    if (r == SLICE_OK)
        r = find_garbage(s, error);
    if (r != SLICE_OK)
        slice_close(&s);
    *out = s;
    return r;
}

static void free_merge(struct slice *s)
{
    struct merge *m = s->merge;
    if (!m)
        return;
    count_merge_free(&m->merge);
    count_run_writer_free(&m->writer);
    for (size_t i = 0; i < m->n; i++) {
        count_source_close(&m->sources[i]);
        count_run_index_free(&m->indexes[i]);
    }
    free(m->sources);
    free(m->indexes);
    free(m->runs);
    free(m);
    s->merge = NULL;
}

void slice_close(struct slice **sp)
{
    struct slice *s = *sp;
    if (!s)
        return;
    free_merge(s);
    for (int i = 0; i < STATEMENTS; i++)
        sqlite3_finalize(s->statements[i]);
    sqlite3_finalize(s->block);
    sqlite3_close(s->db);
    slice_state_free(&s->state);
    free(s->garbage);
    free(s->path);
    free(s);
    *sp = NULL;
}

static int write_block(void *arg, uint32_t block, struct bytes data)
{
    struct run_sink *sink = arg;
    sqlite3_stmt *add = sink->slice->statements[ADD_BLOCK];
    sqlite3_bind_int64(add, 1, SLICE_BLOCK_ID(sink->run, block));
    sqlite3_bind_blob64(add, 2, data.ptr, data.len, SQLITE_STATIC);
    sink->result = finish(sink->slice, ADD_BLOCK, sink->error);
    return sink->result == SLICE_OK ? 0 : -1;
}

/* Stores the run's last block and its row, and adds the run to `next`. */
static enum slice_result add_run(struct slice *s, struct count_run_writer *w, struct slice_run run,
    struct slice_state *next, struct run_sink *sink)
{
    struct buf index = {0};
    if (count_run_writer_finish(w, &index) != 0) {
        buf_free(&index);
        return sink->result;
    }
    struct count_run_index *parsed = count_run_index_parse(run.id, buf_bytes(&index));
    run.checksum = count_run_index_checksum(parsed);
    count_run_index_free(&parsed);
    run.counts = count_run_writer_counts(w);
    run.bytes = count_run_writer_bytes(w);
    const uint64_t columns[] = {run.id, run.level, run.counts, run.bytes, run.checksum};
    sqlite3_stmt *add = s->statements[ADD_RUN];
    for (int i = 0; i < 5; i++)
        sqlite3_bind_int64(add, i + 1, (sqlite3_int64)columns[i]);
    sqlite3_bind_blob64(add, 6, index.ptr, index.len, SQLITE_STATIC);
    enum slice_result r = finish(s, ADD_RUN, sink->error);
    buf_free(&index);
    next->runs = mem_realloc(next->runs, (next->n_runs + 1) * sizeof *next->runs);
    next->runs[next->n_runs++] = run;
    return r;
}

static void note_collisions(const struct count_merge *m, uint64_t before, struct slice_written *w)
{
    const char *key;
    uint64_t n = count_merge_collisions(m, &key);
    w->collisions += n - before;
    if (n > before)
        snprintf(w->collision, sizeof w->collision, "%s", key);
}

static enum slice_result write_counts(struct slice *s, const struct slice_batch *batch,
    struct slice_state *next, struct slice_written *w, struct error *error)
{
    struct run_sink sink = {s, s->next_run, SLICE_OK, error};
    struct count_merge *merge = count_merge_new(batch->sources, batch->n_sources);
    struct count_run_writer *writer = count_run_writer_new(sink.run, write_block, &sink);
    bool write_failed;
    enum count_next copied = count_run_writer_copy(writer, merge, UINT64_MAX / 2, &write_failed);
    enum slice_result r = sink.result;
    if (copied == COUNT_FAILED && !write_failed)
        r = error_set(error, SLICE_FAILED, "%s", count_merge_error(merge)->text);
    w->counts = count_run_writer_counts(writer);
    note_collisions(merge, 0, w);
    if (r == SLICE_OK && w->counts > 0)
        r = add_run(s, writer, (struct slice_run){.id = sink.run}, next, &sink);
    w->bytes = count_run_writer_bytes(writer);
    count_run_writer_free(&writer);
    count_merge_free(&merge);
    return r;
}

/* Commits and makes `next` the state. If r or the commit is a failure, rolls back. */
static enum slice_result end(
    struct slice *s, enum slice_result r, struct slice_state *next, struct error *error)
{
    if (r == SLICE_OK)
        r = set_state(s, next, error);
    if (r == SLICE_OK)
        r = slice_sql_run(s->db, "COMMIT", error);
    if (r == SLICE_OK) {
        struct slice_state old = s->state;
        s->state = *next;
        *next = old;
    } else if (!sqlite3_get_autocommit(s->db) && /* SQLite may have rolled back by itself */
               sqlite3_exec(s->db, "ROLLBACK", NULL, NULL, NULL) != SQLITE_OK) {
        r = error_set(error, SLICE_FAILED, "%s", error->text);
    }
    slice_state_free(next);
    return r;
}

enum slice_result slice_commit(
    struct slice *s, const struct slice_batch *batch, struct slice_written *written, struct error *error)
{
    *written = (struct slice_written){0};
    enum slice_result r = slice_sql_run(s->db, "BEGIN IMMEDIATE", error);
    if (r != SLICE_OK)
        return r;
    struct slice_state next = slice_state_copy(&s->state);
    r = write_counts(s, batch, &next, written, error);
    next.tally = batch->tally;
    if (batch->sums) {
        value_sums_free(&next.sums);
        next.sums = value_sums_copy(batch->sums);
    }
    next.rejects_length = batch->rejects_length;
    next.newest_hour = batch->newest_hour > next.newest_hour ? batch->newest_hour : next.newest_hour;
    next.sealed = next.sealed || batch->seal;
    next.cursors = mem_realloc(next.cursors, (next.n_cursors + batch->n_cursors + 1) * sizeof *next.cursors);
    for (size_t i = 0; i < batch->n_cursors; i++) {
        struct slice_cursor *old =
            slice_cursors_find(next.cursors, s->state.n_cursors, batch->cursors[i].stream);
        *(old ? old : &next.cursors[next.n_cursors++]) = batch->cursors[i];
    }
    slice_cursors_sort(next.cursors, next.n_cursors);
    r = end(s, r, &next, error);
    s->next_run += r == SLICE_OK;
    return r;
}

/* Returns the lowest level with at least `runs` runs, or -1 if no level has as many. */
static int find_level(const struct slice *s, size_t runs)
{
    size_t n[SLICE_LEVEL_MAX + 1] = {0};
    for (size_t i = 0; i < s->state.n_runs; i++)
        n[s->state.runs[i].level]++;
    for (int level = 0; level < SLICE_LEVEL_MAX; level++)
        if (n[level] >= runs)
            return level;
    return -1;
}

bool slice_merge_is_due(const struct slice *s)
{
    return s->merge || s->n_garbage > 0 || find_level(s, SLICE_MERGE_RUNS) >= 0;
}

bool slice_merge_is_behind(const struct slice *s)
{
    return find_level(s, 2 * SLICE_MERGE_RUNS) >= 0;
}

static int read_block(void *arg, uint64_t run, uint32_t block, struct buf *out, struct error *error)
{
    struct slice *s = arg;
    return slice_sql_read_block(s->db, s->block, s->path, run, block, out, error);
}

static enum slice_result begin_merge(struct slice *s, uint64_t level, struct error *error)
{
    struct merge *m = s->merge = mem_zalloc(sizeof *m);
    size_t most = s->state.n_runs;
    enum slice_result r = SLICE_OK;
    m->into = (struct slice_run){.id = s->next_run++, .level = level + 1};
    m->indexes = mem_zalloc((most + 1) * sizeof *m->indexes);
    m->sources = mem_zalloc((most + 1) * sizeof *m->sources);
    m->runs = mem_zalloc((most + 1) * sizeof *m->runs);
    for (size_t i = 0; i < most && r == SLICE_OK; i++) {
        const struct slice_run *run = &s->state.runs[i];
        if (run->level != level)
            continue;
        r = slice_sql_read_index(s->db, s->path, run, &m->indexes[m->n], error);
        if (r != SLICE_OK)
            break;
        m->sources[m->n] = count_run_source(m->indexes[m->n], BYTES_NONE, s->path, read_block, s);
        m->runs[m->n++] = run->id;
    }
    m->merge = count_merge_new(m->sources, m->n);
    m->sink = (struct run_sink){.slice = s, .run = m->into.id};
    m->writer = count_run_writer_new(m->into.id, write_block, &m->sink);
    return r;
}

static int compare_runs(const void *a, const void *b)
{
    const struct slice_run *x = a, *y = b;
    return x->id < y->id ? -1 : x->id > y->id;
}

static enum slice_result merge_part(
    struct slice *s, struct slice_written *w, bool *is_over, struct error *error)
{
    struct merge *m = s->merge;
    bool write_failed;
    m->sink.result = SLICE_OK;
    m->sink.error = error;
    enum slice_result r = slice_sql_run(s->db, "BEGIN IMMEDIATE", error);
    if (r != SLICE_OK)
        return r;
    struct slice_state next = slice_state_copy(&s->state);
    enum count_next copied = count_run_writer_copy(m->writer, m->merge, MERGE_STEP_BYTES, &write_failed);
    *is_over = copied == COUNT_END;
    r = m->sink.result;
    if (copied == COUNT_FAILED && !write_failed)
        r = slice_counts_failed(count_merge_error(m->merge), error);
    if (*is_over) {
        for (size_t i = 0; i < m->n && r == SLICE_OK; i++) {
            sqlite3_bind_int64(s->statements[DROP_RUN], 1, (sqlite3_int64)m->runs[i]);
            r = finish(s, DROP_RUN, error);
            size_t k = 0;
            while (next.runs[k].id != m->runs[i])
                k++;
            next.n_runs--;
            memmove(&next.runs[k], &next.runs[k + 1], (next.n_runs - k) * sizeof *next.runs);
        }
        if (r == SLICE_OK)
            r = add_run(s, m->writer, m->into, &next, &m->sink);
    }
    qsort(next.runs, next.n_runs, sizeof *next.runs, compare_runs);
    w->bytes = count_run_writer_bytes(m->writer);
    note_collisions(m->merge, m->collisions, w);
    m->collisions += w->collisions;
    return end(s, r, &next, error);
}

static enum slice_result delete_some(struct slice *s, struct error *error)
{
    struct garbage *g = &s->garbage[s->n_garbage - 1];
    sqlite3_stmt *find = s->statements[FIND_BLOCK], *drop = s->statements[DROP_BLOCKS];
    sqlite3_bind_int64(drop, 1, SLICE_BLOCK_ID(g->run, g->next));
    sqlite3_bind_int64(drop, 2, SLICE_BLOCK_ID(g->run, g->next + DELETE_STEP_BLOCKS));
    enum slice_result r = finish(s, DROP_BLOCKS, error);
    if (r != SLICE_OK)
        return r;
    g->next += DELETE_STEP_BLOCKS;
    sqlite3_bind_int64(find, 1, SLICE_BLOCK_ID(g->run, g->next));
    int code = sqlite3_step(find);
    bool is_left = code == SQLITE_ROW && (uint64_t)sqlite3_column_int64(find, 0) >> 32 == g->run;
    sqlite3_reset(find);
    s->n_garbage -= !is_left;
    return SLICE_OK;
}

enum slice_result slice_merge_step(struct slice *s, struct slice_written *written, struct error *error)
{
    *written = (struct slice_written){0};
    if (s->n_garbage > 0)
        return delete_some(s, error);
    bool is_over = false;
    enum slice_result r = SLICE_OK;
    if (!s->merge)
        r = begin_merge(s, (uint64_t)find_level(s, SLICE_MERGE_RUNS), error);
    if (r == SLICE_OK)
        r = merge_part(s, written, &is_over, error);
    if (r == SLICE_OK && is_over) {
        for (size_t i = 0; i < s->merge->n; i++)
            add_garbage(s, s->merge->runs[i]);
        free_merge(s);
    } else if (r != SLICE_OK) {
        add_garbage(s, s->merge->into.id);
        free_merge(s);
    }
    return r;
}

enum slice_result slice_merge_abandon(struct slice *s, struct error *error)
{
    enum slice_result r = SLICE_OK;
    if (s->merge)
        add_garbage(s, s->merge->into.id);
    free_merge(s);
    while (r == SLICE_OK && s->n_garbage > 0)
        r = delete_some(s, error);
    return r;
}

enum slice_result slice_checkpoint(struct slice *s, bool *whole, struct error *error)
{
    int pages = 0, moved = 0;
    int code = sqlite3_wal_checkpoint_v2(s->db, NULL, SQLITE_CHECKPOINT_PASSIVE, &pages, &moved);
    if (code != SQLITE_OK && (code & 0xff) != SQLITE_BUSY)
        return slice_sql_fail(s->db, "checkpoint", error);
    *whole = code == SQLITE_OK && moved == pages;
    s->log_pages = 0;
    return SLICE_OK;
}

/* Syncs the log that remains after a close, because another process reads the slice. If the writer was killed, its last
 * commit may not be synced. */
static enum slice_result sync_log(const char *path, struct error *error)
{
    char *log = mem_printf("%s-wal", path);
    int fd = open(log, O_RDONLY | O_CLOEXEC);
    enum slice_result r = SLICE_OK;
    if (fd < 0 ? errno != ENOENT : io->fsync(fd) != 0)
        r = error_errno(error, SLICE_FAILED, log);
    if (fd >= 0)
        close(fd);
    free(log);
    return r;
}

enum slice_result slice_look(
    const char *path, uint64_t number, struct slice_state *state, struct error *error)
{
    sqlite3 *db = NULL;
    bool is_new = true;
    *state = (struct slice_state){0};
    if (access(path, F_OK) != 0)
        return SLICE_OK;
    enum slice_result r = slice_sql_open(path, path, SQLITE_OPEN_READWRITE, &db, error);
    if (r == SLICE_OK)
        r = slice_state_check_format(db, path, &is_new, error);
    if (r == SLICE_OK && !is_new)
        r = slice_state_read(db, path, state, error);
    if (r == SLICE_OK && !is_new)
        r = slice_state_check_number(state, path, number, error);
    sqlite3_close(db);
    if (r == SLICE_OK)
        r = sync_log(path, error);
    if (r != SLICE_OK)
        slice_state_free(state);
    return r;
}
