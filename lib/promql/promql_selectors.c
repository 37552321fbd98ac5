#include "promql/promql_labels.h"
#include "promql/promql_operations.h"

#include <math.h>
#include <stdlib.h>

int64_t selector_end(const struct evaluation *e, const struct node *n, int64_t time)
{
    if (n->at == AT_TIME)
        time = n->time;
    else if (n->at != AT_NONE)
        time = n->at == AT_START ? e->request.start : e->request.end;
    return time - n->offset;
}

/* The widest usual bucket of which a step is a multiple. */
static int64_t width_within(int64_t step)
{
    static const int64_t widths[] = {86400000, 3600000, 600000, 60000, 10000};
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++)
        if (step % widths[i] == 0)
            return widths[i];
    return 0;
}

/* Invariant 3 of promql.h. */
static int64_t width_for(const struct evaluation *e, const struct node *n)
{
    int64_t step = e->grid.step, of = n->range ? n->range : step;
    bool is_aligned =
        step > 0 && n->at == AT_NONE && (e->grid.start - n->offset) % step == 0 && of % step == 0;
    int64_t width = is_aligned ? width_within(step) : 0;
    return width > of / 10 ? width : of / 10;
}

static int compare_series(const void *a, const void *b)
{
    const struct metric_series *x = a, *y = b;
    return metric_labels_compare(x->labels, x->n_labels, y->labels, y->n_labels);
}

void select_series(struct evaluation *e, const struct node *n, struct metric_selection *selection)
{
    struct error error = {0};
    int64_t width = width_for(e, n), before = n->range ? n->range : e->request.lookback + width;
    struct metric_request r = {.matchers = n->matchers,
        .n_matchers = n->n_matchers,
        .max_width = width,
        .from = selector_end(e, n, grid_time(&e->grid, 0)) - before - 1,
        .to = selector_end(e, n, grid_time(&e->grid, e->grid.n - 1)),
        .max_series = e->request.max_series - e->n_series,
        .max_buckets = e->request.max_buckets - e->n_buckets,
        .stop = e->request.stop,
        .stop_context = e->request.context};
    enum metric_result result = METRIC_TOO_MANY;
    if (!evaluation_work(e, 1000))
        return;
    e->width = width > e->width ? width : e->width;
    if (r.max_series > 0 && r.max_buckets > 0)
        result = e->source->select(e->source->context, &r, selection, &error);
    if (result == METRIC_TOO_MANY)
        evaluation_fail(e, PROMQL_TOO_MANY,
            "the query reads more than %zu series or %zu buckets; choose fewer series, a shorter range or a "
            "larger step",
            e->request.max_series, e->request.max_buckets);
    else if (result != METRIC_OK)
        evaluation_fail(e,
            result == METRIC_BAD_PATTERN ? PROMQL_BAD_QUERY
            : result == METRIC_STOPPED   ? PROMQL_STOPPED
                                         : PROMQL_NO_SOURCE,
            "%s", error.text);
    if (evaluation_failed(e))
        return;
    e->n_series += selection->n_series;
    for (size_t i = 0; i < selection->n_series; i++)
        e->n_buckets += selection->series[i].n_buckets;
    if (selection->n_series > 0)
        qsort(selection->series, selection->n_series, sizeof *selection->series, compare_series);
}

static bool has_samples(const struct sample_bucket *b)
{
    return b->count > 0 || b->n_nan > 0;
}

/* The bucket whose last sample is the value at a time, or NULL. `n` buckets are not later than the time. */
static const struct sample_bucket *bucket_at(
    const struct evaluation *e, const struct metric_series *s, size_t n, int64_t time)
{
    const struct sample_bucket *next = n < s->n_buckets ? &s->buckets[n] : NULL, *b = NULL;
    int64_t oldest = time - e->request.lookback;
    if (next && has_samples(next) &&
        next->first <= time) /* the time lies inside the bucket: the series goes on */
        oldest -= next->width;
    else
        next = NULL;
    while (n > 0 && !b) {
        b = &s->buckets[--n];
        if (!next && (!has_samples(b) || (b->stale_at > b->last_at && b->stale_at <= time)))
            return NULL;
        if (!has_samples(b))
            b = NULL;
    }
    return b && b->last_at >= oldest ? b : NULL;
}

static void fill_row(const struct evaluation *e, const struct node *n, const struct metric_series *s,
    double *values, bool times)
{
    size_t passed = 0;
    for (size_t k = 0; k < e->grid.n; k++) {
        int64_t time = selector_end(e, n, grid_time(&e->grid, k));
        while (
            passed < s->n_buckets && (has_samples(&s->buckets[passed]) ? s->buckets[passed].last_at
                                                                       : s->buckets[passed].stale_at) <= time)
            passed++;
        const struct sample_bucket *b = bucket_at(e, s, passed, time);
        if (b)
            values[k] = times ? (double)b->last_at / 1000 : isnan(b->last) ? NAN : b->last;
    }
}

struct matrix selector_rows(struct evaluation *e, const struct node *n, bool times)
{
    struct metric_selection selection = {0};
    select_series(e, n, &selection);
    struct matrix m = {0};
    if (!evaluation_failed(e))
        m = evaluation_rows(e, selection.n_series);
    for (size_t i = 0; i < m.n && evaluation_work(e, selection.series[i].n_buckets + e->grid.n); i++) {
        labels_copy(e, &m.rows[i], &selection.series[i]);
        fill_row(e, n, &selection.series[i], m.rows[i].values, times);
    }
    metric_selection_free(&selection);
    matrix_settle(e, &m, true);
    return m;
}

/* The values of a row as buckets with one sample. */
static size_t buckets_of_row(const struct evaluation *e, const struct row *r, struct sample_bucket *out)
{
    size_t n = 0;
    for (size_t k = 0; k < e->grid.n; k++) {
        double v = r->values[k];
        int64_t t = grid_time(&e->grid, k);
        if (is_absent(v))
            continue;
        struct sample_bucket b = {.start = t, .first = t, .last_at = t, .last = v};
        if (isnan(v))
            b.n_nan = 1;
        else
            b.count = 1, b.sum = b.min = b.max = v;
        out[n++] = b;
    }
    return n;
}

void select_rows(struct evaluation *e, struct matrix m, struct metric_selection *selection)
{
    if (evaluation_failed(e) ||
        !evaluation_fits(e, m.n, sizeof *selection->series + 16 + e->grid.n * sizeof(struct sample_bucket)))
        return;
    selection->series = arena_alloc(e->memory, m.n * sizeof *selection->series);
    for (; selection->n_series < m.n; selection->n_series++) {
        const struct row *r = &m.rows[selection->n_series];
        struct sample_bucket *buckets = arena_alloc(e->memory, e->grid.n * sizeof *buckets);
        size_t n = buckets_of_row(e, r, buckets);
        selection->series[selection->n_series] = (struct metric_series){r->labels, r->n_labels, buckets, n};
    }
}

/* The buckets that have samples. Copies them to *copy only if others are among them. */
static const struct sample_bucket *without_gaps(
    const struct metric_series *s, struct sample_bucket **copy, size_t *n)
{
    *n = 0;
    for (size_t i = 0; i < s->n_buckets; i++)
        *n += has_samples(&s->buckets[i]);
    if (*n == s->n_buckets)
        return s->buckets;
    *copy = mem_alloc((*n + 1) * sizeof **copy);
    for (size_t i = 0, k = 0; i < s->n_buckets; i++)
        if (has_samples(&s->buckets[i]))
            (*copy)[k++] = s->buckets[i];
    return *copy;
}

/* Calls the function at each step for the buckets whose last sample lies in the range. */
static void slide(struct evaluation *e, const struct node *call, const struct node *range,
    struct matrix *args, const struct metric_series *s, double *values)
{
    struct sample_bucket *copy = NULL;
    size_t n, first = 0, end = 0;
    const struct sample_bucket *buckets = without_gaps(s, &copy, &n);
    bool has_several = false;
    for (size_t k = 0; k < e->grid.n && evaluation_work(e, 20 * (end - first) + 100); k++) {
        double scalar = 0, *value = &values[k];
        int64_t to = selector_end(e, range, grid_time(&e->grid, k)), from = to - range->range;
        while (end < n && buckets[end].last_at <= to)
            has_several |= buckets[end].count + buckets[end].n_nan > 1, end++;
        while (first < end && buckets[first].last_at < from)
            first++;
        struct window w = {.buckets = buckets + first,
            .n = end - first,
            .from = from,
            .to = to,
            .at = grid_time(&e->grid, k)};
        if (call->function->divides && end < n && buckets[end].first <= to)
            w.next = &buckets[end];
        for (size_t a = 0; a < call->n_args; a++)
            if (call->args[a] != range)
                scalar = args[a].rows[0].values[k];
        if ((w.n == 0 && !w.next) || !call->function->range(&w, &scalar, value))
            *value = absent();
        else if (isnan(*value))
            *value = NAN; /* never the bits of ABSENT */
    }
    if (has_several && call->function->is_approximate)
        evaluation_warn(e, "%s() is approximate where a bucket has several samples", call->function->name);
    free(copy);
}

struct matrix range_rows(struct evaluation *e, const struct node *call, const struct node *range,
    struct matrix *args, const struct metric_selection *selection)
{
    struct matrix m = {0};
    if (!evaluation_failed(e))
        m = evaluation_rows(e, selection->n_series);
    for (size_t i = 0; i < m.n && !evaluation_failed(e); i++) {
        labels_copy(e, &m.rows[i], &selection->series[i]);
        if (!call->function->keeps_name)
            labels_drop_name(e, &m.rows[i]);
        slide(e, call, range, args, &selection->series[i], m.rows[i].values);
    }
    matrix_settle(e, &m, true);
    return m;
}
