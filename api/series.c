#include "api/series.h"

#include <stdlib.h>

void series_init(struct series *s, const struct query *q)
{
    *s = (struct series){.query = q};
    int64_t start = units_start(&q->calendar, q->from);
    for (; start < q->to; start = units_next(&q->calendar, start)) {
        if (s->n == s->cap) {
            s->cap = s->cap ? 2 * s->cap : 32;
            s->rows = mem_realloc(s->rows, s->cap * sizeof *s->rows);
        }
        s->rows[s->n++] = (struct series_row){.start = start};
    }
    s->end = start;
}

void series_free(struct series *s)
{
    free(s->rows);
    *s = (struct series){0};
}

void series_reset(struct series *s)
{
    for (size_t i = 0; i < s->n; i++)
        s->rows[i].n = 0;
    s->total = 0;
}

int64_t series_row_end(const struct series *s, size_t row)
{
    return row + 1 < s->n ? s->rows[row + 1].start : s->end;
}

static int compare_start(const void *start, const void *row)
{
    int64_t a = *(const int64_t *)start, b = ((const struct series_row *)row)->start;
    return (a > b) - (a < b);
}

static bool add_hour(struct series *s, struct bytes text, uint64_t n)
{
    int64_t hour;
    if (!hour_decode(text, &hour))
        return false;
    if (hour < s->query->from || hour >= s->query->to)
        return true;
    int64_t start = units_start(&s->query->calendar, hour);
    struct series_row *row = bsearch(&start, s->rows, s->n, sizeof *s->rows, compare_start);
    if (!row)
        return false;
    row->n += n;
    s->total += n;
    return true;
}

bool series_add(struct series *s, const struct record *r)
{
    const struct query *q = s->query;
    struct bytes value = r->value, name, sub = bytes_str(q->stored_sub);
    struct record_key key;
    uint64_t n;
    bool bad = false;
    if (!record_key_parse(r->key, &key) || !bytes_equal_str(key.ns, q->sub ? q->sub->ns : q->total->ns))
        return false;
    /* A total's record has one count for each hour. A subtotal's record has one count for each sub key of its hour. */
    while (record_next_count(&value, &name, &n, &bad))
        if (q->sub ? bytes_equal(name, sub) && !add_hour(s, key.hour, n) : !add_hour(s, name, n))
            return false;
    return !bad;
}
