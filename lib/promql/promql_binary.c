#include "promql/promql_labels.h"
#include "promql/promql_lexer.h"
#include "promql/promql_json.h"
#include "promql/promql_operations.h"

#include <math.h>
#include <stdlib.h>

/* The result of an arithmetic operation, or 0 or 1 for a comparison. */
static double operate(int operation, double a, double b)
{
    switch (operation) {
    case '+':
        return a + b;
    case '-':
        return a - b;
    case '*':
        return a * b;
    case '/':
        return a / b;
    case '%':
        return fmod(a, b);
    case '^':
        return pow(a, b);
    case TOKEN_ATAN2:
        return atan2(a, b);
    case TOKEN_EQUAL:
        return a == b;
    case TOKEN_NOT_EQUAL:
        return a != b;
    case '<':
        return a < b;
    case '>':
        return a > b;
    case TOKEN_LESS_EQUAL:
        return a <= b;
    default: /* TOKEN_GREATER_EQUAL */
        return a >= b;
    }
}

/* The value of an element: a comparison without `bool` keeps the value `kept`, or nothing. */
static double element(const struct node *n, double a, double b, double kept)
{
    double value = operate(n->operation, a, b);
    if (!token_is_comparison(n->operation) || n->is_bool)
        return value;
    return value != 0 ? kept : absent();
}

static bool drops_name(const struct node *n)
{
    return n->is_bool || (!token_is_comparison(n->operation) && n->operation != TOKEN_ATAN2);
}

static struct matrix with_scalar(
    struct evaluation *e, const struct node *n, struct matrix m, const double *scalar, bool swapped)
{
    for (size_t i = 0; i < m.n && evaluation_work(e, e->grid.n * 2); i++) {
        double *values = m.rows[i].values;
        if (drops_name(n))
            labels_drop_name(e, &m.rows[i]);
        for (size_t k = 0; k < e->grid.n; k++) {
            double v = values[k], s = scalar[k];
            if (!is_absent(v))
                values[k] = swapped ? element(n, s, v, v) : element(n, v, s, v);
        }
    }
    if (m.n > 0)
        matrix_settle(e, &m, false);
    return m;
}

/* Two vectors of an operation, and for each row the number of its match group: rows match if the chosen labels are equal. */
struct matching {
    const struct node *node;
    struct matrix many, one; /* the sides of a set operation are left and right */
    size_t *group_of_many, *group_of_one;
    size_t n_groups;
    bool swapped; /* group_right: `many` is the right side */
};

static struct label_choice choice_of(const struct node *n)
{
    return (struct label_choice){n->labels.names, n->labels.n, !n->is_on, !n->is_on};
}

static size_t *number_groups(
    struct evaluation *e, struct label_table *table, const struct node *n, struct matrix m, bool add)
{
    struct label_choice choice = choice_of(n);
    size_t *group = arena_alloc(e->memory, m.n * sizeof *group);
    for (size_t i = 0; i < m.n; i++)
        group[i] = label_table_find(table, &m.rows[i], &choice, add);
    return group;
}

static bool match_rows(struct evaluation *e, struct matching *m, bool add)
{
    struct label_table table;
    if (!evaluation_fits(e, m->many.n + m->one.n, 300))
        return false;
    label_table_init(&table, e->memory, m->one.n + (add ? m->many.n : 0));
    m->group_of_one = number_groups(e, &table, m->node, m->one, true);
    m->group_of_many = number_groups(e, &table, m->node, m->many, add);
    m->n_groups = table.n;
    label_table_free(&table);
    return evaluation_work(e, 200 * (m->many.n + m->one.n));
}

/* Writes true for each group with a row at step k. */
static void note_present(struct matrix m, const size_t *group, size_t k, bool *present)
{
    for (size_t i = 0; i < m.n; i++)
        if (!is_absent(m.rows[i].values[k]))
            present[group[i]] = true;
}

/* Removes the values at step k whose group's presence on the other side is not `wanted`. */
static void keep_present(struct matrix m, const size_t *group, size_t k, const bool *present, bool wanted)
{
    for (size_t i = 0; i < m.n; i++)
        if (present[group[i]] != wanted)
            m.rows[i].values[k] = absent();
}

static struct matrix set_rows(struct evaluation *e, struct matching *m)
{
    struct matrix out = m->many;
    int operation = m->node->operation;
    if (!match_rows(e, m, true))
        return (struct matrix){0};
    bool *present = mem_zalloc(m->n_groups + 1);
    for (size_t k = 0; k < e->grid.n && evaluation_work(e, m->many.n + m->one.n); k++) {
        memset(present, 0, m->n_groups);
        if (operation == TOKEN_OR) {
            note_present(m->many, m->group_of_many, k, present);
            keep_present(m->one, m->group_of_one, k, present, false);
        } else {
            note_present(m->one, m->group_of_one, k, present);
            keep_present(m->many, m->group_of_many, k, present, operation == TOKEN_AND);
        }
    }
    free(present);
    if (operation == TOKEN_OR && evaluation_fits(e, m->many.n + m->one.n, sizeof *out.rows)) {
        out.rows = arena_alloc(e->memory, (m->many.n + m->one.n) * sizeof *out.rows);
        for (size_t i = 0; i < m->many.n + m->one.n; i++)
            out.rows[i] = i < m->many.n ? m->many.rows[i] : m->one.rows[i - m->many.n];
        out.n = m->many.n + m->one.n;
    }
    matrix_settle(e, &out, false);
    return out;
}

static void fail_duplicate(
    struct evaluation *e, const struct matching *m, const struct row *a, const struct row *b)
{
    struct label_choice choice = choice_of(m->node);
    struct row group = *a;
    struct buf text = {0};
    labels_choose(e, &group, &choice);
    buf_append_str(&text, "found duplicate series for the match group ");
    promql_json_labels(&text, group.labels, group.n_labels);
    buf_printf(&text, " on the %s hand-side of the operation: [", m->swapped ? "left" : "right");
    promql_json_labels(&text, a->labels, a->n_labels);
    buf_append_str(&text, ", ");
    promql_json_labels(&text, b->labels, b->n_labels);
    evaluation_fail(e, PROMQL_FAILED,
        "%.*s];many-to-many matching not allowed: matching labels must be unique on one side",
        text.len > 1000 ? 1000 : (int)text.len, text.ptr);
    buf_free(&text);
}

/* The labels of the result of two rows. */
static void result_labels(struct evaluation *e, const struct matching *m, const struct row *many,
    const struct row *one, struct row *out)
{
    const struct node *n = m->node;
    out->labels = many->labels;
    out->n_labels = many->n_labels;
    if (drops_name(n))
        labels_drop_name(e, out);
    if (n->side == MATCH_ONE_TO_ONE && (n->is_on || n->labels.n > 0))
        labels_choose(e, out, &(struct label_choice){n->labels.names, n->labels.n, !n->is_on, false});
    for (size_t i = 0; i < n->include.n; i++)
        labels_set(e, out, arena_copy(e->memory, n->include.names[i]), labels_get(one, n->include.names[i]));
}

/* The rows of the result: a row for each pair of rows that has met. Pairs of a row with several others are rare. */
struct pairs {
    struct matrix out;
    size_t cap;
    size_t *one, *row; /* for each row of `many`: its last partner, and their row in `out` */
};

static double *pair_values(struct evaluation *e, struct matching *m, struct pairs *p, size_t i, size_t j)
{
    if (p->one[i] == j)
        return p->out.rows[p->row[i]].values;
    struct matrix row = evaluation_rows(e, 1);
    if (row.n == 0)
        return NULL;
    result_labels(e, m, &m->many.rows[i], &m->one.rows[j], &row.rows[0]);
    p->one[i] = j;
    p->row[i] = p->out.n;
    *ARRAY_ADD(p->out.rows, p->out.n, p->cap) = row.rows[0];
    return row.rows[0].values;
}

/* Combines the rows at step k. `holder` and `matched` have room for each group; matched[g] is k + 1 once g has a result. */
static void match_step(
    struct evaluation *e, struct matching *m, struct pairs *p, size_t k, size_t *holder, size_t *matched)
{
    const struct node *n = m->node;
    memset(holder, 0xff, m->n_groups * sizeof *holder);
    for (size_t j = 0; j < m->one.n; j++) {
        size_t *at = &holder[m->group_of_one[j]];
        if (is_absent(m->one.rows[j].values[k]))
            continue;
        if (*at != SIZE_MAX) {
            fail_duplicate(e, m, &m->one.rows[j], &m->one.rows[*at]);
            return;
        }
        *at = j;
    }
    for (size_t i = 0; i < m->many.n && !evaluation_failed(e); i++) {
        size_t group = m->group_of_many[i], j = group == SIZE_MAX ? SIZE_MAX : holder[group];
        double v = m->many.rows[i].values[k];
        if (is_absent(v) || j == SIZE_MAX)
            continue;
        double other = m->one.rows[j].values[k];
        double value = m->swapped ? element(n, other, v, other) : element(n, v, other, v);
        if (is_absent(value))
            continue;
        if (n->side == MATCH_ONE_TO_ONE && matched[group] == k + 1)
            evaluation_fail(e, PROMQL_FAILED,
                "multiple matches for labels: many-to-one matching must be explicit "
                "(group_left/group_right)");
        matched[group] = k + 1;
        double *values = pair_values(e, m, p, i, j);
        if (values)
            values[k] = value;
    }
}

static struct matrix matched_rows(struct evaluation *e, struct matching *m)
{
    struct pairs p = {0};
    if (m->many.n == 0 || m->one.n == 0 || !match_rows(e, m, false))
        return (struct matrix){0};
    size_t *holder = arena_alloc(e->memory, 2 * m->n_groups * sizeof *holder);
    p.one = arena_alloc(e->memory, m->many.n * sizeof *p.one);
    p.row = arena_alloc(e->memory, m->many.n * sizeof *p.row);
    memset(p.one, 0xff, m->many.n * sizeof *p.one);
    for (size_t k = 0; k < e->grid.n && evaluation_work(e, 4 * (m->many.n + m->one.n)); k++)
        match_step(e, m, &p, k, holder, holder + m->n_groups);
    struct matrix out = {arena_alloc(e->memory, p.out.n * sizeof *out.rows), p.out.n};
    if (p.out.n > 0)
        memcpy(out.rows, p.out.rows, p.out.n * sizeof *out.rows);
    free(p.out.rows);
    matrix_settle(e, &out, false);
    return out;
}

struct matrix binary_rows(struct evaluation *e, const struct node *n, struct matrix left, struct matrix right)
{
    bool swapped = n->side == MATCH_GROUP_RIGHT;
    if (n->args[1]->type == PROMQL_SCALAR)
        return with_scalar(e, n, left, right.rows[0].values, false);
    if (n->args[0]->type == PROMQL_SCALAR)
        return with_scalar(e, n, right, left.rows[0].values, true);
    struct matching m = {
        .node = n, .many = swapped ? right : left, .one = swapped ? left : right, .swapped = swapped};
    return token_is_set(n->operation) ? set_rows(e, &m) : matched_rows(e, &m);
}
