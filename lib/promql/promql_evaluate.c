#include "promql/promql_functions.h"
#include "promql/promql_labels.h"
#include "promql/promql_lexer.h"

#include <stdio.h>
#include <stdlib.h>

#define STEPS_DEFAULT 11000
#define BYTES_DEFAULT ((size_t)256 << 20)
#define POLL_INTERVAL ((size_t)1 << 20)
#define WARNINGS_MAX 20
/* Times up to here can be added and subtracted with the longest durations. */
#define TIME_MAX INT64_C(9000000000000000)

struct matrix evaluation_fail(struct evaluation *e, enum promql_result_code code, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    if (e->code == PROMQL_OK)
        error_vset(e->error, (int)(e->code = code), fmt, ap);
    va_end(ap);
    return (struct matrix){0};
}

bool evaluation_work(struct evaluation *e, size_t work)
{
    e->work += work;
    if (e->work > POLL_INTERVAL && e->code == PROMQL_OK) {
        e->work = 0;
        if (e->request.stop && e->request.stop(e->request.context))
            evaluation_fail(e, PROMQL_STOPPED, "the query was stopped before its end");
    }
    return e->code == PROMQL_OK;
}

bool evaluation_fits(struct evaluation *e, size_t n, size_t size)
{
    size_t limit = e->request.max_bytes;
    if (e->memory->used > limit || (size > 0 && n > (limit - e->memory->used) / size))
        evaluation_fail(e, PROMQL_TOO_MANY, "the query needs more than %zu bytes of memory", limit);
    return e->code == PROMQL_OK;
}

struct matrix evaluation_rows(struct evaluation *e, size_t n)
{
    struct matrix m = {0};
    if (!evaluation_fits(e, n, sizeof *m.rows + 16) ||
        !evaluation_fits(e, n, sizeof *m.rows + 16 + e->grid.n * sizeof(double)))
        return m;
    m.rows = arena_alloc(e->memory, n * sizeof *m.rows);
    for (; m.n < n && evaluation_work(e, e->grid.n); m.n++) {
        double *values = arena_alloc(e->memory, e->grid.n * sizeof *values);
        for (size_t k = 0; k < e->grid.n; k++)
            values[k] = absent();
        m.rows[m.n].values = values;
    }
    return m;
}

void evaluation_warn(struct evaluation *e, const char *fmt, ...)
{
    char text[200];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    for (size_t i = 0; i < e->n_warnings; i++)
        if (strcmp(e->warnings[i], text) == 0)
            return;
    if (e->n_warnings == WARNINGS_MAX)
        return;
    if (!e->warnings)
        e->warnings = arena_alloc(e->memory, WARNINGS_MAX * sizeof *e->warnings);
    e->warnings[e->n_warnings++] = arena_copy(e->memory, bytes_str(text)).ptr;
}

static struct matrix evaluate_number(struct evaluation *e, double number)
{
    struct matrix m = evaluation_rows(e, 1);
    for (size_t k = 0; k < e->grid.n && m.n > 0; k++)
        m.rows[0].values[k] = number;
    return m;
}

static struct matrix evaluate_negation(struct evaluation *e, const struct node *n)
{
    struct matrix m = evaluate(e, n->args[0]);
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
static struct matrix evaluate_map(struct evaluation *e, const struct node *n, struct matrix *args)
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
                values[k] = (double)(e->grid.start + (int64_t)k * e->grid.step) / 1000;
            if (!is_absent(values[k]))
                values[k] = n->function->map(values[k], scalars);
        }
    }
    matrix_settle(e, &m, false);
    return m;
}

static struct matrix evaluate_call(struct evaluation *e, const struct node *n)
{
    const struct promql_function *f = n->function;
    if (!evaluation_fits(e, n->n_args, sizeof(struct matrix)))
        return (struct matrix){0};
    struct matrix *args = arena_alloc(e->memory, n->n_args * sizeof *args);
    for (size_t i = 0; i < n->n_args; i++) {
        const struct node *arg = n->args[i];
        if (arg->type == PROMQL_MATRIX || arg->type == PROMQL_STRING)
            continue; /* the function reads the node */
        bool times = bytes_equal_str(bytes_str(f->name), "timestamp") && arg->kind == NODE_SELECTOR;
        args[i] = times ? evaluate_selector(e, arg, true) : evaluate(e, arg);
        if (evaluation_failed(e))
            return (struct matrix){0};
    }
    if (f->range)
        return evaluate_range_call(e, n, args);
    return f->map ? evaluate_map(e, n, args) : f->call(e, n, args);
}

struct matrix evaluate(struct evaluation *e, const struct node *n)
{
    if (!evaluation_work(e, 1000))
        return (struct matrix){0};
    switch (n->kind) {
    case NODE_NUMBER:
        return evaluate_number(e, n->number);
    case NODE_SELECTOR:
        return evaluate_selector(e, n, false);
    case NODE_NEGATE:
        return evaluate_negation(e, n);
    case NODE_BINARY:
        return evaluate_binary(e, n);
    case NODE_CALL:
        return evaluate_call(e, n);
    case NODE_AGGREGATE:
        return evaluate_aggregate(e, n);
    default: /* matrices and strings are read by their function */
        return (struct matrix){0};
    }
}

static int compare_series(const void *a, const void *b)
{
    return labels_compare(a, b);
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
                points[n++] = (struct promql_point){e->grid.start + (int64_t)k * e->grid.step, r->values[k]};
        if (n > 0)
            result->series[result->n_series++] = (struct promql_series){r->labels, r->n_labels, points, n};
    }
}

/* The answer of an instant query for a range: the samples themselves. */
static void result_of_ranges(struct evaluation *e, const struct node *n, struct promql_result *result)
{
    struct metric_selection selection = {0};
    int64_t to = evaluate_reference(e, n, e->grid.start), from = to - n->range;
    evaluate_ranges(e, n, &selection);
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
    if (evaluation_failed(&e))
        ;
    else if (root->type == PROMQL_STRING)
        result->text = arena_copy(memory, root->text);
    else if (root->type == PROMQL_MATRIX)
        result_of_ranges(&e, root, result);
    else
        result_of_matrix(&e, evaluate(&e, root), result);
    if (request->step > 0)
        result->type = PROMQL_MATRIX;
    result->warnings = e.warnings;
    result->n_warnings = e.n_warnings;
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
