#include "support/make_slice.h"

#include "base/clock.h"
#include "counts/slice.h"
#include "counts/slice_sql.h"
#include "sets/set_chunk.h"

#include <stdio.h>
#include <stdlib.h>

static void need(int ok, const char *error)
{
    if (ok)
        return;
    fprintf(stderr, "make_slice: %s\n", error);
    abort();
}

/* The rows as a source. */
struct rows {
    struct count_source base; /* first */
    const struct slice_row *next;
    char id[SET_CHUNK_ID];
    struct buf chunk; /* of a set */
};

static struct bytes key_of(const struct slice_row *row)
{
    return bytes_of(row->key, (size_t)(strchr(row->key, ',') - row->key) + 1);
}

static enum count_next next_value(struct count_source *base)
{
    struct rows *s = (struct rows *)base;
    if (!s->next->key || !bytes_equal(key_of(s->next), base->key))
        return COUNT_END;
    base->name = bytes_str(s->next->key + base->key.len);
    base->count = s->next->n;
    base->text = bytes_str(s->next->text);
    if (bytes_equal_str(base->name, "=")) {
        uint64_t code = (uint64_t)s->next->n;
        set_chunk_id(code, s->id);
        buf_clear(&s->chunk);
        set_chunk_append(&code, 1, &s->chunk);
        base->name = bytes_of(s->id, sizeof s->id);
        base->text = buf_bytes(&s->chunk);
    }
    s->next++;
    return COUNT_FOUND;
}

static enum count_next next_record(struct count_source *base)
{
    struct rows *s = (struct rows *)base;
    while (base->key.len > 0 && next_value(base) == COUNT_FOUND)
        ;
    if (!s->next->key)
        return COUNT_END;
    base->key = key_of(s->next);
    return COUNT_FOUND;
}

void make_slice(const char *path, uint64_t number, const char *counters, const struct slice_row *rows)
{
    static const struct count_source_kind kind = {next_record, next_value, NULL, NULL};
    struct rows source = {.base.kind = &kind, .next = rows};
    struct count_source *sources[] = {&source.base};
    struct slice_cursor cursors[] = {
        {.stream = "clicks", .id = "c0ffee", .offset = (number - 1) * 1000, .until = INT64_MAX},
        {.stream = "later", .until = (int64_t)number * 1000 * USEC_PER_SEC + 7}};
    struct slice_config config = {
        .path = path, .number = number, .counters_text = counters, .cursors = cursors, .n_cursors = 2};
    struct slice_batch batch = {
        .sources = sources, .n_sources = 1, .cursors = cursors, .n_cursors = 2, .seal = true};
    struct slice_written written;
    struct slice *slice;
    struct error error;
    remove(path);
    need(slice_open(&config, &slice, &error) == SLICE_OK, error.text);
    cursors[0].offset = number * 1000;
    for (const struct slice_row *row = rows; row->key; row++) {
        bool is_subtotal =
            memchr(row->key, '.', strcspn(row->key, "|")) != NULL; /* counts events of totals again */
        batch.tally.events += row->text || is_subtotal ? 0 : (uint64_t)row->n;
    }
    need(slice_commit(slice, &batch, &written, &error) == SLICE_OK, error.text);
    slice_close(&slice);
    buf_free(&source.chunk);
}

void change_slice(const char *path, const char *sql)
{
    sqlite3 *db = NULL;
    struct error error;
    char *set;
    struct slice_state state;
    uint64_t stored;
    need(sqlite3_open(path, &db) == SQLITE_OK, path);
    need(sqlite3_exec(db, sql, NULL, NULL, NULL) == SQLITE_OK, sqlite3_errmsg(db));
    need(slice_state_load(db, &state, &stored, &error) == SLICE_OK, error.text);
    set = sqlite3_mprintf(
        "UPDATE meta SET value = %lld WHERE key = 'checksum'", (long long)slice_state_checksum(&state));
    need(sqlite3_exec(db, set, NULL, NULL, NULL) == SQLITE_OK, sqlite3_errmsg(db));
    sqlite3_free(set);
    slice_state_free(&state);
    sqlite3_close(db);
}
