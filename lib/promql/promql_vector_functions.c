#include "promql/promql_vector_functions.h"
#include "promql/promql_labels.h"

#include "counts/text_pattern.h"
#include "metrics/exposition.h"

#include <math.h>
#include <stdlib.h>

/* The labels that the equal matchers of a selector name. A name that is matched twice has none. */
static void labels_of_absent(struct evaluation *e, const struct node *n, struct row *r)
{
    for (size_t i = 0; n->kind == NODE_SELECTOR && i < n->n_matchers; i++) {
        const struct label_matcher *m = &n->matchers[i];
        size_t same = 0;
        for (size_t k = 0; k < n->n_matchers; k++)
            same += bytes_equal(n->matchers[k].name, m->name);
        if (m->type == MATCH_EQUAL && same == 1 && !bytes_equal(m->name, NAME_LABEL))
            labels_set(e, r, arena_copy(e->memory, m->name), arena_copy(e->memory, m->value));
    }
}

struct matrix call_absent(struct evaluation *e, const struct node *call, struct matrix *args)
{
    struct matrix m = evaluation_rows(e, 1);
    if (m.n == 0)
        return m;
    labels_of_absent(e, call->args[0], &m.rows[0]);
    for (size_t k = 0; k < e->grid.n && evaluation_work(e, args[0].n); k++) {
        bool is_present = false;
        for (size_t i = 0; i < args[0].n && !is_present; i++)
            is_present = !is_absent(args[0].rows[i].values[k]);
        m.rows[0].values[k] = is_present ? absent() : 1;
    }
    matrix_settle(e, &m, false);
    return m;
}

struct matrix call_scalar(struct evaluation *e, const struct node *call, struct matrix *args)
{
    struct matrix m = evaluation_rows(e, 1);
    (void)call;
    for (size_t k = 0; k < e->grid.n && m.n > 0; k++) {
        size_t n = 0;
        for (size_t i = 0; i < args[0].n; i++)
            if (!is_absent(args[0].rows[i].values[k])) {
                m.rows[0].values[k] = args[0].rows[i].values[k];
                n++;
            }
        if (n != 1)
            m.rows[0].values[k] = NAN;
    }
    return m;
}

struct matrix call_vector(struct evaluation *e, const struct node *call, struct matrix *args)
{
    (void)e;
    (void)call;
    return args[0];
}

/* The values of a selector are already times; any other vector has the time of the evaluation. */
struct matrix call_timestamp(struct evaluation *e, const struct node *call, struct matrix *args)
{
    struct matrix m = args[0];
    for (size_t i = 0; i < m.n; i++) {
        labels_drop_name(e, &m.rows[i]);
        for (size_t k = 0; k < e->grid.n && call->args[0]->kind != NODE_SELECTOR; k++)
            if (!is_absent(m.rows[i].values[k]))
                m.rows[i].values[k] = (double)(grid_time(&e->grid, k)) / 1000;
    }
    matrix_settle(e, &m, false);
    return m;
}

struct sorting {
    size_t step;
    bool descending;
};

static int compare_rows(const void *a, const void *b, void *arg)
{
    const struct sorting *s = arg;
    const struct row *const *x = a, *const *y = b;
    double v = (*x)->values[s->step], w = (*y)->values[s->step];
    if (isnan(v) || isnan(w))
        return isnan(v) != isnan(w) ? isnan(v) - isnan(w) : (*x > *y) - (*x < *y);
    if (v == w)
        return (*x > *y) - (*x < *y);
    return (v < w) != s->descending ? -1 : 1;
}

void rows_sort(struct row **rows, size_t n, size_t step, bool descending)
{
    struct sorting sorting = {step, descending};
    if (n > 1)
        qsort_r(rows, n, sizeof(struct row *), compare_rows, &sorting);
}

/* A range query has no order of values. */
struct matrix call_sort(struct evaluation *e, const struct node *call, struct matrix *args)
{
    struct matrix m = args[0], sorted = {0};
    if (e->grid.n > 1 || m.n == 0 || !evaluation_fits(e, m.n, sizeof *m.rows + sizeof(struct row *)))
        return m;
    struct row **order = arena_alloc(e->memory, m.n * sizeof *order);
    sorted.rows = arena_alloc(e->memory, m.n * sizeof *sorted.rows);
    for (size_t i = 0; i < m.n; i++)
        order[i] = &m.rows[i];
    rows_sort(order, m.n, 0, bytes_equal_str(bytes_str(call->function->name), "sort_desc"));
    for (; sorted.n < m.n; sorted.n++)
        sorted.rows[sorted.n] = *order[sorted.n];
    return sorted;
}

/* Sets a label to a text that the function made. */
static void set_made(struct evaluation *e, struct row *r, struct bytes name, const struct buf *value)
{
    if (value->len > LABEL_VALUE_MAX)
        evaluation_fail(e, PROMQL_TOO_MANY, "a label would have more than %zu bytes", LABEL_VALUE_MAX);
    else if (evaluation_fits(e, 1, value->len))
        labels_set(e, r, arena_copy(e->memory, name), arena_copy(e->memory, buf_bytes(value)));
}

struct matrix call_label_join(struct evaluation *e, const struct node *call, struct matrix *args)
{
    struct matrix m = args[0];
    struct bytes to = call->args[1]->text;
    struct buf joined = {0};
    if (!exposition_is_label_name(to))
        return evaluation_fail(
            e, PROMQL_FAILED, "invalid destination label name in label_join(): %.*s", (int)to.len, to.ptr);
    for (size_t a = 3; a < call->n_args; a++)
        if (!exposition_is_label_name(call->args[a]->text))
            return evaluation_fail(e, PROMQL_FAILED, "invalid source label name in label_join(): %.*s",
                (int)call->args[a]->text.len, call->args[a]->text.ptr);
    for (size_t i = 0; i < m.n && evaluation_work(e, 100 * call->n_args); i++) {
        buf_clear(&joined);
        for (size_t a = 3; a < call->n_args && joined.len <= LABEL_VALUE_MAX; a++) {
            buf_append_bytes(&joined, a > 3 ? call->args[2]->text : BYTES_NONE);
            buf_append_bytes(&joined, labels_get(&m.rows[i], call->args[a]->text));
        }
        set_made(e, &m.rows[i], to, &joined);
    }
    buf_free(&joined);
    matrix_settle(e, &m, false);
    return m;
}

static bool is_word(char c)
{
    return c == '_' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* Replaces $1, ${1}, $name and ${name} by groups of the match, and $$ by a dollar. */
static void expand(const struct text_pattern *p, struct bytes text, struct bytes template, struct buf *out)
{
    buf_clear(out);
    for (size_t i = 0; i < template.len && out->len <= LABEL_VALUE_MAX; i++) {
        size_t from = i + 1, to;
        bool braces = from < template.len && template.ptr[from] == '{';
        for (to = from += braces; to < template.len && is_word(template.ptr[to]);)
            to++;
        bool is_group = template.ptr[i] == '$' && to > from &&
                        (!braces || (to < template.len && template.ptr[to] == '}'));
        if (is_group) {
            buf_append_bytes(out, text_pattern_group(p, text, bytes_of(template.ptr + from, to - from)));
            i = to - 1 + braces;
        } else if (template.ptr[i] == '$' && i + 1 < template.len && template.ptr[i + 1] == '$') {
            buf_append_char(out, template.ptr[i++]);
        } else {
            buf_append_char(out, template.ptr[i]);
        }
    }
}

static struct matrix replace(
    struct evaluation *e, const struct node *call, struct matrix m, struct text_pattern *pattern)
{
    struct buf value = {0};
    for (size_t i = 0; i < m.n && evaluation_work(e, 1000); i++) {
        struct bytes from = labels_get(&m.rows[i], call->args[3]->text);
        enum text_pattern_result found = text_pattern_find(pattern, from.ptr ? from : BYTES_LITERAL(""));
        if (found == TEXT_PATTERN_UNDECIDED)
            evaluation_fail(
                e, PROMQL_TOO_MANY, "the regular expression of label_replace() needs too many steps");
        if (found != TEXT_PATTERN_FOUND)
            continue;
        expand(pattern, from, call->args[2]->text, &value);
        set_made(e, &m.rows[i], call->args[1]->text, &value);
    }
    buf_free(&value);
    matrix_settle(e, &m, false);
    return m;
}

struct matrix call_label_replace(struct evaluation *e, const struct node *call, struct matrix *args)
{
    struct bytes regex = call->args[4]->text, to = call->args[1]->text;
    struct error error = {0};
    struct matrix m = {0};
    char *anchored = mem_printf("^(?:%.*s)\\z", (int)regex.len, regex.ptr);
    struct text_pattern *pattern =
        strlen(anchored) == regex.len + 7 ? text_pattern_new(anchored, &error) : NULL;
    if (!pattern)
        evaluation_fail(e, PROMQL_FAILED, "invalid regular expression in label_replace(): %.*s",
            (int)regex.len, regex.ptr);
    else if (!exposition_is_label_name(to))
        evaluation_fail(
            e, PROMQL_FAILED, "invalid destination label name in label_replace(): %.*s", (int)to.len, to.ptr);
    else
        m = replace(e, call, args[0], pattern);
    text_pattern_free(&pattern);
    free(anchored);
    return m;
}

struct le_bucket {
    double bound, count;
    const struct row *row;
};

static int compare_bounds(const void *a, const void *b)
{
    const struct le_bucket *x = a, *y = b;
    return (x->bound > y->bound) - (x->bound < y->bound);
}

/* Joins buckets with the same bound, and makes the counts rise with the bounds. Returns the number of buckets. */
static size_t tidy_buckets(struct le_bucket *b, size_t n)
{
    size_t last = 0;
    for (size_t i = 1; i < n; i++) {
        if (b[i].bound == b[last].bound)
            b[last].count += b[i].count;
        else
            b[++last] = b[i];
    }
    for (size_t i = 1; i <= last; i++)
        if (b[i].count < b[i - 1].count)
            b[i].count = b[i - 1].count;
    return last + 1;
}

static double quantile_of_buckets(double q, struct le_bucket *b, size_t n)
{
    size_t i = 0;
    if (isnan(q))
        return NAN;
    if (q < 0 || q > 1)
        return q < 0 ? -INFINITY : INFINITY;
    if (!isinf(b[n - 1].bound) || b[n - 1].bound < 0)
        return NAN;
    n = tidy_buckets(b, n);
    double all = b[n - 1].count, rank = q * all;
    if (n < 2 || all == 0 || isnan(all))
        return NAN;
    while (i < n - 1 && !(b[i].count >= rank))
        i++;
    if (i == n - 1)
        return b[n - 2].bound;
    if (i == 0 && b[0].bound <= 0)
        return b[0].bound;
    double start = i > 0 ? b[i - 1].bound : 0, below = i > 0 ? b[i - 1].count : 0;
    return start + (b[i].bound - start) * ((rank - below) / (b[i].count - below));
}

/* The bound in the label `le`. */
static bool read_bound(const struct row *r, double *bound)
{
    char digits[64], *end;
    struct bytes le = labels_get(r, BYTES_LITERAL("le"));
    if (le.len == 0 || le.len >= sizeof digits)
        return false;
    memcpy(digits, le.ptr, le.len);
    digits[le.len] = '\0';
    *bound = strtod(digits, &end);
    return *end == '\0' && !isnan(*bound);
}

/* The answers of one histogram: `n` rows, each of which is a bucket. */
static void fill_quantiles(struct evaluation *e, struct row **rows, size_t n, const double *q, double *values)
{
    struct le_bucket *all = mem_alloc(2 * n * sizeof *all), *present = all + n;
    for (size_t i = 0; i < n; i++) {
        all[i].row = rows[i];
        read_bound(rows[i], &all[i].bound);
    }
    qsort(all, n, sizeof *all, compare_bounds);
    for (size_t k = 0; k < e->grid.n && evaluation_work(e, 4 * n); k++) {
        size_t n_present = 0;
        for (size_t i = 0; i < n; i++)
            if (!is_absent(all[i].row->values[k]))
                present[n_present++] = (struct le_bucket){all[i].bound, all[i].row->values[k], NULL};
        if (n_present > 0)
            values[k] = quantile_of_buckets(q[k], present, n_present);
    }
    free(all);
}

struct matrix call_histogram_quantile(struct evaluation *e, const struct node *call, struct matrix *args)
{
    const struct bytes le = BYTES_LITERAL("le");
    const struct label_choice same = {&le, 1, .is_outside = true};
    const struct label_choice kept = {&le, 1, .is_outside = true, .drops_name = true};
    struct matrix in = args[1];
    struct row_groups groups;
    double bound;
    (void)call;
    in.n = 0;
    for (size_t i = 0; i < args[1].n; i++)
        if (read_bound(&in.rows[i], &bound))
            in.rows[in.n++] = in.rows[i];
    if (!rows_group(e, in, &same, &groups))
        return (struct matrix){0};
    struct matrix m = evaluation_rows(e, groups.n);
    for (size_t g = 0; g < m.n && !evaluation_failed(e); g++) {
        struct row **rows = groups.rows + groups.start[g];
        m.rows[g].labels = rows[0]->labels;
        m.rows[g].n_labels = rows[0]->n_labels;
        labels_choose(e, &m.rows[g], &kept);
        fill_quantiles(
            e, rows, groups.start[g + 1] - groups.start[g], args[0].rows[0].values, m.rows[g].values);
    }
    matrix_settle(e, &m, false);
    return m;
}
