#include "promql/promql_functions.h"
#include "promql/promql_lexer.h"

#include "counts/text_pattern.h"

#include <stdio.h>
#include <stdlib.h>

static const char *type_name(enum promql_type type)
{
    static const char *const names[] = {"scalar", "instant vector", "range vector", "string"};
    return names[type];
}

static void expect(struct lexer *l, const struct node *n, enum promql_type type, const char *context)
{
    if (n->type != type)
        lexer_fail(
            l, n->from, "expected type %s in %s, got %s", type_name(type), context, type_name(n->type));
}

static bool matches_empty(struct lexer *l, const struct node *n, const struct label_matcher *m)
{
    struct error error = {0};
    if (m->type == MATCH_EQUAL || m->type == MATCH_NOT_EQUAL)
        return (m->value.len == 0) == (m->type == MATCH_EQUAL);
    char *pattern = mem_printf("^(?:%.*s)\\z", (int)m->value.len, m->value.ptr);
    struct text_pattern *p = strlen(pattern) == m->value.len + 7 ? text_pattern_new(pattern, &error) : NULL;
    if (!p)
        lexer_fail(l, n->from, "error parsing regexp: %s", *error.text ? error.text : "NUL");
    bool found = p && text_pattern_find(p, BYTES_LITERAL("")) == TEXT_PATTERN_FOUND;
    text_pattern_free(&p);
    free(pattern);
    return found == (m->type == MATCH_REGEX);
}

static void check_selector(struct lexer *l, const struct node *n)
{
    bool not_empty = false;
    for (size_t i = 0; i < n->n_matchers && !l->failed; i++) {
        const struct label_matcher *m = &n->matchers[i];
        bool is_outside = n->name.ptr && i + 1 == n->n_matchers; /* the name in front of the braces */
        not_empty |= !matches_empty(l, n, m);
        if (n->name.ptr && !is_outside && bytes_equal_str(m->name, "__name__"))
            lexer_fail(l, n->from, "metric name must not be set twice: \"%.*s\" or \"%.*s\"",
                (int)n->name.len, n->name.ptr, (int)m->value.len, m->value.ptr);
    }
    if (!not_empty)
        lexer_fail(l, n->from, "vector selector must contain at least one non-empty matcher");
}

static void check_call(struct lexer *l, const struct node *n)
{
    const struct promql_function *f = n->function;
    size_t least, most;
    char context[80];
    snprintf(context, sizeof context, "call to function \"%s\"", f->name);
    promql_function_arity(f, &least, &most);
    if (n->n_args < least || n->n_args > most)
        lexer_fail(l, n->from, "expected %s%zu argument(s) in call to \"%s\", got %zu",
            least == most       ? ""
            : n->n_args < least ? "at least "
                                : "at most ",
            n->n_args < least ? least : most, f->name, n->n_args);
    for (size_t i = 0; i < n->n_args && !l->failed; i++)
        expect(l, n->args[i], promql_function_arg(f, i), context);
}

static void check_aggregate(struct lexer *l, const struct node *n)
{
    expect(l, n->args[0], PROMQL_VECTOR, "aggregation expression");
    if (n->n_args > 1)
        expect(l, n->args[1], PROMQL_SCALAR, "aggregation parameter");
}

static void check_matching(struct lexer *l, const struct node *n, size_t at)
{
    for (size_t i = 0; i < n->labels.n && n->is_on; i++)
        for (size_t k = 0; k < n->include.n; k++)
            if (bytes_equal(n->labels.names[i], n->include.names[k]))
                lexer_fail(l, at, "label \"%.*s\" must not occur in ON and GROUP clause at once",
                    (int)n->labels.names[i].len, n->labels.names[i].ptr);
    if (n->side != MATCH_ONE_TO_ONE && token_is_set(n->operation))
        lexer_fail(l, n->from, "no grouping allowed for \"%s\" operation", token_word(n->operation));
}

static void check_binary(struct lexer *l, const struct node *n)
{
    const struct node *left = n->args[0], *right = n->args[1];
    bool scalars = left->type == PROMQL_SCALAR && right->type == PROMQL_SCALAR;
    bool vectors = left->type == PROMQL_VECTOR && right->type == PROMQL_VECTOR;
    bool comparison = token_is_comparison(n->operation);
    size_t at = left->to;
    while (at < l->text.len && strchr(" \t\r\n", l->text.ptr[at]))
        at++;
    if (n->is_bool && !comparison)
        lexer_fail(l, at, "bool modifier can only be used on comparison operators");
    if (comparison && !n->is_bool && scalars)
        lexer_fail(l, at, "comparisons between scalars must use BOOL modifier");
    for (size_t i = 0; i < 2; i++)
        if (n->args[i]->type != PROMQL_SCALAR && n->args[i]->type != PROMQL_VECTOR)
            lexer_fail(
                l, n->args[i]->from, "binary expression must contain only scalar and instant vector types");
    if (!vectors && n->labels.n > 0)
        lexer_fail(l, n->from, "vector matching only allowed between instant vectors");
    if (!vectors && token_is_set(n->operation))
        lexer_fail(l, n->from, "set operator \"%s\" not allowed in binary scalar expression",
            token_word(n->operation));
    check_matching(l, n, at);
}

bool promql_check(const struct node *n, struct lexer *lexer)
{
    for (size_t i = 0; i < n->n_args && !lexer->failed; i++)
        promql_check(n->args[i], lexer);
    if (n->kind == NODE_SELECTOR)
        check_selector(lexer, n);
    else if (n->kind == NODE_CALL)
        check_call(lexer, n);
    else if (n->kind == NODE_AGGREGATE)
        check_aggregate(lexer, n);
    else if (n->kind == NODE_BINARY)
        check_binary(lexer, n);
    else if (n->kind == NODE_SUBQUERY && n->args[0]->type != PROMQL_VECTOR)
        lexer_fail(lexer, n->from, "subquery is only allowed on instant vector, got %s instead",
            type_name(n->args[0]->type));
    else if (n->kind == NODE_NEGATE && n->args[0]->type > PROMQL_VECTOR)
        lexer_fail(lexer, n->from,
            "unary expression only allowed on expressions of type scalar or instant vector, got \"%s\"",
            type_name(n->args[0]->type));
    return !lexer->failed;
}
