#include "aggregator/minute_read.h"

#include <inttypes.h>
#include <stdlib.h>

/* Ids of texts with the same stored form. */
struct ids {
    uint32_t *list;
    size_t n, room;
};

struct minute_read {
    struct minute_query q;
    char key[COMPONENT_HASH], sub[COMPONENT_HASH]; /* padded with NUL */
    size_t key_column, sub_column, value_column;
    bool has_key, has_sub, is_ranking;
    size_t n_values;
    struct minute_part *parts;
    size_t n_parts;
    struct ids keys, subs; /* ids in the current interner, whose index only the owner of the ring may use */
};

/* Pads a stored form with NUL, as in the interner. Returns false if the form is empty. */
static bool pad(struct bytes stored, char out[COMPONENT_HASH])
{
    memset(out, 0, COMPONENT_HASH);
    if (stored.len > 0)
        memcpy(out, stored.ptr, stored.len < COMPONENT_HASH ? stored.len : COMPONENT_HASH);
    return stored.len > 0;
}

static void add_id(void *arg, uint32_t id)
{
    struct ids *ids = arg;
    *ARRAY_ADD(ids->list, ids->n, ids->room) = id;
}

/* Finds the ids of a stored form. A part without an interner is searched name by name. */
static struct ids find_ids(const struct minute_part *p, const char stored[COMPONENT_HASH])
{
    struct ids ids = {0};
    if (p->texts)
        interner_find_stored(p->texts, bytes_of(stored, strnlen(stored, COMPONENT_HASH)), add_id, &ids);
    for (uint32_t id = 0; !p->texts && id < p->n_ids; id++)
        if (memcmp(p->names[id], stored, COMPONENT_HASH) == 0)
            add_id(&ids, id);
    return ids;
}

struct minute_read *minute_read_new(
    const struct minute_query *q, const struct minute_columns *columns, const struct minute_ring *ring)
{
    const struct counters *c = columns->counters;
    bool is_total = q->counter < c->n_totals;
    size_t total = is_total ? q->counter : c->subtotals[q->counter - c->n_totals].total;
    struct minute_read *r = mem_zalloc(sizeof *r);
    *r = (struct minute_read){.q = *q,
        .key_column = columns->text_of[total],
        .sub_column = columns->text_of[q->counter],
        .value_column = columns->value_of ? columns->value_of[q->counter] : MINUTE_COUNTS,
        .n_values = columns->n_values};
    r->has_key = pad(q->key, r->key);
    r->has_sub = pad(q->sub, r->sub);
    r->is_ranking = is_total ? !r->has_key : !r->has_sub;
    r->parts = minute_ring_parts(ring, q->from, q->to, &r->n_parts);
    if (r->n_parts > 0 && r->parts[0].texts) { /* the interner in use is that of the first parts */
        r->keys = find_ids(&r->parts[0], r->key);
        r->subs = find_ids(&r->parts[0], r->sub);
    }
    return r;
}

void minute_read_free(struct minute_read **rp)
{
    struct minute_read *r = *rp;
    if (!r)
        return;
    free(r->parts);
    free(r->keys.list);
    free(r->subs.list);
    free(r);
    *rp = NULL;
}

static inline bool has_id(const struct ids *ids, uint32_t id)
{
    size_t i = 0;
    while (i < ids->n && ids->list[i] != id)
        i++;
    return i < ids->n;
}

struct sum {
    int64_t n;
    bool is_counted;
};

/* Adds the rows of a part to `sums`: one sum for each minute, or in a ranking one for each id. */
static void add_rows(const struct minute_read *r, const struct minute_part *p, const struct ids *keys,
    const struct ids *subs, struct sum *sums)
{
    struct sum *of_minute = r->is_ranking ? NULL : &sums[p->minute - r->q.from];
    const char *row = p->rows;
    for (size_t i = 0; i < p->n; i++, row += p->row_bytes) {
        const uint32_t *ids = minute_row_ids(row, r->n_values);
        if ((r->has_key && !has_id(keys, ids[r->key_column])) ||
            (r->has_sub && !has_id(subs, ids[r->sub_column])))
            continue;
        int64_t n =
            r->value_column == MINUTE_COUNTS ? 1 : ((const int64_t *)(const void *)row)[r->value_column];
        if (n == MINUTE_NO_VALUE)
            continue;
        struct sum *s = of_minute ? of_minute : &sums[ids[r->sub_column]];
        count_sum_add(&s->n, n);
        s->is_counted = true;
    }
}

static bool has_same_ids(const struct minute_part *a, const struct minute_part *b)
{
    return a->texts == b->texts && a->names == b->names;
}

/* A key of a ranking. */
struct ranked {
    char stored[COMPONENT_HASH];
    int64_t n;
    struct bytes text; /* empty: the interner was replaced */
};

struct ranking {
    struct ranked *list;
    size_t n, room;
};

static int by_stored(const void *a, const void *b)
{
    return memcmp(a, b, COMPONENT_HASH);
}

static struct bytes stored_of(const struct ranked *k)
{
    return bytes_of(k->stored, strnlen(k->stored, COMPONENT_HASH));
}

/* Largest first, then by text, or by stored form if the text is unknown. */
static int by_count(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;
    struct bytes x_text = x->text.len > 0 ? x->text : stored_of(x),
                 y_text = y->text.len > 0 ? y->text : stored_of(y);
    return x->n != y->n ? (x->n < y->n ? 1 : -1) : bytes_compare(x_text, y_text);
}

static void rank(struct ranking *ranking, const struct minute_part *p, const struct sum *sums)
{
    for (uint32_t id = 0; id < p->n_ids; id++) {
        if (!sums[id].is_counted)
            continue;
        struct ranked *k = ARRAY_ADD(ranking->list, ranking->n, ranking->room);
        const struct interned *t = p->texts ? interner_get(p->texts, id) : NULL;
        memcpy(k->stored, t ? t->stored : p->names[id], COMPONENT_HASH);
        k->n = sums[id].n;
        k->text = t ? bytes_of(t->text, t->text_len) : BYTES_NONE;
    }
}

/* Adds up the sums of equal stored forms. */
static void unite(struct ranking *k)
{
    size_t n = 0;
    if (k->n > 1)
        qsort(k->list, k->n, sizeof *k->list, by_stored);
    for (size_t i = 0; i < k->n; i++) {
        struct ranked *last = n > 0 ? &k->list[n - 1] : NULL;
        if (!last || memcmp(last->stored, k->list[i].stored, COMPONENT_HASH) != 0) {
            k->list[n++] = k->list[i];
            continue;
        }
        struct bytes text = k->list[i].text;
        count_sum_add(&last->n, k->list[i].n);
        if (last->text.len == 0 || (text.len > 0 && bytes_compare(text, last->text) < 0))
            last->text = text;
    }
    k->n = n;
}

static void print_ranking(const struct minute_read *r, struct ranking *k, struct buf *out)
{
    int64_t total = 0;
    unite(k);
    for (size_t i = 0; i < k->n; i++)
        count_sum_add(&total, k->list[i].n);
    if (k->n > 1)
        qsort(k->list, k->n, sizeof *k->list, by_count);
    buf_printf(out, "|total,%" PRId64 "\n|distinct,%zu\n", total, k->n);
    size_t n = k->n < r->q.limit ? k->n : (size_t)r->q.limit;
    for (size_t i = 0; i < n; i++)
        buf_printf(
            out, "%.*s,%" PRId64 "\n", (int)stored_of(&k->list[i]).len, k->list[i].stored, k->list[i].n);
    for (size_t i = 0; i < n; i++)
        if (k->list[i].text.len > 0 && component_is_hash(stored_of(&k->list[i]))) {
            buf_printf(out, "lookup|%.*s,", COMPONENT_HASH, k->list[i].stored);
            lookup_escape(k->list[i].text, out);
            buf_append_char(out, '\n');
        }
}

static void print_series(const struct minute_read *r, const struct sum *sums, struct buf *out)
{
    for (int64_t m = r->q.from; m < r->q.to; m++)
        if (sums[m - r->q.from].is_counted)
            buf_printf(out, "%" PRId64 ",%" PRId64 "\n", m * SECONDS_PER_MINUTE, sums[m - r->q.from].n);
}

void minute_read_run(const struct minute_read *r, struct buf *out)
{
    struct ranking ranking = {0};
    struct sum *minutes = mem_zalloc((size_t)(r->q.to - r->q.from + 1) * sizeof *minutes);
    for (size_t i = 0, end; i < r->n_parts; i = end) {
        const struct minute_part *p = &r->parts[i];
        struct ids keys = p->texts ? r->keys : find_ids(p, r->key);
        struct ids subs = p->texts ? r->subs : find_ids(p, r->sub);
        struct sum *sums = r->is_ranking ? mem_zalloc(((size_t)p->n_ids + 1) * sizeof *sums) : minutes;
        for (end = i; end < r->n_parts && has_same_ids(p, &r->parts[end]); end++)
            if ((!r->has_key || keys.n > 0) && (!r->has_sub || subs.n > 0))
                add_rows(r, &r->parts[end], &keys, &subs, sums);
        if (r->is_ranking) {
            rank(&ranking, p, sums);
            free(sums);
        }
        if (!p->texts) {
            free(keys.list);
            free(subs.list);
        }
    }
    if (r->is_ranking)
        print_ranking(r, &ranking, out);
    else
        print_series(r, minutes, out);
    free(ranking.list);
    free(minutes);
}
