#include "api/sums.h"

#include "read/read_protocol.h"

#include <inttypes.h>
#include <stdlib.h>

struct sums *sums_new(const struct query *q, enum sums_shape shape)
{
    struct sums *s = mem_zalloc(sizeof *s);
    s->shape = shape;
    query_copy(&s->query, q);
    query_copy(&s->query_before, q);
    s->query_before.from = q->before_from;
    s->query_before.to = q->before_to;
    s->query_before.part_end = q->before_part_end;
    s->query_before.row_part_end = q->before_row_part_end;
    series_init(&s->series, &s->query);
    series_init(&s->before, &s->query_before);
    breakdown_init(&s->breakdown, &s->query);
    return s;
}

void sums_reset(struct sums *s)
{
    series_reset(&s->series);
    series_reset(&s->before);
    histogram_free(&s->histogram);
    series_set_reset(&s->set);
    breakdown_reset(&s->breakdown);
    s->bounds.has_records = s->minutes.is_selected = false;
    s->minutes.total = 0;
    s->minutes.distinct = 0;
}

void sums_free(struct sums **sp)
{
    struct sums *s = *sp;
    if (!s)
        return;
    sums_reset(s);
    series_set_free(&s->set);
    free(s);
    *sp = NULL;
}

size_t sums_bytes(const struct sums *s)
{
    return s ? sizeof *s + series_bytes(&s->series) + series_bytes(&s->before) +
                   histogram_bytes(&s->histogram) + series_set_bytes(&s->set) + s->breakdown.bytes
             : 0;
}

/* Adds a record of counts by minute. The rows are known before the first text. */
static bool add_minute(struct sums *s, const struct record *r)
{
    struct breakdown *b = &s->breakdown;
    int64_t n, t;
    if (bytes_starts_with(r->key, BYTES_LITERAL("lookup|"))) {
        if (s->query.n_cells > 1)
            return true;
        while (!s->minutes.is_selected)
            s->minutes.is_selected = breakdown_select(b);
        return breakdown_add_lookup(b, r);
    }
    if (s->minutes.is_selected || !bytes_to_i64(r->value, &n))
        return false;
    if (s->shape == SUMS_SERIES)
        return bytes_to_i64(r->key, &t) && series_add_count(&s->series, t, n);
    if (bytes_equal_str(r->key, "|total"))
        count_sum_add(&s->minutes.total, n);
    else if (bytes_equal_str(r->key, "|distinct"))
        s->minutes.distinct = (size_t)n;
    else
        return breakdown_add_count(b, r->key, n);
    return true;
}

bool sums_add(struct sums *s, const struct record *r)
{
    if (s->query.by_minute)
        return add_minute(s, r);
    if (query_is_sum_of_all(&s->query))
        series_bounds_note(&s->bounds, r);
    switch (s->shape) {
    case SUMS_COMPARISON:
        return series_add(&s->series, r) && series_add(&s->before, r);
    case SUMS_HISTOGRAM:
        return histogram_add(&s->histogram, &s->series, r);
    case SUMS_SET:
        return series_set_add(&s->set, r);
    case SUMS_BREAKDOWN:
        return breakdown_add(&s->breakdown, r);
    default:
        return series_add(&s->series, r);
    }
}

bool sums_finish(struct sums *s, uint64_t max_rows)
{
    histogram_finish(&s->histogram);
    if (s->query.by_minute) {
        s->breakdown.total = s->minutes.total;
        s->breakdown.distinct = s->query.n_cells > 1 ? s->breakdown.distinct : s->minutes.distinct;
        s->breakdown.is_too_large |= s->minutes.total == COUNT_SUM_TOO_LARGE;
    }
    return s->shape == SUMS_SET ? series_set_trim(&s->set, max_rows) : series_trim(&s->series, max_rows);
}

struct series *sums_first_series(struct sums *s)
{
    return s->shape == SUMS_SET ? &s->set.members[0].series : &s->series;
}

bool sums_are_too_large(struct sums *s)
{
    return sums_first_series(s)->is_too_large || s->before.is_too_large || s->set.is_too_large ||
           s->breakdown.is_too_large;
}

bool sums_need_dropped_hours(struct sums *s)
{
    return sums_first_series(s)->needs_dropped_hours || s->before.needs_dropped_hours ||
           s->breakdown.needs_dropped_hours;
}

static void append_one(struct buf *target, const struct query *q, const char *stored, bool is_first)
{
    buf_append_str(target, q->sub ? "&sub=" : is_first ? "/mget?k=" : "&k=");
    if (q->sub)
        url_encode(bytes_str(stored), target);
    else
        query_append_key(q->total->ns, stored, NULL, target);
}

/* Appends the keys or the sub keys, and `(other)` if the counter may have this key. */
static void append_keys(struct buf *target, const struct query *q, const struct series_set *set)
{
    bool has_other = !query_may_have_other(q);
    for (size_t i = 0; i == 0 || i < set->n; i++) {
        const char *stored = set->n > 0 ? set->members[i].stored : q->sub ? q->stored_sub : q->stored;
        append_one(target, q, stored, i == 0);
        has_other = has_other || strcmp(stored, COMPONENT_OTHER) == 0;
    }
    if (!has_other)
        append_one(target, q, COMPONENT_OTHER, false);
}

static void append_param(struct buf *target, const char *name, struct bytes full, const char *stored)
{
    if (full.len == 0)
        return;
    buf_append_str(target, name);
    url_encode(bytes_str(stored), target);
}

static void append_minutes(struct buf *target, const struct query *q)
{
    uint64_t limit = q->n_cells > 1 ? READ_MINUTES_MAX : q->limit;
    buf_printf(target, "/minutes?ns=%s&from=%" PRId64 "&to=%" PRId64 "&limit=%" PRIu64, query_counter(q)->ns,
        q->from, q->to, limit);
    append_param(target, "&key=", q->key, q->stored);
    append_param(target, "&sub=", q->sub_key, q->stored_sub);
}

/* A key of a total has one record with all of its counts. A subtotal has one record per hour, and in an archive also
 * per day and per month. */
void sums_append_target(const struct sums *s, struct buf *target)
{
    const struct query *q = &s->query, *before = &s->query_before;
    if (q->by_minute)
        append_minutes(target, q);
    else if (!q->sub)
        append_keys(target, q, &s->set);
    if (q->by_minute || !q->sub)
        return;
    bool compares = q->kind == QUERY_COMPARE;
    const struct query_range range = {.ns = q->sub->ns,
        .stored = q->stored,
        .from = compares && before->from < q->from ? before->from : q->from,
        .to = compares && before->to > q->to ? before->to : q->to,
        .largest = query_largest_period(q)};
    query_append_range(q, &range, target);
    if (q->kind != QUERY_BREAKDOWN && q->kind != QUERY_QUANTILE && q->top == 0)
        append_keys(target, q, &s->set);
}
