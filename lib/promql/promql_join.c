/* The answers of a range query for earlier and later steps, as one. */
#include "promql/promql_tree.h"

#include <stdlib.h>

/* Points of a series: of `s` from `from` to `to`. */
struct span {
    const struct promql_point *points;
    size_t n;
};

static struct span span_of(const struct promql_series *s, int64_t from, int64_t to)
{
    struct span p = {0};
    if (!s)
        return p;
    p = (struct span){s->points, s->n_points};
    while (p.n > 0 && p.points[0].time < from)
        p.points++, p.n--;
    while (p.n > 0 && p.points[p.n - 1].time > to)
        p.n--;
    return p;
}

static int compare(const struct promql_series *a, const struct promql_series *b)
{
    if (!a || !b)
        return a ? -1 : 1;
    return metric_labels_compare(a->labels, a->n_labels, b->labels, b->n_labels);
}

static const struct metric_label *copy_labels(struct arena *memory, const struct promql_series *s)
{
    struct metric_label *labels = arena_alloc(memory, s->n_labels * sizeof *labels);
    for (size_t i = 0; i < s->n_labels; i++)
        labels[i] = (struct metric_label){
            arena_copy(memory, s->labels[i].name), arena_copy(memory, s->labels[i].value)};
    return labels;
}

static void copy_warnings(const struct promql_result *from, struct promql_result *out)
{
    const char **all = arena_alloc(out->memory, (out->n_warnings + from->n_warnings) * sizeof *all);
    size_t n = 0;
    for (; n < out->n_warnings; n++)
        all[n] = out->warnings[n];
    for (size_t i = 0; i < from->n_warnings; i++) {
        bool is_there = false;
        for (size_t k = 0; k < n; k++)
            is_there |= strcmp(all[k], from->warnings[i]) == 0;
        if (!is_there)
            all[n++] = arena_copy(out->memory, bytes_str(from->warnings[i])).ptr;
    }
    out->warnings = all;
    out->n_warnings = n;
}

/* Appends a series with the points of `a`, then of `b`. Either may have none. */
static void add_series(
    struct promql_result *out, const struct promql_series *labels, struct span a, struct span b)
{
    if (a.n + b.n == 0)
        return;
    struct promql_point *points = arena_alloc(out->memory, (a.n + b.n) * sizeof *points);
    if (a.n > 0)
        memcpy(points, a.points, a.n * sizeof *points);
    if (b.n > 0)
        memcpy(points + a.n, b.points, b.n * sizeof *points);
    out->series[out->n_series++] =
        (struct promql_series){copy_labels(out->memory, labels), labels->n_labels, points, a.n + b.n};
}

bool promql_join(const struct promql_result *a, int64_t from, int64_t to, const struct promql_result *b,
    size_t max_bytes, struct promql_result *out)
{
    size_t i = 0, k = 0, n = a->n_series + b->n_series;
    *out = (struct promql_result){.type = a->type,
        .time = from,
        .width = a->width > b->width ? a->width : b->width,
        .memory = mem_zalloc(sizeof *out->memory)};
    out->series = arena_alloc(out->memory, n * sizeof *out->series);
    copy_warnings(a, out);
    copy_warnings(b, out);
    while (i < a->n_series || k < b->n_series) {
        const struct promql_series *x = i < a->n_series ? &a->series[i] : NULL,
                                   *y = k < b->n_series ? &b->series[k] : NULL;
        int order = compare(x, y);
        i += order <= 0;
        k += order >= 0;
        add_series(out, order <= 0 ? x : y, span_of(order <= 0 ? x : NULL, from, to),
            span_of(order >= 0 ? y : NULL, INT64_MIN, INT64_MAX));
        if (out->memory->used > max_bytes) {
            promql_result_free(out);
            return false;
        }
    }
    return true;
}

static bool is_stepwise(const struct node *n)
{
    bool is = n->at == AT_NONE && n->offset >= 0;
    for (size_t i = 0; i < n->n_args && is; i++)
        is = is_stepwise(n->args[i]);
    return is;
}

bool promql_is_stepwise(const struct promql *query)
{
    return is_stepwise(query->root);
}
