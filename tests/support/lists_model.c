#include "support/lists_model.h"

#include <stdio.h>
#include <stdlib.h>

void lists_model_init(struct lists_model *m, unsigned seed, size_t keep, size_t limit)
{
    *m = (struct lists_model){.seed = seed, .keep = keep, .limit = limit};
}

void lists_model_name(struct buf *out, char kind, int n)
{
    buf_clear(out);
    buf_printf(out, "%c%d", kind, n);
}

/* Longer for some items than a page of the store. */
static void data_of(struct buf *out, uint64_t op)
{
    buf_clear(out);
    buf_printf(out, "data %d ", (int)op);
    for (size_t n = op % 7 == 0 ? 5000 : op * 37 % 300; out->len < n;)
        buf_append_char(out, 'x');
}

static int compare(const void *a, const void *b)
{
    const struct model_entry *x = a, *y = b;
    char one[16], other[16];
    snprintf(one, sizeof one, "i%d", x->id);
    snprintf(other, sizeof other, "i%d", y->id);
    return x->time != y->time ? (x->time > y->time ? -1 : 1) : -strcmp(one, other);
}

static struct model_entry *find(struct model_list *l, int id)
{
    for (size_t i = 0; i < l->n; i++)
        if (l->entries[i].id == id)
            return &l->entries[i];
    return NULL;
}

static void add(struct lists_model *m, int key, int id, usec_t time)
{
    struct model_list *l = &m->lists[key];
    struct model_entry *e = find(l, id);
    if (!e) {
        e = &l->entries[l->n++];
        *e = (struct model_entry){.id = id};
    }
    e->time = time > e->time ? time : e->time;
    e->op = m->ops;
    e->removed = false;
    qsort(l->entries, l->n, sizeof *l->entries, compare);
    l->n = l->n < m->limit ? l->n : m->limit;
}

static void remove_from(struct lists_model *m, int key, int id)
{
    struct model_entry *e = find(&m->lists[key], id);
    if (e) {
        e->removed = true;
        e->op = m->ops;
    }
}

static void append(struct buf *ops, enum list_op_type type, char kind, int n, char names_kind,
    const int *names, size_t n_names, usec_t time, struct bytes data)
{
    struct buf id = {0}, name = {0}, all = {0};
    lists_model_name(&id, kind, n);
    for (size_t i = 0; i < n_names; i++) {
        lists_model_name(&name, names_kind, names[i]);
        list_name_append(&all, buf_bytes(&name));
    }
    list_op_append(
        ops, &(struct list_op){
                 .type = type, .id = buf_bytes(&id), .names = buf_bytes(&all), .time = time, .data = data});
    buf_free(&id);
    buf_free(&name);
    buf_free(&all);
}

static void add_item(struct lists_model *m, unsigned *r, uint64_t op, int n_keys, struct buf *ops)
{
    int id = rand_r(r) % MODEL_IDS, author = rand_r(r) % MODEL_AUTHORS, keys[MODEL_KEYS];
    size_t n = 1 + (size_t)rand_r(r) % 3;
    bool by_author = rand_r(r) % 3 == 0;
    usec_t time = rand_r(r) % 4 == 0 ? rand_r(r) % 50 : (usec_t)(op / 4 + (uint64_t)rand_r(r) % 8);
    struct buf data = {0};
    data_of(&data, op);
    for (size_t i = 0; i < n; i++)
        keys[i] = rand_r(r) % n_keys;
    if (by_author)
        append(ops, LIST_ADD_BY_AUTHOR, 'i', id, 'a', &author, 1, time, buf_bytes(&data));
    else
        append(ops, LIST_ADD, 'i', id, 'k', keys, n, time, buf_bytes(&data));
    buf_free(&data);
    if (!m)
        return;
    bool is_added = !by_author;
    for (int key = 0; by_author && key < MODEL_KEYS; key++)
        is_added = is_added || m->follows[author][key];
    if (is_added)
        m->data[id] = op;
    for (int key = 0; by_author && key < MODEL_KEYS; key++)
        if (m->follows[author][key])
            add(m, key, id, time);
    for (size_t i = 0; !by_author && i < n; i++)
        add(m, keys[i], id, time);
}

static void make_one(struct lists_model *m, unsigned *r, uint64_t op, int n_keys, struct buf *ops)
{
    int kind = rand_r(r) % 20, id = rand_r(r) % MODEL_IDS, key = rand_r(r) % n_keys,
        author = rand_r(r) % MODEL_AUTHORS;
    if (m)
        m->ops = op;
    if (kind < 12)
        add_item(m, r, op, n_keys, ops);
    else if (kind < 14) {
        append(ops, LIST_REMOVE, 'i', id, 0, NULL, 0, 0, BYTES_NONE);
        if (m)
            m->removed[id] = op;
    } else if (kind < 16) {
        append(ops, LIST_REMOVE_FROM, 'i', id, 'k', &key, 1, 0, BYTES_NONE);
        if (m)
            remove_from(m, key, id);
    } else {
        bool follows = kind < 19;
        append(ops, follows ? LIST_FOLLOW : LIST_UNFOLLOW, 'a', author, 'k', &key, 1, 0, BYTES_NONE);
        if (m)
            m->follows[author][key] = follows;
    }
}

void lists_model_change(struct lists_model *m, unsigned seed, unsigned i, struct buf *ops)
{
    unsigned r = seed * 2654435761u + i * 40503u;
    rand_r(&r);
    for (unsigned n = 1 + (unsigned)rand_r(&r) % 5, k = 0; k < n; k++)
        make_one(m, &r, i * 8 + k + 1, seed % 2 ? 2 : MODEL_KEYS, ops);
}

void lists_model_line(struct buf *out, usec_t time, struct bytes id, struct bytes data)
{
    buf_printf(out, "%d %.*s %.*s\n", (int)time, (int)id.len, id.ptr, (int)data.len, data.ptr);
}

void lists_model_show(
    const struct lists_model *m, int key, usec_t time, int id, size_t limit, struct buf *out)
{
    const struct model_list *l = &m->lists[key];
    struct buf name = {0}, data = {0};
    for (size_t i = 0, seen = 0; i < l->n && seen < m->keep && limit > 0; i++) {
        const struct model_entry *e = &l->entries[i];
        if (e->removed || e->op < m->removed[e->id])
            continue;
        seen++;
        if (time >= 0 && compare(e, &(struct model_entry){.time = time, .id = id}) <= 0)
            continue;
        lists_model_name(&name, 'i', e->id);
        data_of(&data, m->data[e->id]);
        lists_model_line(out, e->time, buf_bytes(&name), buf_bytes(&data));
        limit--;
    }
    buf_free(&name);
    buf_free(&data);
}
