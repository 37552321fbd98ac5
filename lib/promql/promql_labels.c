#include "promql/promql_labels.h"

#include "base/text_hash.h"
#include "metrics/exposition.h"

#include <stdlib.h>

struct label_slot {
    struct bytes key; /* ptr is NULL in a free slot */
    uint64_t hash;
    size_t number;
};

static bool is_chosen(const struct label_choice *c, struct bytes name)
{
    if (c->drops_name && bytes_equal(name, NAME_LABEL))
        return false;
    for (size_t i = 0; i < c->n; i++)
        if (bytes_equal(c->names[i], name))
            return !c->is_outside;
    return c->is_outside;
}

struct bytes labels_get(const struct row *r, struct bytes name)
{
    for (size_t i = 0; i < r->n_labels; i++)
        if (bytes_equal(r->labels[i].name, name))
            return r->labels[i].value;
    return BYTES_NONE;
}

void labels_copy(struct evaluation *e, struct row *r, const struct metric_series *from)
{
    struct metric_label *labels = arena_alloc(e->memory, from->n_labels * sizeof *labels);
    for (size_t i = 0; i < from->n_labels; i++) {
        labels[i].name = arena_copy(e->memory, from->labels[i].name);
        labels[i].value = arena_copy(e->memory, from->labels[i].value);
    }
    r->labels = labels;
    r->n_labels = from->n_labels;
}

void labels_choose(struct evaluation *e, struct row *r, const struct label_choice *choice)
{
    struct metric_label *labels = arena_alloc(e->memory, r->n_labels * sizeof *labels);
    size_t n = 0;
    for (size_t i = 0; i < r->n_labels; i++)
        if (is_chosen(choice, r->labels[i].name))
            labels[n++] = r->labels[i];
    r->labels = labels;
    r->n_labels = n;
}

void labels_drop_name(struct evaluation *e, struct row *r)
{
    if (labels_get(r, NAME_LABEL).len > 0)
        labels_choose(e, r, &(struct label_choice){.is_outside = true, .drops_name = true});
}

void labels_set(struct evaluation *e, struct row *r, struct bytes name, struct bytes value)
{
    struct metric_label *labels = arena_alloc(e->memory, (r->n_labels + 1) * sizeof *labels);
    size_t n = 0, i = 0;
    for (; i < r->n_labels && bytes_compare(r->labels[i].name, name) < 0; i++)
        labels[n++] = r->labels[i];
    if (value.len > 0)
        labels[n++] = (struct metric_label){name, value};
    for (i += i < r->n_labels && bytes_equal(r->labels[i].name, name); i < r->n_labels; i++)
        labels[n++] = r->labels[i];
    r->labels = labels;
    r->n_labels = n;
}

void label_table_init(struct label_table *t, struct arena *memory, size_t n)
{
    size_t size = 4;
    while (size < 2 * n)
        size *= 2;
    *t = (struct label_table){.memory = memory, .mask = size - 1};
    t->slots = arena_alloc(memory, size * sizeof *t->slots);
}

size_t label_table_find(
    struct label_table *t, const struct row *r, const struct label_choice *choice, bool add)
{
    buf_clear(&t->key);
    buf_append_char(&t->key, '\0'); /* so that no key is NULL */
    for (size_t i = 0; i < r->n_labels; i++)
        if (is_chosen(choice, r->labels[i].name)) {
            const struct metric_label *l = &r->labels[i];
            buf_append(&t->key, &l->name.len, sizeof l->name.len);
            buf_append_bytes(&t->key, l->name);
            buf_append(&t->key, &l->value.len, sizeof l->value.len);
            buf_append_bytes(&t->key, l->value);
        }
    uint64_t hash = text_hash(buf_bytes(&t->key));
    size_t at = (size_t)hash & t->mask;
    for (; t->slots[at].key.ptr; at = (at + 1) & t->mask)
        if (t->slots[at].hash == hash && bytes_equal(t->slots[at].key, buf_bytes(&t->key)))
            return t->slots[at].number;
    if (!add)
        return SIZE_MAX;
    t->slots[at] = (struct label_slot){arena_copy(t->memory, buf_bytes(&t->key)), hash, t->n};
    return t->n++;
}

void label_table_free(struct label_table *t)
{
    buf_free(&t->key);
}

bool rows_group(
    struct evaluation *e, struct matrix m, const struct label_choice *choice, struct row_groups *g)
{
    struct label_table table;
    if (evaluation_failed(e) || !evaluation_fits(e, m.n, 250))
        return false;
    label_table_init(&table, e->memory, m.n);
    size_t *of = arena_alloc(e->memory, m.n * sizeof *of);
    for (size_t i = 0; i < m.n; i++)
        of[i] = label_table_find(&table, &m.rows[i], choice, true);
    label_table_free(&table);
    g->n = table.n;
    g->start = arena_alloc(e->memory, (table.n + 2) * sizeof *g->start);
    g->rows = arena_alloc(e->memory, m.n * sizeof *g->rows);
    for (size_t i = 0; i < m.n; i++)
        g->start[of[i] + 2]++;
    for (size_t i = 2; i < table.n + 2; i++)
        g->start[i] += g->start[i - 1];
    for (size_t i = 0; i < m.n; i++)
        g->rows[g->start[of[i] + 1]++] = &m.rows[i];
    return evaluation_work(e, m.n * 100);
}

static bool has_value(const struct evaluation *e, const struct row *r)
{
    for (size_t k = 0; k < e->grid.n; k++)
        if (!is_absent(r->values[k]))
            return true;
    return false;
}

/* Moves the values of b to a. Returns false if both have a value. */
static bool join(const struct evaluation *e, struct row *a, const struct row *b)
{
    for (size_t k = 0; k < e->grid.n; k++) {
        if (is_absent(b->values[k]))
            continue;
        if (!is_absent(a->values[k]))
            return false;
        a->values[k] = b->values[k];
    }
    return true;
}

void matrix_settle(struct evaluation *e, struct matrix *m, bool strict)
{
    const struct label_choice all = {.is_outside = true};
    struct label_table table;
    size_t n = 0;
    if (evaluation_failed(e) || !evaluation_fits(e, m->n, 4 * sizeof(struct label_slot)))
        return;
    label_table_init(&table, e->memory, m->n);
    for (size_t i = 0; i < m->n && evaluation_work(e, e->grid.n + 100); i++) {
        struct row *r = &m->rows[i];
        if (!has_value(e, r))
            continue;
        size_t number = label_table_find(&table, r, &all, true);
        if (number == n)
            m->rows[n++] = *r;
        else if (strict || !join(e, &m->rows[number], r))
            evaluation_fail(e, PROMQL_FAILED, "vector cannot contain metrics with the same labelset");
    }
    m->n = n;
    label_table_free(&table);
}
