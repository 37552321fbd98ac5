#include "counts/slice_state.h"

#include "base/xxh3.h"
#include "counts/slice_sql.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define APPLICATION_ID 0x4d524c53 /* "MRLS" */

enum slice_result slice_counts_failed(const struct error *from, struct error *error)
{
    return error_set(error, from->code == COUNT_UNREADABLE ? SLICE_FAILED : SLICE_DAMAGED, "%s", from->text);
}

void slice_state_free(struct slice_state *state)
{
    free(state->counters);
    value_sums_free(&state->sums);
    free(state->begins);
    free(state->cursors);
    free(state->runs);
    *state = (struct slice_state){0};
}

static int compare_cursors(const void *a, const void *b)
{
    return strcmp(((const struct slice_cursor *)a)->stream, ((const struct slice_cursor *)b)->stream);
}

void slice_cursors_sort(struct slice_cursor *cursors, size_t n)
{
    if (n > 1)
        qsort(cursors, n, sizeof *cursors, compare_cursors);
}

static int compare_name(const void *name, const void *cursor)
{
    return strcmp(name, ((const struct slice_cursor *)cursor)->stream);
}

struct slice_cursor *slice_cursors_find(const struct slice_cursor *cursors, size_t n, const char *stream)
{
    return n > 0 ? bsearch(stream, cursors, n, sizeof *cursors, compare_name) : NULL;
}

static void *copy_of(const void *list, size_t n, size_t size)
{
    void *copy = mem_alloc((n + 1) * size);
    if (n > 0)
        memcpy(copy, list, n * size);
    return copy;
}

struct slice_state slice_state_copy(const struct slice_state *state)
{
    struct slice_state copy = *state;
    copy.counters = state->counters ? mem_strdup(state->counters) : NULL;
    copy.sums = value_sums_copy(&state->sums);
    copy.begins = copy_of(state->begins, state->n_begins, sizeof *state->begins);
    copy.cursors = copy_of(state->cursors, state->n_cursors, sizeof *state->cursors);
    copy.runs = copy_of(state->runs, state->n_runs, sizeof *state->runs);
    return copy;
}

static void print_cursors(struct buf *out, const char *what, const struct slice_cursor *list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        buf_printf(out, "%s %s %s %" PRIu64 " %" PRId64 "\n", what, list[i].stream, list[i].id,
            list[i].offset, list[i].until);
}

static void print_tally(struct buf *out, const struct slice_tally *t)
{
    buf_printf(out, "%" PRIu64 " %" PRIu64 " %" PRIu64 "\n", t->events, t->skipped, t->rejected);
}

uint64_t slice_state_checksum(const struct slice_state *state)
{
    struct buf text = {0};
    buf_printf(&text, "%" PRIu64 " %" PRId64 " %" PRIu64 " %d %" PRId64 " %" PRId64 "\n", state->number,
        state->started, state->rejects_length, state->sealed, state->quarters_since, state->newest_hour);
    print_tally(&text, &state->tally);
    print_tally(&text, &state->before);
    print_cursors(&text, "begin", state->begins, state->n_begins);
    print_cursors(&text, "cursor", state->cursors, state->n_cursors);
    for (size_t i = 0; i < state->n_runs; i++) {
        const struct slice_run *r = &state->runs[i];
        buf_printf(&text, "run %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %016" PRIx64 "\n", r->id,
            r->level, r->counts, r->bytes, r->checksum);
    }
    for (size_t i = 0; i < state->sums.n; i++)
        buf_printf(
            &text, "%s%s %" PRIu64 "\n", SLICE_SUM_KEY, state->sums.list[i].ns, state->sums.list[i].sum);
    buf_append_str(&text, state->counters ? state->counters : "");
    uint64_t sum = XXH3_64bits(text.ptr, text.len);
    buf_free(&text);
    return sum;
}

static enum slice_result query_number(sqlite3 *db, const char *sql, uint64_t *out, struct error *error)
{
    sqlite3_stmt *statement;
    if (sqlite3_prepare_v2(db, sql, -1, &statement, NULL) != SQLITE_OK)
        return slice_sql_fail(db, sql, error);
    *out = 0;
    if (sqlite3_step(statement) == SQLITE_ROW)
        *out = (uint64_t)sqlite3_column_int64(statement, 0);
    return sqlite3_finalize(statement) == SQLITE_OK ? SLICE_OK : slice_sql_fail(db, sql, error);
}

enum slice_result slice_state_check_format(sqlite3 *db, const char *path, bool *is_new, struct error *error)
{
    uint64_t application = 0, version = 0, tables = 0;
    enum slice_result r = query_number(db, "PRAGMA application_id", &application, error);
    if (r == SLICE_OK)
        r = query_number(db, "PRAGMA user_version", &version, error);
    if (r == SLICE_OK)
        r = query_number(db, "SELECT count(*) FROM sqlite_master", &tables, error);
    if (r != SLICE_OK)
        return r;
    *is_new = application == 0 && version == 0 && tables == 0;
    if (*is_new || (application == APPLICATION_ID && version == SLICE_FORMAT))
        return SLICE_OK;
    if (application != APPLICATION_ID)
        return error_set(
            error, SLICE_FOREIGN, "%.400s is not a slice: its application id is %" PRIu64, path, application);
    return error_set(error, SLICE_VERSION, "%.400s: unknown format version %" PRIu64, path, version);
}

static void take_text(sqlite3_stmt *row, int column, char *out, size_t size)
{
    struct bytes text = slice_sql_bytes(row, column);
    snprintf(out, size, "%.*s", (int)text.len, text.ptr ? text.ptr : "");
}

static uint64_t column_number(sqlite3_stmt *row, int column)
{
    return (uint64_t)sqlite3_column_int64(row, column);
}

static void take_meta(struct slice_state *state, uint64_t *checksum, sqlite3_stmt *row)
{
    uint64_t started = 0, sealed = 0, quarters_since = 0, newest_hour = 0;
    const struct {
        const char *key;
        uint64_t *to;
    } fields[] = {{"number", &state->number}, {"rejects_length", &state->rejects_length},
        {"events", &state->tally.events}, {"skipped", &state->tally.skipped},
        {"rejected", &state->tally.rejected}, {"events_before", &state->before.events},
        {"skipped_before", &state->before.skipped}, {"rejected_before", &state->before.rejected},
        {"started", &started}, {"sealed", &sealed}, {"quarters_since", &quarters_since},
        {"newest_hour", &newest_hour}, {"checksum", checksum}};
    struct bytes key = slice_sql_bytes(row, 0);
    if (bytes_equal_str(key, "counters")) {
        free(state->counters);
        state->counters = bytes_dup(slice_sql_bytes(row, 1));
        return;
    }
    struct bytes prefix = BYTES_LITERAL(SLICE_SUM_KEY);
    if (bytes_starts_with(key, prefix) && key.len - prefix.len < VALUE_SUM_NS_TEXT)
        value_sums_at(&state->sums, bytes_of(key.ptr + prefix.len, key.len - prefix.len))->sum =
            column_number(row, 1);
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
        if (bytes_equal_str(key, fields[i].key))
            *fields[i].to = column_number(row, 1);
    state->started = started ? (int64_t)started : state->started;
    state->quarters_since = quarters_since ? (int64_t)quarters_since : state->quarters_since;
    state->newest_hour = newest_hour ? (int64_t)newest_hour : state->newest_hour;
    state->sealed = state->sealed || sealed == 1;
}

static void take_cursor(struct slice_cursor **list, size_t *n, sqlite3_stmt *row)
{
    if ((*n & (*n - 1)) == 0)
        *list = mem_realloc(*list, (*n ? 2 * *n : 1) * sizeof **list);
    struct slice_cursor *c = &(*list)[(*n)++];
    *c = (struct slice_cursor){.offset = column_number(row, 2), .until = sqlite3_column_int64(row, 3)};
    take_text(row, 0, c->stream, sizeof c->stream);
    take_text(row, 1, c->id, sizeof c->id);
}

enum part { PART_META, PART_CURSORS, PART_BEGINS, PART_RUNS, PARTS };

static enum slice_result read_part(
    sqlite3 *db, enum part part, struct slice_state *state, uint64_t *checksum, struct error *error)
{
    static const char *const sql[PARTS] = {"SELECT key, value FROM meta",
        "SELECT stream, id, offset, until FROM cursors ORDER BY stream",
        "SELECT stream, id, offset, until FROM begins ORDER BY stream",
        "SELECT id, level, counts, bytes, checksum FROM runs ORDER BY id"};
    sqlite3_stmt *row;
    if (sqlite3_prepare_v2(db, sql[part], -1, &row, NULL) != SQLITE_OK)
        return slice_sql_fail(db, "read the slice's state", error);
    while (sqlite3_step(row) == SQLITE_ROW) {
        if (part == PART_META)
            take_meta(state, checksum, row);
        else if (part == PART_CURSORS)
            take_cursor(&state->cursors, &state->n_cursors, row);
        else if (part == PART_BEGINS)
            take_cursor(&state->begins, &state->n_begins, row);
        else {
            state->runs = mem_realloc(state->runs, (state->n_runs + 1) * sizeof *state->runs);
            state->runs[state->n_runs++] = (struct slice_run){column_number(row, 0), column_number(row, 1),
                column_number(row, 2), column_number(row, 3), column_number(row, 4)};
        }
    }
    return sqlite3_finalize(row) == SQLITE_OK ? SLICE_OK
                                              : slice_sql_fail(db, "read the slice's state", error);
}

enum slice_result slice_state_load(
    sqlite3 *db, struct slice_state *state, uint64_t *checksum, struct error *error)
{
    enum slice_result r = SLICE_OK;
    *state = (struct slice_state){0};
    *checksum = 0;
    for (enum part p = 0; p < PARTS && r == SLICE_OK; p++)
        r = read_part(db, p, state, checksum, error);
    if (r != SLICE_OK)
        slice_state_free(state);
    return r;
}

/* Returns false if a run has an impossible id or level. The checksum does not suffice, because a forged state can have
 * a valid checksum. */
static bool has_possible_runs(const struct slice_state *state)
{
    for (size_t i = 0; i < state->n_runs; i++)
        if (state->runs[i].id - 1 >= SLICE_RUN_MAX || state->runs[i].level > SLICE_LEVEL_MAX)
            return false;
    return true;
}

enum slice_result slice_state_read(
    sqlite3 *db, const char *path, struct slice_state *state, struct error *error)
{
    uint64_t checksum;
    enum slice_result r = slice_state_load(db, state, &checksum, error);
    if (r != SLICE_OK)
        return r;
    bool is_good = state->counters && checksum == slice_state_checksum(state);
    if (is_good && has_possible_runs(state))
        return SLICE_OK;
    slice_state_free(state);
    return error_set(error, SLICE_DAMAGED, "%.400s is damaged: %s; restore it from a copy", path,
        is_good ? "a run has an impossible id or level" : "the checksum of its state does not match");
}

enum slice_result slice_state_check_number(
    const struct slice_state *state, const char *path, uint64_t number, struct error *error)
{
    if (state->number == number)
        return SLICE_OK;
    return error_set(error, SLICE_FOREIGN, "the name of %.400s does not match its slice number %" PRIu64,
        path, state->number);
}
