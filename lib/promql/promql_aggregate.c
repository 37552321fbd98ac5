#include "promql/promql_labels.h"
#include "promql/promql_lexer.h"
#include "promql/promql_operations.h"
#include "promql/promql_range_functions.h"
#include "promql/promql_vector_functions.h"

#include <math.h>
#include <stdlib.h>

/* The state of a group at a step. */
struct fold {
    double value, mean;
    size_t n;
};

static void fold_mean(struct fold *f, double v)
{
    double n = (double)f->n;
    if (isinf(f->mean) && (isinf(v) ? (f->mean > 0) == (v > 0) : !isnan(v)))
        return; /* the mean stays infinite */
    f->mean += v / n - f->mean / n;
}

static void fold_add(struct fold *f, int operation, double v)
{
    double delta = v - f->mean;
    bool is_first = f->n++ == 0;
    if (operation == TOKEN_AVG)
        fold_mean(f, v);
    else if ((operation == TOKEN_STDDEV || operation == TOKEN_STDVAR) && is_first)
        f->mean = v; /* the deviation of one value is 0, even of NaN */
    else if (operation == TOKEN_STDDEV || operation == TOKEN_STDVAR) {
        f->mean += delta / (double)f->n;
        f->value += delta * (v - f->mean);
    } else if (operation == TOKEN_SUM)
        f->value = is_first ? v : f->value + v;
    else if (is_first || (operation == TOKEN_MAX && (f->value < v || isnan(f->value))) ||
             (operation == TOKEN_MIN && (f->value > v || isnan(f->value))))
        f->value = v;
}

static double fold_result(const struct fold *f, int operation)
{
    switch (operation) {
    case TOKEN_AVG:
        return f->mean;
    case TOKEN_COUNT:
        return (double)f->n;
    case TOKEN_GROUP:
        return 1;
    case TOKEN_STDVAR:
        return f->value / (double)f->n;
    case TOKEN_STDDEV:
        return sqrt(f->value / (double)f->n);
    default:
        return f->value;
    }
}

static void fill_folds(
    struct evaluation *e, const struct node *n, struct row **rows, size_t count, double *values)
{
    struct fold *folds = mem_zalloc(e->grid.n * sizeof *folds);
    for (size_t i = 0; i < count && evaluation_work(e, e->grid.n * 2); i++)
        for (size_t k = 0; k < e->grid.n; k++)
            if (!is_absent(rows[i]->values[k]))
                fold_add(&folds[k], n->operation, rows[i]->values[k]);
    for (size_t k = 0; k < e->grid.n; k++)
        if (folds[k].n > 0)
            values[k] = fold_result(&folds[k], n->operation);
    free(folds);
}

static void fill_group_quantiles(
    struct evaluation *e, const double *q, struct row **rows, size_t count, double *values)
{
    double *present = mem_alloc(count * sizeof *present);
    for (size_t k = 0; k < e->grid.n && evaluation_work(e, count * 30); k++) {
        size_t n = 0;
        for (size_t i = 0; i < count; i++)
            if (!is_absent(rows[i]->values[k]))
                present[n++] = rows[i]->values[k];
        if (n > 0)
            values[k] = quantile_of(q[k], present, n);
    }
    free(present);
}

/* Leaves the first `limit` rows of a group at each step. In an instant query, they are appended in this order. */
static void choose_top(struct evaluation *e, const struct node *n, const double *limit, struct row **rows,
    size_t count, struct matrix *out)
{
    struct row **order = mem_alloc(count * sizeof(struct row *));
    for (size_t k = 0; k < e->grid.n && evaluation_work(e, count * 100); k++) {
        size_t present = 0;
        for (size_t i = 0; i < count; i++)
            if (!is_absent(rows[i]->values[k]))
                order[present++] = rows[i];
        rows_sort(order, present, k, n->operation == TOKEN_TOPK);
        size_t kept = !(limit[k] >= 1) ? 0 : limit[k] > (double)present ? present : (size_t)limit[k];
        for (size_t i = kept; i < present; i++)
            order[i]->values[k] = absent();
        for (size_t i = 0; i < kept && e->grid.n == 1; i++)
            out->rows[out->n++] = *order[i];
    }
    for (size_t i = 0; i < count && e->grid.n > 1; i++)
        out->rows[out->n++] = *rows[i];
    free(order);
}

static struct matrix top_rows(struct evaluation *e, const struct node *n, struct matrix in,
    const struct row_groups *g, const double *limit)
{
    struct matrix out = {0};
    for (size_t k = 0; k < e->grid.n; k++)
        if (!(fabs(limit[k]) < 9.2e18))
            return evaluation_fail(e, PROMQL_FAILED, "Scalar value %g overflows int64", limit[k]);
    if (!evaluation_fits(e, in.n, sizeof *out.rows))
        return out;
    out.rows = arena_alloc(e->memory, in.n * sizeof *out.rows);
    for (size_t i = 0; i < g->n && !evaluation_failed(e); i++)
        choose_top(e, n, limit, g->rows + g->start[i], g->start[i + 1] - g->start[i], &out);
    matrix_settle(e, &out, false);
    return out;
}

struct matrix aggregate_rows(struct evaluation *e, const struct node *n, struct matrix *args)
{
    struct label_choice choice = {n->labels.names, n->labels.n, n->is_without, n->is_without};
    const double *parameter = n->n_args > 1 ? args[1].rows[0].values : NULL;
    struct row_groups groups;
    if (!rows_group(e, args[0], &choice, &groups))
        return (struct matrix){0};
    if (n->operation == TOKEN_TOPK || n->operation == TOKEN_BOTTOMK)
        return top_rows(e, n, args[0], &groups, parameter);
    struct matrix m = evaluation_rows(e, groups.n);
    for (size_t g = 0; g < m.n && !evaluation_failed(e); g++) {
        struct row *r = &m.rows[g], **rows = groups.rows + groups.start[g];
        size_t count = groups.start[g + 1] - groups.start[g];
        r->labels = rows[0]->labels;
        r->n_labels = rows[0]->n_labels;
        labels_choose(e, r, &choice);
        if (n->operation == TOKEN_QUANTILE)
            fill_group_quantiles(e, parameter, rows, count, r->values);
        else
            fill_folds(e, n, rows, count, r->values);
    }
    return m;
}
