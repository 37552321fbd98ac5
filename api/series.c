#include "api/series.h"

#include <stdlib.h>

#define FIRST_COUNTS 32
#define DISORDER_MAX                                                                                         \
    2 /* an hour may belong to one of the latest units: clocks that go back over midnight repeat a date */

void series_init(struct series *s, const struct query *q)
{
    *s = (struct series){.query = q,
        .from = q->from,
        .to = q->to,
        .first = HOUR_END,
        .next = units_start(&q->calendar, q->from)};
}

void series_reset(struct series *s)
{
    for (size_t i = 0; i < s->n_runs; i++)
        free(s->runs[i].counts);
    series_init(s, s->query);
}

size_t series_bytes(const struct series *s)
{
    size_t bytes = 0;
    for (size_t i = 0; i < s->n_runs; i++)
        bytes += s->runs[i].cap * sizeof *s->runs[i].counts;
    return bytes;
}

/* Adds `n` to the unit's count if the unit is one of the latest in the run, or inserts it there. Returns false if the
 * unit is earlier. */
static bool run_add(struct series_run *r, int64_t unit, uint64_t n)
{
    size_t at = r->n;
    while (at > 0 && r->n - at < DISORDER_MAX && r->counts[at - 1].unit > unit)
        at--;
    if (at > 0 && r->counts[at - 1].unit == unit) {
        r->counts[at - 1].n += n;
        return true;
    }
    if (at > 0 && r->counts[at - 1].unit > unit)
        return false;
    if (r->n == r->cap) {
        r->cap = r->cap ? 2 * r->cap : FIRST_COUNTS;
        r->counts = mem_realloc(r->counts, r->cap * sizeof *r->counts);
    }
    memmove(r->counts + at + 1, r->counts + at, (r->n++ - at) * sizeof *r->counts);
    r->counts[at] = (struct series_count){unit, n};
    return true;
}

/* `hour` may also be the start of a longer period within one unit. */
static bool add_hour(struct series *s, int64_t hour, uint64_t n, bool is_over)
{
    if (hour < s->query->from || hour >= s->query->to)
        return true;
    if (is_over) {
        s->is_too_large |= __builtin_add_overflow(s->over, n, &s->over);
        return true;
    }
    int64_t unit = units_order(&s->query->calendar, hour);
    s->first = hour < s->first ? hour : s->first;
    s->last = hour > s->last ? hour : s->last;
    s->is_too_large |= __builtin_add_overflow(s->total, n, &s->total);
    if (s->n_runs > 0 && run_add(&s->runs[s->n_runs - 1], unit, n))
        return true;
    return s->n_runs < SERIES_RUNS_MAX && run_add(&s->runs[s->n_runs++], unit, n);
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
    if (key.is_subtotal) {
        const struct calendar *c = &q->calendar;
        int64_t last = period_end(key.unit, key.start) - HOUR_SECONDS;
        enum query_overlap overlap = query_overlap(q, &key);
        bool is_split = key.unit != PERIOD_HOUR && units_order(c, key.start) != units_order(c, last);
        s->needs_dropped_hours |= overlap == QUERY_PARTLY || (overlap == QUERY_WITHIN && is_split);
        if (overlap != QUERY_WITHIN || is_split)
            return true;
    }
    /* A total's record has one count for each hour. A subtotal's record has one count for each sub key of its hour. */
    bool is_other = bytes_equal_str(key.key, COMPONENT_OTHER);
    bool is_key = !is_other || strcmp(q->stored, COMPONENT_OTHER) == 0;
    while (record_next_count(&value, &name, &n, &bad)) {
        int64_t hour = key.start;
        if (q->sub) {
            is_other = bytes_equal_str(name, COMPONENT_OTHER);
            is_key = bytes_equal(name, sub);
        } else if (!hour_decode(name, &hour)) {
            return false;
        }
        if ((is_other && query_counter(q)->max_keys > 0 && !add_hour(s, hour, n, true)) ||
            (is_key && !add_hour(s, hour, n, false)))
            return false;
    }
    return !bad;
}

bool series_trim(struct series *s, uint64_t max_rows)
{
    const struct query *q = s->query;
    const struct calendar *c = &q->calendar;
    uint64_t rows = 0;
    if (!q->is_all)
        return true;
    bool is_empty = s->first > s->last;
    int64_t last = is_empty || q->now > s->last ? q->now : s->last;
    s->from = s->next = units_start(c, is_empty ? last : s->first);
    s->to = units_next(c, units_start(c, last));
    for (int64_t t = s->from; t < s->to && rows <= max_rows; t = units_next(c, t))
        rows++;
    return rows <= max_rows;
}

bool series_next(struct series *s, struct series_row *row)
{
    const struct calendar *c = &s->query->calendar;
    if (s->next >= s->to)
        return false;
    *row = (struct series_row){.start = s->next, .end = units_next(c, s->next)};
    int64_t unit = units_order(c, row->start);
    for (size_t i = 0; i < s->n_runs; i++) {
        struct series_run *r = &s->runs[i];
        while (r->at < r->n && r->counts[r->at].unit <= unit)
            row->n += r->counts[r->at++].n;
    }
    s->next = row->end;
    s->n_rows++;
    return true;
}
