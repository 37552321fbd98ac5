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

static bool add_total(struct series *s, struct bytes value)
{
    struct bytes hour;
    uint64_t n;
    bool bad = false;
    while (record_next_count(&value, &hour, &n, &bad))
        if (!add_hour(s, hour, n))
            return false;
    return !bad;
}

static bool add_sub(struct series *s, struct bytes hour, struct bytes value)
{
    char space[COMPONENT_HASH + 1];
    struct bytes wanted = component_store(s->query->sub_key, space), name;
    uint64_t n;
    bool bad = false;
    while (record_next_count(&value, &name, &n, &bad))
        if (bytes_equal(name, wanted) && !add_hour(s, hour, n))
            return false;
    return !bad;
}

bool series_add(struct series *s, const struct record *r)
{
    const struct counter *counter = s->query->sub ? s->query->sub : s->query->total;
    struct record_key key;
    if (!record_key_parse(r->key, &key) || !bytes_equal_str(key.ns, counter->ns))
        return false;
    return s->query->sub ? add_sub(s, key.hour, r->value) : add_total(s, r->value);
}
