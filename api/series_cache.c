#include "api/series_cache.h"

#include "api/render.h"
#include "base/xxh3.h"
#include <stdlib.h>
#include <sys/queue.h>

#define BUCKETS 1024

/* A printed row. `end` is the end of the row's text in the entry's text. */
struct kept_row {
    int64_t start, unit; /* start of the row, and its unit (units_order) */
    int64_t n;
    uint32_t end;
    enum row_state state;
};

struct entry {
    LIST_ENTRY(entry) in_bucket;
    TAILQ_ENTRY(entry) by_use;
    uint64_t hash;
    struct query query; /* query of the entry; key and sub_key point to `texts` */
    char *texts;
    struct series sums;
    struct kept_row
        *rows; /* rows of the text; NULL: no text yet. A further row contains the end of the last unit */
    size_t n_rows;
    struct buf text;
    bool is_long; /* the text is longer than SERIES_CACHE_TEXT_BYTES and is not kept */
    size_t bytes;
};

struct series_cache {
    struct source_generation generation;
    LIST_HEAD(, entry) buckets[BUCKETS];
    TAILQ_HEAD(uses, entry) uses; /* entries, most recently used first */
    size_t bytes;
    struct stats *stats;
    struct stats_counter *hits;
};

STATS_READ(read_bytes, ((struct series_cache *)ctx)->bytes)

struct series_cache *series_cache_new(struct stats *stats)
{
    struct series_cache *c = mem_zalloc(sizeof *c);
    TAILQ_INIT(&c->uses);
    c->stats = stats;
    c->hits = stats_counter(stats, "series_cache_hits_total", NULL,
        "series that were answered from kept sums, without a read of the archive");
    stats_gauge(
        stats, "series_cache_bytes", NULL, "memory of the kept sums and texts of series", read_bytes, c);
    return c;
}

static void drop_text(struct entry *e)
{
    free(e->rows);
    e->rows = NULL;
    e->n_rows = 0;
    buf_free(&e->text);
}

static void drop(struct series_cache *c, struct entry *e)
{
    LIST_REMOVE(e, in_bucket);
    TAILQ_REMOVE(&c->uses, e, by_use);
    c->bytes -= e->bytes;
    drop_text(e);
    series_reset(&e->sums);
    free(e->texts);
    free(e);
}

static void drop_all(struct series_cache *c)
{
    while (!TAILQ_EMPTY(&c->uses))
        drop(c, TAILQ_FIRST(&c->uses));
}

void series_cache_free(struct series_cache **cp)
{
    struct series_cache *c = *cp;
    *cp = NULL;
    if (!c)
        return;
    stats_remove_gauges(c->stats, c);
    drop_all(c);
    free(c);
}

bool series_cache_takes(const struct query *q)
{
    return q->kind == QUERY_SERIES && !q->is_former && !q->by_minute && !q->is_all && q->n_values == 0 &&
           q->top == 0 && !q->events.total;
}

static uint64_t hash_of(const struct query *q)
{
    const int64_t numbers[] = {q->from, q->to};
    uint64_t seed = XXH3_64bits(numbers, sizeof numbers);
    seed = XXH3_64bits_withSeed(q->key.ptr, q->key.len, seed);
    return XXH3_64bits_withSeed(q->stored_sub, strlen(q->stored_sub), seed);
}

static bool is_same_zone(const struct zone *a, const struct zone *b)
{
    return a->fixed == b->fixed && a->offset == b->offset && a->table == b->table;
}

static bool is_same(const struct query *a, const struct query *b)
{
    return a->total == b->total && a->sub == b->sub && bytes_equal(a->key, b->key) &&
           bytes_equal(a->sub_key, b->sub_key) && a->from == b->from && a->to == b->to &&
           a->format == b->format && a->calendar.unit == b->calendar.unit &&
           a->calendar.week_start == b->calendar.week_start &&
           is_same_zone(&a->calendar.zone, &b->calendar.zone);
}

static bool is_current(const struct series_cache *c, const struct source_generation *g)
{
    return g->content != 0 && c->generation.number == g->number && c->generation.content == g->content;
}

static struct entry *find(struct series_cache *c, const struct source_generation *g, const struct query *q)
{
    struct entry *e;
    if (!is_current(c, g))
        return NULL;
    uint64_t hash = hash_of(q);
    LIST_FOREACH(e, &c->buckets[hash % BUCKETS], in_bucket)
    if (e->hash == hash && is_same(&e->query, q)) {
        TAILQ_REMOVE(&c->uses, e, by_use);
        TAILQ_INSERT_HEAD(&c->uses, e, by_use);
        return e;
    }
    return NULL;
}

/* Counts the memory of an entry. Discards the entry if the entry is too large, and old entries until the cache is
 * within its limit. Returns false if the entry was discarded. */
static bool fit(struct series_cache *c, struct entry *e)
{
    size_t bytes = sizeof *e + e->query.key.len + e->query.sub_key.len + series_bytes(&e->sums) +
                   e->text.cap + (e->rows ? (e->n_rows + 1) * sizeof *e->rows : 0);
    c->bytes += bytes - e->bytes;
    e->bytes = bytes;
    if (bytes > SERIES_CACHE_ENTRY_BYTES) {
        drop(c, e);
        return false;
    }
    while (c->bytes > SERIES_CACHE_BYTES)
        drop(c, TAILQ_LAST(&c->uses, uses));
    return true;
}

bool series_cache_recall(struct series_cache *c, const struct source_generation *g, struct series *s)
{
    struct entry *e = find(c, g, s->query);
    if (!e)
        return false;
    series_copy(s, &e->sums);
    stats_add(c->hits, 1);
    return true;
}

void series_cache_keep(struct series_cache *c, const struct source_generation *g, const struct series *s)
{
    const struct query *q = s->query;
    if (!is_current(c, g)) {
        drop_all(c);
        c->generation = *g;
    }
    if (g->content == 0 || series_bytes(s) > SERIES_CACHE_ENTRY_BYTES || find(c, g, q))
        return;
    struct entry *e = mem_zalloc(sizeof *e);
    e->hash = hash_of(q);
    query_copy(&e->query, q);
    e->texts = mem_alloc(q->key.len + q->sub_key.len + 1);
    memcpy(e->texts, q->key.ptr, q->key.len);
    if (q->sub_key.len > 0)
        memcpy(e->texts + q->key.len, q->sub_key.ptr, q->sub_key.len);
    e->query.key.ptr = e->texts;
    e->query.sub_key.ptr = e->texts + q->key.len;
    e->query.params = NULL;
    series_init(&e->sums, &e->query);
    series_copy(&e->sums, s);
    LIST_INSERT_HEAD(&c->buckets[e->hash % BUCKETS], e, in_bucket);
    TAILQ_INSERT_HEAD(&c->uses, e, by_use);
    fit(c, e);
}

static void keep_row(struct entry *e, size_t *room, struct kept_row row)
{
    ARRAY_ROOM(e->rows, *room, e->n_rows + 1);
    e->rows[e->n_rows] = row;
}

/* Prints all rows into the entry's text. Returns false if the text is too long. */
static bool print_all(struct entry *e, const struct series *s, const struct completeness *complete)
{
    struct series walk = *s; /* a copy: the position in `s` stays as it is */
    struct series_row row = {.end = walk.next};
    size_t room = 0;
    walk.runs = mem_alloc(s->n_runs * sizeof *s->runs);
    for (size_t i = 0; i < s->n_runs; i++)
        walk.runs[i] = s->runs[i];
    while (e->text.len <= SERIES_CACHE_TEXT_BYTES && series_next(&walk, &row)) {
        render_series_row(&walk, &row, complete, &e->text);
        keep_row(e, &room,
            (struct kept_row){.start = row.start,
                .unit = units_order(&e->query.calendar, row.start),
                .n = row.n,
                .end = (uint32_t)e->text.len,
                .state = render_row_state(&row, complete)});
        e->n_rows++;
    }
    free(walk.runs);
    keep_row(e, &room, (struct kept_row){.start = row.end});
    e->rows = mem_realloc(e->rows, (e->n_rows + 1) * sizeof *e->rows);
    return e->text.len <= SERIES_CACHE_TEXT_BYTES;
}

/* Appends the text of the rows from `first` to before `end`. */
static void copy_rows(const struct entry *e, size_t first, size_t end, struct buf *out)
{
    uint32_t from = first > 0 ? e->rows[first - 1].end : 0;
    if (first < end)
        buf_append(out, e->text.ptr + from, e->rows[end - 1].end - from);
}

/* Appends all rows. Rows that differ from the text are printed again. Returns the number of these rows. */
static size_t print_changes(
    const struct entry *e, struct series *s, const struct completeness *complete, struct buf *out)
{
    size_t copied = 0, changed = 0;
    for (size_t i = 0; i < e->n_rows; i++) {
        const struct kept_row *kept = &e->rows[i];
        struct series_row row = {.start = kept->start, .end = kept[1].start, .n = series_take(s, kept->unit)};
        if (row.n == kept->n && render_row_state(&row, complete) == kept->state)
            continue;
        copy_rows(e, copied, i, out);
        render_series_row(s, &row, complete, out);
        copied = i + 1;
        changed++;
    }
    copy_rows(e, copied, e->n_rows, out);
    return changed;
}

bool series_cache_print(struct series_cache *c, const struct source_generation *g, struct series *s,
    const struct completeness *complete, struct buf *out)
{
    struct entry *e = find(c, g, s->query);
    if (!e)
        return false;
    if (!e->rows && !e->is_long) {
        e->is_long = !print_all(e, s, complete);
        if (e->is_long)
            drop_text(e);
        if (!fit(c, e))
            return false;
    }
    if (e->is_long)
        return false;
    size_t changed = print_changes(e, s, complete, out);
    render_series_end(s, out);
    if (changed > e->n_rows / 8) { /* the next answer prints all rows again */
        drop_text(e);
        fit(c, e);
    }
    return true;
}
