#include "promql/promql_functions.h"
#include "promql/promql_labels.h"
#include "promql/promql_operations.h"

#include <stdlib.h>

#define STEPS_DEFAULT 11000
#define SUBQUERY_STEP 60000
#define BYTES_DEFAULT ((size_t)256 << 20)
/* Times up to here can be added and subtracted with the longest durations. */
#define TIME_MAX INT64_C(9000000000000000)

static struct matrix evaluate(struct evaluation *e, const struct node *n);

static struct matrix number(struct evaluation *e, double value)
{
    struct matrix m = evaluation_rows(e, 1);
    for (size_t k = 0; k < e->grid.n && m.n > 0; k++)
        m.rows[0].values[k] = value;
    return m;
}

static struct matrix negate(struct evaluation *e, const struct node *n, struct matrix m)
{
    for (size_t i = 0; i < m.n && n->operation == '-'; i++) {
        labels_drop_name(e, &m.rows[i]);
        for (size_t k = 0; k < e->grid.n; k++)
            if (!is_absent(m.rows[i].values[k]))
                m.rows[i].values[k] = -m.rows[i].values[k];
    }
    matrix_settle(e, &m, true);
    return m;
}

/* A function that maps each value. Without a vector, it maps the time. */
static struct matrix map(struct evaluation *e, const struct node *n, struct matrix *args)
{
    struct matrix m = n->n_args > 0 ? args[0] : evaluation_rows(e, 1);
    for (size_t i = 0; i < m.n; i++) {
        double *values = m.rows[i].values;
        labels_drop_name(e, &m.rows[i]);
        for (size_t k = 0; k < e->grid.n; k++) {
            double scalars[FUNCTION_ARGS_MAX] = {1, 1, 1, 1}; /* the nearest of round() */
            for (size_t a = 1; a < n->n_args; a++)
                scalars[a - 1] = args[a].rows[0].values[k];
            if (n->n_args == 0)
                values[k] = (double)grid_time(&e->grid, k) / 1000;
            if (!is_absent(values[k]))
                values[k] = n->function->map(values[k], scalars);
        }
    }
    matrix_settle(e, &m, false);
    return m;
}

/* Evaluates the expression of a subquery at its own steps: multiples of the step, from the first range to the last. */
static void select_subquery(struct evaluation *e, const struct node *n, struct metric_selection *selection)
{
    const struct grid outer = e->grid;
    int64_t step = n->step ? n->step : SUBQUERY_STEP;
    int64_t from = selector_end(e, n, outer.start) - n->range;
    int64_t to = selector_end(e, n, grid_time(&outer, outer.n - 1));
    int64_t start = from / step * step;
    start += start < from ? step : 0;
    if (start > to)
        return;
    e->grid = (struct grid){start, step, (size_t)((to - start) / step) + 1};
    select_rows(e, evaluate(e, n->args[0]), selection);
    e->grid = outer;
}

/* The series of a range. `selection` needs metric_selection_free, also after an error. */
static void select_range(struct evaluation *e, const struct node *n, struct metric_selection *selection)
{
    if (n->kind == NODE_SUBQUERY)
        select_subquery(e, n, selection);
    else
        select_series(e, n, selection);
}

static struct matrix call_range(struct evaluation *e, const struct node *n, struct matrix *args)
{
    struct metric_selection selection = {0};
    const struct node *range = n->args[0]->type == PROMQL_MATRIX ? n->args[0] : n->args[1];
    select_range(e, range, &selection);
    struct matrix m = range_rows(e, n, range, args, &selection);
    metric_selection_free(&selection);
    return m;
}

static struct matrix call(struct evaluation *e, const struct node *n, struct matrix *args)
{
    const struct promql_function *f = n->function;
    struct matrix m = {0};
    if (f->map)
        return map(e, n, args);
    if (f->range)
        m = call_range(e, n, args);
    if (f->range && f->call && !evaluation_failed(e))
        return f->call(e, n, &m);
    return f->range ? m : f->call(e, n, args);
}

static bool is_timestamp(const struct node *n)
{
    return n->kind == NODE_CALL && bytes_equal_str(bytes_str(n->function->name), "timestamp");
}

/* Evaluates the arguments, and then the operation over them. */
static struct matrix evaluate(struct evaluation *e, const struct node *n)
{
    struct matrix *args;
    if (!evaluation_work(e, 1000) || !evaluation_fits(e, n->n_args, sizeof *args))
        return (struct matrix){0};
    args = arena_alloc(e->memory, n->n_args * sizeof *args);
    for (size_t i = 0; i < n->n_args; i++) {
        if (n->args[i]->type <= PROMQL_VECTOR) /* a range or a text is read by its function */
            args[i] = is_timestamp(n) && n->args[i]->kind == NODE_SELECTOR
                          ? selector_rows(e, n->args[i], true)
                          : evaluate(e, n->args[i]);
        if (evaluation_failed(e))
            return (struct matrix){0};
    }
    switch (n->kind) {
    case NODE_NUMBER:
        return number(e, n->number);
    case NODE_SELECTOR:
        return selector_rows(e, n, false);
    case NODE_NEGATE:
        return negate(e, n, args[0]);
    case NODE_BINARY:
        return binary_rows(e, n, args[0], args[1]);
    case NODE_AGGREGATE:
        return aggregate_rows(e, n, args);
    default:
        return call(e, n, args);
    }
}

static int compare_series(const void *a, const void *b)
{
    const struct row *x = a, *y = b;
    return metric_labels_compare(x->labels, x->n_labels, y->labels, y->n_labels);
}

static void result_of_matrix(struct evaluation *e, struct matrix m, struct promql_result *result)
{
    bool is_instant = e->request.step == 0;
    if (!is_instant && m.n > 0)
        qsort(m.rows, m.n, sizeof *m.rows, compare_series);
    if (!evaluation_fits(e, m.n, sizeof *result->series + 32 + e->grid.n * sizeof(struct promql_point)))
        return;
    result->series = arena_alloc(e->memory, m.n * sizeof *result->series);
    for (size_t i = 0; i < m.n; i++) {
        const struct row *r = &m.rows[i];
        struct promql_point *points = arena_alloc(e->memory, e->grid.n * sizeof *points);
        size_t n = 0;
        for (size_t k = 0; k < e->grid.n; k++)
            if (!is_absent(r->values[k]))
                points[n++] = (struct promql_point){grid_time(&e->grid, k), r->values[k]};
        if (n > 0)
            result->series[result->n_series++] = (struct promql_series){r->labels, r->n_labels, points, n};
    }
}

/* The answer of an instant query for a range: the samples themselves. */
static void result_of_ranges(struct evaluation *e, const struct node *n, struct promql_result *result)
{
    struct metric_selection selection = {0};
    int64_t to = selector_end(e, n, e->grid.start), from = to - n->range;
    select_range(e, n, &selection);
    if (evaluation_fits(e, selection.n_series, sizeof *result->series))
        result->series = arena_alloc(e->memory, selection.n_series * sizeof *result->series);
    for (size_t i = 0; i < selection.n_series && result->series; i++) {
        const struct metric_series *s = &selection.series[i];
        struct row r = {0};
        struct promql_point *points;
        size_t n_points = 0;
        if (!evaluation_fits(e, s->n_buckets, sizeof *points))
            break;
        points = arena_alloc(e->memory, s->n_buckets * sizeof *points);
        labels_copy(e, &r, s);
        for (size_t b = 0; b < s->n_buckets; b++) {
            const struct sample_bucket *bucket = &s->buckets[b];
            if (bucket->last_at >= from && bucket->last_at <= to && bucket->count + bucket->n_nan > 0)
                points[n_points++] = (struct promql_point){bucket->last_at, bucket->last};
        }
        if (n_points > 0)
            result->series[result->n_series++] =
                (struct promql_series){r.labels, r.n_labels, points, n_points};
    }
    metric_selection_free(&selection);
}

/* Sets the grid and the defaults of a request. */
static void prepare(struct evaluation *e, const struct node *root)
{
    struct promql_request *q = &e->request;
    q->lookback = q->lookback ? q->lookback : PROMQL_LOOKBACK;
    q->max_steps = q->max_steps ? q->max_steps : STEPS_DEFAULT;
    q->max_series = q->max_series ? q->max_series : SIZE_MAX;
    q->max_buckets = q->max_buckets ? q->max_buckets : SIZE_MAX;
    q->max_bytes = q->max_bytes ? q->max_bytes : BYTES_DEFAULT;
    if (q->start < -TIME_MAX || q->end > TIME_MAX || q->start > q->end || q->step < 0 ||
        (q->step == 0 && q->start != q->end) || q->lookback < 0 || q->lookback > TIME_MAX)
        evaluation_fail(e, PROMQL_BAD_QUERY, "invalid start, end or step of the query");
    else if (q->step > 0 && root->type > PROMQL_VECTOR)
        evaluation_fail(e, PROMQL_BAD_QUERY,
            "invalid expression type \"%s\" for range query, must be Scalar or instant Vector",
            root->type == PROMQL_MATRIX ? "range vector" : "string");
    uint64_t n =
        e->code == PROMQL_OK && q->step > 0 ? (uint64_t)(q->end - q->start) / (uint64_t)q->step + 1 : 1;
    if (n > q->max_steps)
        evaluation_fail(e, PROMQL_TOO_MANY,
            "exceeded maximum resolution of %zu points per timeseries. Try decreasing the query resolution "
            "(?step=XX)",
            q->max_steps);
    e->grid = (struct grid){q->start, q->step, (size_t)n};
}

enum promql_result_code promql_evaluate(const struct promql *query, const struct metric_source *source,
    const struct promql_request *request, struct promql_result *result, struct error *error)
{
    const struct node *root = query->root;
    struct arena *memory = mem_zalloc(sizeof *memory);
    struct evaluation e = {.source = source, .request = *request, .memory = memory, .error = error};
    *result = (struct promql_result){.type = root->type, .time = request->start, .memory = memory};
    prepare(&e, root);
    if (root->type == PROMQL_STRING)
        result->text = arena_copy(memory, root->text);
    else if (root->type == PROMQL_MATRIX && !evaluation_failed(&e))
        result_of_ranges(&e, root, result);
    else if (!evaluation_failed(&e))
        result_of_matrix(&e, evaluate(&e, root), result);
    if (request->step > 0)
        result->type = PROMQL_MATRIX;
    result->warnings = e.warnings;
    result->n_warnings = e.n_warnings;
    result->width = e.width;
    if (evaluation_failed(&e))
        promql_result_free(result);
    return e.code;
}

void promql_result_free(struct promql_result *result)
{
    if (result->memory) {
        arena_free(result->memory);
        free(result->memory);
    }
    *result = (struct promql_result){0};
}
