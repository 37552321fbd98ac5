#include "aggregator/reads.h"

#include "counts/records.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

enum run_kind { RUN_COUNTS, RUN_LOOKUPS, RUN_MAP };

/* One ordered run of rows: a snapshot has two, a map one. */
struct run {
    enum run_kind kind;
    struct slice_snapshot *snapshot;
    struct count_cursor cursor;
    bool there;
    struct row row;
};

struct merge {
    size_t n;
    struct run *runs;
    struct reads_layers *layers;
    struct buf key, text; /* of the row given last: a run's own memory goes when it moves on */
};

static void run_next(struct run *r)
{
    if (r->kind == RUN_MAP)
        r->there = count_cursor_next(&r->cursor, &r->row);
    else if (r->kind == RUN_COUNTS)
        r->there = slice_scan_next_count(r->snapshot, &r->row);
    else
        r->there = slice_scan_next_lookup(r->snapshot, &r->row);
}

static void merge_begin(struct merge *m, struct reads_layers *l, struct bytes from)
{
    *m = (struct merge){
        .layers = l, .runs = mem_zalloc((2 * l->n_snapshots + l->n_maps) * sizeof(struct run) + 1)};
    for (size_t i = 0; i < l->n_snapshots; i++) {
        slice_scan_begin(l->snapshots[i], from);
        m->runs[m->n++] = (struct run){.kind = RUN_COUNTS, .snapshot = l->snapshots[i]};
        m->runs[m->n++] = (struct run){.kind = RUN_LOOKUPS, .snapshot = l->snapshots[i]};
    }
    for (size_t i = 0; i < l->n_maps; i++)
        m->runs[m->n++] = (struct run){.kind = RUN_MAP, .cursor = count_map_seek(l->maps[i], from)};
    for (size_t i = 0; i < m->n; i++)
        run_next(&m->runs[i]);
}

/* 0, or -1 when a layer ended early. */
static int merge_end(struct merge *m, char error[SLICE_ERROR_TEXT])
{
    int result = 0;
    for (size_t i = 0; i < m->layers->n_snapshots; i++) {
        const char *text;
        if (slice_scan_end(m->layers->snapshots[i], &text) != SLICE_OK) {
            snprintf(error, SLICE_ERROR_TEXT, "%s", text);
            result = -1;
        }
    }
    free(m->runs);
    buf_free(&m->key);
    buf_free(&m->text);
    return result;
}

static const struct run *smallest(const struct merge *m)
{
    const struct run *least = NULL;
    for (size_t i = 0; i < m->n; i++) {
        if (m->runs[i].there && (!least || bytes_compare(m->runs[i].row.key, least->row.key) < 0))
            least = &m->runs[i];
    }
    return least;
}

static void add_row(struct merge *m, struct row *sum, const struct row *row)
{
    sum->count += row->count;
    if (!row->is_text || (sum->is_text && bytes_compare(sum->text, row->text) <= 0))
        return;
    sum->is_text = true;
    buf_clear(&m->text);
    buf_append_bytes(&m->text, row->text);
    sum->text = buf_bytes(&m->text);
}

/* The next key with everything that any run has under it; valid until the next call. */
static bool merge_next(struct merge *m, struct row *sum)
{
    const struct run *least = smallest(m);
    if (!least)
        return false;
    buf_clear(&m->key);
    buf_append_bytes(&m->key, least->row.key);
    *sum = (struct row){.key = buf_bytes(&m->key)};
    for (size_t i = 0; i < m->n; i++) {
        struct run *r = &m->runs[i];
        if (r->there && bytes_equal(r->row.key, sum->key)) {
            add_row(m, sum, &r->row);
            run_next(r);
        }
    }
    return true;
}

void reads_answer_free(struct reads_answer *a)
{
    buf_free(&a->lines);
    buf_free(&a->next);
}

/* The row's record key with its separator. */
static struct bytes record_part(const struct row *row)
{
    const char *comma = memchr(row->key.ptr, RECORD_SEPARATOR, row->key.len);
    assert(comma);
    return bytes_of(row->key.ptr, (size_t)(comma - row->key.ptr) + 1);
}

static void append_value(struct buf *lines, const struct row *row, struct bytes name, bool is_first)
{
    if (row->is_text) {
        lookup_escape(row->text, lines);
        return;
    }
    if (!is_first)
        buf_append_char(lines, ' ');
    buf_append_bytes(lines, name);
    buf_append_char(lines, ':');
    buf_append_u64(lines, row->count);
}

/* Which records a scan takes: called with the key and its separator, in ascending order. */
struct scan {
    struct bytes from, prefix, last; /* last: key and separator, or empty */
    struct reads_bounds bounds;
};

static bool wanted(const struct scan *s, struct bytes part)
{
    if (!bytes_starts_with(bytes_of(part.ptr, part.len - 1), s->prefix))
        return false;
    return s->last.len == 0 || bytes_compare(part, s->last) <= 0;
}

static bool is_full(const struct reads_bounds *b, const struct reads_answer *a)
{
    if (a->records == 0)
        return false;
    return (b->max_records && a->records >= b->max_records) || (b->max_bytes && a->lines.len >= b->max_bytes);
}

/* Begins the record's line; false when the answer ends before it. */
static bool begin_record(const struct scan *s, struct bytes part, struct reads_answer *a, struct buf *current)
{
    if (current->len > 0)
        buf_append_char(&a->lines, '\n');
    buf_clear(current);
    if (!wanted(s, part))
        return false;
    if (is_full(&s->bounds, a)) {
        a->more = true;
        buf_append(&a->next, part.ptr, part.len - 1);
        return false;
    }
    buf_append_bytes(current, part);
    buf_append_bytes(&a->lines, part);
    a->records++;
    return true;
}

static int run_scan(struct reads_layers *l, const struct scan *s, struct reads_answer *a)
{
    struct merge m;
    struct row row;
    struct buf current = {0}; /* the key, with separator, of the line being written */
    merge_begin(&m, l, s->from);
    while (merge_next(&m, &row)) {
        struct bytes part = record_part(&row);
        /* A bound with a separator inside, which no key has, may lie among the rows of one record. */
        if (bytes_compare(part, s->from) < 0)
            continue;
        bool is_first = !bytes_equal(part, buf_bytes(&current));
        if (is_first && !begin_record(s, part, a, &current))
            break;
        append_value(&a->lines, &row, bytes_of(row.key.ptr + part.len, row.key.len - part.len), is_first);
    }
    if (current.len > 0)
        buf_append_char(&a->lines, '\n');
    buf_free(&current);
    return merge_end(&m, a->error);
}

static void append_bound(struct buf *out, struct bytes key)
{
    buf_append_bytes(out, key);
    buf_append_char(out, RECORD_SEPARATOR);
}

int reads_get(struct reads_layers *l, struct bytes key, struct reads_answer *answer)
{
    return reads_range(l, key, key, (struct reads_bounds){0}, answer);
}

int reads_prefix(struct reads_layers *l, struct bytes prefix, struct bytes start, struct reads_bounds bounds,
    struct reads_answer *answer)
{
    struct buf from = {0};
    if (start.len > 0)
        append_bound(&from, start);
    if (bytes_compare(buf_bytes(&from), prefix) < 0) {
        buf_clear(&from);
        buf_append_bytes(&from, prefix);
    }
    struct scan s = {.from = buf_bytes(&from), .prefix = prefix, .bounds = bounds};
    int result = run_scan(l, &s, answer);
    buf_free(&from);
    return result;
}

int reads_range(struct reads_layers *l, struct bytes start, struct bytes end, struct reads_bounds bounds,
    struct reads_answer *answer)
{
    struct buf from = {0}, last = {0};
    append_bound(&from, start);
    append_bound(&last, end);
    struct scan s = {.from = buf_bytes(&from), .last = buf_bytes(&last), .bounds = bounds};
    int result = run_scan(l, &s, answer);
    buf_free(&from);
    buf_free(&last);
    return result;
}
