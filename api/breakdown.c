#include "api/breakdown.h"

#include <stdlib.h>
#include <uthash.h>

struct breakdown_entry {
    UT_hash_handle hh;
    uint64_t n;
    struct breakdown_row *row; /* of a candidate */
    size_t len;
    char stored[];
};

void breakdown_init(struct breakdown *b, const struct query *q)
{
    *b = (struct breakdown){.query = q};
}

static void free_rows(struct breakdown *b)
{
    for (size_t i = 0; i < b->n_rows; i++)
        free(b->rows[i].text);
    free(b->rows);
    b->rows = NULL;
    b->n_rows = 0;
}

void breakdown_reset(struct breakdown *b)
{
    struct breakdown_entry *e, *next;
    HASH_ITER(hh, b->entries, e, next)
    {
        HASH_DEL(b->entries, e);
        free(e);
    }
    free_rows(b);
    b->distinct = 0;
    b->total = b->shown = 0;
}

bool breakdown_add(struct breakdown *b, const struct record *r)
{
    struct record_key key;
    struct bytes value = r->value, name;
    uint64_t n;
    int64_t hour;
    bool bad = false;
    if (!record_key_parse(r->key, &key) || !bytes_equal_str(key.ns, b->query->sub->ns) ||
        !hour_decode(key.hour, &hour))
        return false;
    if (hour < b->query->from || hour >= b->query->to)
        return true;
    while (record_next_count(&value, &name, &n, &bad)) {
        struct breakdown_entry *e;
        HASH_FIND(hh, b->entries, name.ptr, name.len, e);
        if (!e) {
            e = mem_zalloc(sizeof *e + name.len + 1);
            e->len = name.len;
            memcpy(e->stored, name.ptr, name.len);
            HASH_ADD_KEYPTR(hh, b->entries, e->stored, e->len, e);
            b->distinct++;
        }
        e->n += n;
        b->total += n;
    }
    return !bad;
}

static int compare_largest(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x < y) - (x > y);
}

void breakdown_select(struct breakdown *b)
{
    uint64_t least = 0; /* the count of the last row; rows with smaller counts are not candidates */
    if (b->distinct > b->query->limit) {
        uint64_t *counts = mem_alloc(b->distinct * sizeof *counts);
        size_t i = 0;
        for (const struct breakdown_entry *e = b->entries; e; e = e->hh.next)
            counts[i++] = e->n;
        qsort(counts, b->distinct, sizeof *counts, compare_largest);
        least = counts[b->query->limit - 1];
        free(counts);
    }
    free_rows(b);
    b->rows = mem_zalloc((b->distinct + 1) * sizeof *b->rows);
    for (struct breakdown_entry *e = b->entries; e; e = e->hh.next) {
        if (e->n < least)
            continue;
        e->row = &b->rows[b->n_rows++];
        *e->row = (struct breakdown_row){.stored = bytes_of(e->stored, e->len), .n = e->n};
    }
}

bool breakdown_wants_text(const struct breakdown *b, size_t row)
{
    return !b->rows[row].text && component_is_hash(b->rows[row].stored);
}

/* Two sources may both have the lookup. The breakdown keeps the smaller of two texts with one hash (docs/formats/records.md). */
bool breakdown_add_lookup(struct breakdown *b, const struct record *r)
{
    struct record_key key;
    struct breakdown_entry *e;
    struct buf text = {0};
    if (!record_key_parse(r->key, &key) || !key.is_lookup)
        return false;
    HASH_FIND(hh, b->entries, key.key.ptr, key.key.len, e);
    bool ok = e && e->row && lookup_unescape(r->value, &text) == 0;
    struct breakdown_row *row = ok ? e->row : NULL;
    if (!ok || (row->text && bytes_compare(bytes_of(row->text, row->text_len), buf_bytes(&text)) <= 0)) {
        buf_free(&text);
        return ok;
    }
    free(row->text);
    row->text_len = text.len;
    buf_append_char(&text, '\0');
    row->text = text.ptr;
    return true;
}

struct bytes breakdown_text(const struct breakdown_row *row)
{
    return row->text ? bytes_of(row->text, row->text_len) : row->stored;
}

static int compare_rows(const void *a, const void *b)
{
    const struct breakdown_row *x = a, *y = b;
    if (x->n != y->n)
        return x->n < y->n ? 1 : -1;
    return bytes_compare(breakdown_text(x), breakdown_text(y));
}

void breakdown_finish(struct breakdown *b)
{
    size_t keep = b->n_rows < b->query->limit ? b->n_rows : b->query->limit;
    qsort(b->rows, b->n_rows, sizeof *b->rows, compare_rows);
    for (size_t i = keep; i < b->n_rows; i++)
        free(b->rows[i].text);
    b->n_rows = keep;
    b->shown = 0;
    for (size_t i = 0; i < keep; i++)
        b->shown += b->rows[i].n;
}
