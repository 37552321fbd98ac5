#include "promql/promql.h"

#include "promql/promql_functions.h"
#include "metrics/metric_duration.h"
#include "promql/promql_lexer.h"

#include <math.h>
#include <stdlib.h>

struct parser {
    struct lexer lexer;
    struct token t; /* the next token */
    size_t end;     /* of the token before */
    struct arena *memory;
    unsigned depth; /* of calls of the parser */
    size_t n_patterns;
};

static struct node *parse_operation(struct parser *p, int least);

static void advance(struct parser *p)
{
    p->end = p->t.to;
    p->t = lexer_next(&p->lexer);
}

static bool take(struct parser *p, int type)
{
    if (p->t.type != type)
        return false;
    advance(p);
    return true;
}

static struct bytes text_of(const struct parser *p, struct token t)
{
    return bytes_of(p->lexer.text.ptr + t.from, t.to - t.from);
}

/* Refuses the next token. Always returns NULL. */
static void *unexpected(struct parser *p, const char *context, const char *expected)
{
    struct buf shown = {0};
    lexer_describe(&p->lexer, p->t, &shown);
    buf_append_char(&shown, '\0');
    lexer_fail(&p->lexer, p->t.from, "unexpected %s%s%s%s%s", shown.ptr, *context ? " in " : "", context,
        *expected ? ", expected " : "", expected);
    buf_free(&shown);
    return NULL;
}

static struct node *node_new(struct parser *p, enum node_kind kind, enum promql_type type, size_t from)
{
    struct node *n = arena_alloc(p->memory, sizeof *n);
    n->kind = kind;
    n->type = type;
    n->from = from;
    n->to = p->end;
    n->depth = 1;
    return n;
}

/* Sets the arguments of a node. Returns NULL if the expression has failed or becomes too deep. */
static struct node *node_args(struct parser *p, struct node *n, struct node **args, size_t n_args)
{
    if (p->lexer.failed)
        return NULL;
    n->args = arena_alloc(p->memory, n_args * sizeof *args);
    n->n_args = n_args;
    for (size_t i = 0; i < n_args; i++) {
        n->args[i] = args[i];
        n->depth = n->depth > args[i]->depth ? n->depth : args[i]->depth + 1;
    }
    n->to = p->end;
    if (n->depth > PROMQL_DEPTH_MAX)
        lexer_fail(&p->lexer, n->from, "more than %d nested operations", PROMQL_DEPTH_MAX);
    return n;
}

static struct bytes unquote(struct parser *p)
{
    struct buf text = {0};
    if (p->t.type == TOKEN_STRING && !lexer_unquote(text_of(p, p->t), &text))
        lexer_fail(&p->lexer, p->t.from, "invalid escape sequence or character in a string");
    struct bytes copy = arena_copy(p->memory, buf_bytes(&text));
    buf_free(&text);
    advance(p);
    return copy;
}

static int64_t parse_duration(struct parser *p)
{
    int64_t milliseconds = 0;
    struct bytes text = text_of(p, p->t);
    const char *reason = metric_duration_read(text, &milliseconds);
    if (!reason && milliseconds == 0)
        reason = "duration must be greater than 0";
    if (reason)
        lexer_fail(
            &p->lexer, p->t.from, "%s: \"%.*s\"", reason, (int)(text.len > 40 ? 40 : text.len), text.ptr);
    advance(p);
    return milliseconds;
}

static struct label_names parse_names(struct parser *p)
{
    struct label_names list = {0};
    size_t cap = 0;
    struct bytes *names = NULL;
    if (!take(p, '('))
        return unexpected(p, "grouping opts", "\"(\""), list;
    while (p->t.type != ')' && !p->lexer.failed) {
        bool is_word = p->t.type >= TOKEN_AND || p->t.type == TOKEN_IDENTIFIER;
        if (!is_word) {
            unexpected(p, "grouping opts", "label");
            break;
        }
        *ARRAY_ADD(names, list.n, cap) = arena_copy(p->memory, text_of(p, p->t));
        advance(p);
        if (!take(p, ',') && p->t.type != ')')
            unexpected(p, "grouping opts", "\",\" or \")\"");
    }
    take(p, ')');
    list.names = arena_alloc(p->memory, list.n * sizeof *names);
    if (list.n > 0)
        memcpy(list.names, names, list.n * sizeof *names);
    free(names);
    return list;
}

static bool parse_matcher(struct parser *p, struct label_matcher *m)
{
    static const struct {
        int token;
        enum matcher_type type;
    } types[] = {{'=', MATCH_EQUAL}, {TOKEN_NOT_EQUAL, MATCH_NOT_EQUAL}, {TOKEN_MATCH, MATCH_REGEX},
        {TOKEN_NOT_MATCH, MATCH_NOT_REGEX}};
    size_t type = 0;
    if (p->t.type != TOKEN_IDENTIFIER)
        return unexpected(p, "label matching", "identifier or \"}\"");
    m->name = arena_copy(p->memory, text_of(p, p->t));
    advance(p);
    while (type < 4 && types[type].token != p->t.type)
        type++;
    if (type == 4)
        return unexpected(p, "label matching", "label matching operator");
    m->type = types[type].type;
    advance(p);
    if (p->t.type != TOKEN_STRING)
        return unexpected(p, "label matching", "string");
    if (m->type >= MATCH_REGEX && ++p->n_patterns > PROMQL_PATTERNS_MAX)
        lexer_fail(&p->lexer, p->t.from, "more than %d patterns", PROMQL_PATTERNS_MAX);
    m->value = unquote(p);
    return true;
}

static struct node *parse_selector(struct parser *p, struct token name)
{
    struct node *n = node_new(p, NODE_SELECTOR, PROMQL_VECTOR, name.from);
    struct label_matcher *matchers = NULL, *m;
    size_t count = 0, cap = 0;
    if (name.type != TOKEN_END)
        n->name = arena_copy(p->memory, text_of(p, name));
    if (take(p, '{')) {
        while (p->t.type != '}' && !p->lexer.failed) {
            m = ARRAY_ADD(matchers, count, cap);
            if (parse_matcher(p, m) && !take(p, ',') && p->t.type != '}')
                unexpected(p, "label matching", "\",\" or \"}\"");
        }
        take(p, '}');
    }
    if (n->name.ptr)
        *ARRAY_ADD(matchers, count, cap) =
            (struct label_matcher){MATCH_EQUAL, BYTES_LITERAL("__name__"), n->name};
    n->matchers = arena_alloc(p->memory, count * sizeof *matchers);
    n->n_matchers = count;
    if (count > 0)
        memcpy(n->matchers, matchers, count * sizeof *matchers);
    free(matchers);
    n->to = p->end;
    return n;
}

/* Parses (a, b, ...) as the arguments of a node. */
static struct node *parse_arguments(struct parser *p, struct node *n)
{
    struct node **args = NULL;
    size_t count = 0, cap = 0;
    if (!take(p, '('))
        return unexpected(p, n->kind == NODE_AGGREGATE ? "aggregation" : "", "");
    while (p->t.type != ')' && !p->lexer.failed) {
        *ARRAY_ADD(args, count, cap) = parse_operation(p, 0);
        bool comma = take(p, ',');
        if (comma && p->t.type == ')')
            lexer_fail(&p->lexer, p->end - 1, "trailing commas not allowed in function call args");
        else if (!comma && p->t.type != ')')
            unexpected(p, "", "");
    }
    take(p, ')');
    n = node_args(p, n, args, count);
    free(args);
    return n;
}

static struct node *parse_call(struct parser *p, struct token name)
{
    struct node *n = node_new(p, NODE_CALL, PROMQL_VECTOR, name.from);
    struct bytes text = text_of(p, name);
    n->function = promql_function_find(text);
    if (!n->function)
        lexer_fail(&p->lexer, name.from, "unknown function with name \"%.*s\"",
            (int)(text.len > 60 ? 60 : text.len), text.ptr);
    else if (!n->function->args)
        lexer_fail(&p->lexer, name.from, "the function %s is not supported", n->function->name);
    else if (n->function->is_scalar)
        n->type = PROMQL_SCALAR;
    return parse_arguments(p, n);
}

static void parse_grouping(struct parser *p, struct node *n)
{
    n->is_without = p->t.type == TOKEN_WITHOUT;
    advance(p);
    n->labels = parse_names(p);
}

static struct node *parse_aggregate(struct parser *p, struct token name)
{
    struct node *n = node_new(p, NODE_AGGREGATE, PROMQL_VECTOR, name.from);
    bool grouped = p->t.type == TOKEN_BY || p->t.type == TOKEN_WITHOUT;
    n->operation = name.type;
    if (grouped)
        parse_grouping(p, n);
    if (!parse_arguments(p, n))
        return NULL;
    if (!grouped && (p->t.type == TOKEN_BY || p->t.type == TOKEN_WITHOUT))
        parse_grouping(p, n);
    size_t expected = name.type >= TOKEN_TOPK ? 2 : 1;
    if (n->n_args == 0)
        lexer_fail(&p->lexer, n->from, "no arguments for aggregate expression provided");
    else if (n->n_args != expected)
        lexer_fail(&p->lexer, n->from,
            "wrong number of arguments for aggregate expression provided, expected %zu, got %zu", expected,
            n->n_args);
    else if (name.type == TOKEN_COUNT_VALUES)
        lexer_fail(&p->lexer, n->from, "the aggregation count_values is not supported");
    else if (expected == 2) { /* the vector comes first in the tree */
        struct node *parameter = n->args[0];
        n->args[0] = n->args[1];
        n->args[1] = parameter;
    }
    n->to = p->end;
    return n;
}

/* Parses a number with an optional sign, as after @. */
static bool parse_number(struct parser *p, double *number)
{
    bool negative = p->t.type == '-';
    if (negative || p->t.type == '+')
        advance(p);
    if (p->t.type != TOKEN_NUMBER)
        return false;
    if (!lexer_number(text_of(p, p->t), number))
        lexer_fail(&p->lexer, p->t.from, "error parsing number");
    *number = negative ? -*number : *number;
    advance(p);
    return true;
}

static struct node *parse_range(struct parser *p, struct node *of, size_t bracket)
{
    if (p->t.type != TOKEN_DURATION)
        return unexpected(p, "subquery selector", "duration");
    int64_t range = parse_duration(p);
    if (take(p, ':')) {
        struct node *n = node_new(p, NODE_SUBQUERY, PROMQL_MATRIX, of->from);
        n->range = range;
        if (p->t.type == TOKEN_DURATION)
            n->step = parse_duration(p);
        if (!take(p, ']'))
            return unexpected(p, "subquery selector", "duration or \"]\"");
        return node_args(p, n, &of, 1);
    }
    if (!take(p, ']'))
        return unexpected(p, "subquery or range", "\":\" or \"]\"");
    if (of->kind != NODE_SELECTOR || of->in_parens || of->range)
        lexer_fail(&p->lexer, bracket, "ranges only allowed for vector selectors");
    else if (of->offset || of->at)
        lexer_fail(&p->lexer, bracket, "no %s modifiers allowed before range", of->offset ? "offset" : "@");
    of->range = range;
    of->type = PROMQL_MATRIX;
    of->to = p->end;
    return of;
}

static bool takes_modifier(struct parser *p, const struct node *n, const char *modifier, bool is_set)
{
    if ((n->kind != NODE_SELECTOR && n->kind != NODE_SUBQUERY) || n->in_parens)
        lexer_fail(&p->lexer, n->from,
            "%s modifier must be preceded by an instant vector selector or range vector selector or a "
            "subquery",
            modifier);
    else if (is_set)
        lexer_fail(&p->lexer, n->from, "%s may not be set multiple times", modifier);
    return !p->lexer.failed;
}

static struct node *parse_offset(struct parser *p, struct node *n)
{
    bool negative = take(p, '-');
    if (p->t.type != TOKEN_DURATION)
        return unexpected(p, "offset", "duration");
    int64_t offset = parse_duration(p);
    if (!takes_modifier(p, n, "offset", n->offset != 0))
        return NULL;
    n->offset = negative ? -offset : offset;
    return n;
}

static struct node *parse_at(struct parser *p, struct node *n)
{
    double seconds = 0;
    enum at_modifier at = AT_TIME;
    if (p->t.type == TOKEN_START_WORD || p->t.type == TOKEN_END_WORD) {
        at = p->t.type == TOKEN_START_WORD ? AT_START : AT_END;
        advance(p);
        if (!take(p, '(') || !take(p, ')'))
            return unexpected(p, "@", "timestamp");
    } else if (!parse_number(p, &seconds)) {
        return unexpected(p, "@", "timestamp");
    }
    if (!(fabs(seconds) < 9e12)) /* the times that the evaluation adds up */
        lexer_fail(&p->lexer, n->from, "timestamp out of bounds for @ modifier: %f", seconds);
    if (!takes_modifier(p, n, "@", n->at != AT_NONE))
        return NULL;
    n->at = at;
    n->time = (int64_t)round(seconds * 1000);
    return n;
}

static struct node *parse_parens(struct parser *p)
{
    size_t from = p->t.from;
    advance(p);
    struct node *n = parse_operation(p, 0);
    if (!take(p, ')'))
        return unexpected(p, "", "");
    if (n) {
        n->in_parens = true;
        n->from = from;
        n->to = p->end;
    }
    return n;
}

static struct node *parse_primary(struct parser *p)
{
    struct token t = p->t;
    struct node *n;
    if (t.type == '(')
        return parse_parens(p);
    if (t.type == '{')
        return parse_selector(p, (struct token){TOKEN_END, t.from, t.from});
    if (t.type == TOKEN_NUMBER) {
        n = node_new(p, NODE_NUMBER, PROMQL_SCALAR, t.from);
        parse_number(p, &n->number);
        n->to = p->end;
        return n;
    }
    if (t.type == TOKEN_STRING) {
        n = node_new(p, NODE_STRING, PROMQL_STRING, t.from);
        n->text = unquote(p);
        n->to = p->end;
        return n;
    }
    bool is_name = t.type == TOKEN_IDENTIFIER || t.type == TOKEN_METRIC_IDENTIFIER || token_is_set(t.type) ||
                   token_is_aggregation(t.type) || (t.type >= TOKEN_OFFSET && t.type <= TOKEN_WITHOUT) ||
                   t.type >= TOKEN_START_WORD;
    if (!is_name || p->lexer.failed)
        return unexpected(p, "", "");
    advance(p);
    if (token_is_aggregation(t.type) &&
        (p->t.type == '(' || p->t.type == TOKEN_BY || p->t.type == TOKEN_WITHOUT))
        return parse_aggregate(p, t);
    if (t.type == TOKEN_IDENTIFIER && p->t.type == '(')
        return parse_call(p, t);
    return parse_selector(p, t);
}

static struct node *parse_postfix(struct parser *p)
{
    struct node *n = parse_primary(p);
    while (n && !p->lexer.failed) {
        size_t from = p->t.from;
        if (take(p, '['))
            n = parse_range(p, n, from);
        else if (take(p, TOKEN_OFFSET))
            n = parse_offset(p, n);
        else if (take(p, '@'))
            n = parse_at(p, n);
        else
            break;
        if (n)
            n->to = p->end;
    }
    return n;
}

#define PRECEDENCE_UNARY 5

static int precedence(int type)
{
    if (type == TOKEN_OR)
        return 1;
    if (token_is_set(type))
        return 2;
    if (token_is_comparison(type))
        return 3;
    if (type == '+' || type == '-')
        return 4;
    if (type == '*' || type == '/' || type == '%' || type == TOKEN_ATAN2)
        return PRECEDENCE_UNARY;
    return type == '^' ? 6 : -1;
}

static struct node *parse_unary(struct parser *p)
{
    struct token sign = p->t;
    if (sign.type != '-' && sign.type != '+')
        return parse_postfix(p);
    advance(p);
    struct node *of = parse_operation(p, PRECEDENCE_UNARY + 1);
    if (!of)
        return NULL;
    if (of->kind == NODE_NUMBER && !of->in_parens) {
        of->number = sign.type == '-' ? -of->number : of->number;
        of->from = sign.from;
        return of;
    }
    struct node *n = node_new(p, NODE_NEGATE, of->type, sign.from);
    n->operation = sign.type;
    return node_args(p, n, &of, 1);
}

static void parse_matching(struct parser *p, struct node *n)
{
    n->is_bool = take(p, TOKEN_BOOL);
    if (p->t.type != TOKEN_ON && p->t.type != TOKEN_IGNORING)
        return;
    n->has_matching = true;
    n->is_on = p->t.type == TOKEN_ON;
    advance(p);
    n->labels = parse_names(p);
    if (p->t.type != TOKEN_GROUP_LEFT && p->t.type != TOKEN_GROUP_RIGHT)
        return;
    n->side = p->t.type == TOKEN_GROUP_LEFT ? MATCH_GROUP_LEFT : MATCH_GROUP_RIGHT;
    advance(p);
    if (p->t.type == '(')
        n->include = parse_names(p);
}

/* Parses operations of at least this precedence. */
static struct node *parse_operation(struct parser *p, int least)
{
    if (++p->depth > PROMQL_DEPTH_MAX)
        lexer_fail(&p->lexer, p->t.from, "more than %d nested operations", PROMQL_DEPTH_MAX);
    struct node *left = p->lexer.failed ? NULL : parse_unary(p);
    while (left && !p->lexer.failed && precedence(p->t.type) >= (least > 0 ? least : 1)) {
        struct token t = p->t;
        int level = precedence(t.type);
        advance(p);
        struct node *n = node_new(p, NODE_BINARY, PROMQL_VECTOR, left->from);
        n->operation = t.type;
        parse_matching(p, n);
        struct node *right = parse_operation(p, t.type == '^' ? level : level + 1);
        if (left->type == PROMQL_SCALAR && right && right->type == PROMQL_SCALAR)
            n->type = PROMQL_SCALAR;
        left = node_args(p, n, (struct node *[]){left, right}, 2);
    }
    p->depth--;
    return p->lexer.failed ? NULL : left;
}

static struct promql *parse(struct bytes text, struct error *error)
{
    struct promql *query = mem_zalloc(sizeof *query);
    struct parser p = {.lexer = {.text = text, .error = error}, .memory = &query->memory};
    error->code = PROMQL_BAD_QUERY;
    if (text.len > PROMQL_TEXT_MAX)
        lexer_fail(&p.lexer, 0, "the expression has more than %zu bytes", PROMQL_TEXT_MAX);
    advance(&p);
    if (p.t.type == TOKEN_END)
        lexer_fail(&p.lexer, 0, "no expression found in input");
    query->root = parse_operation(&p, 0);
    if (query->root && p.t.type != TOKEN_END)
        unexpected(&p, "", "");
    if (!p.lexer.failed && promql_check(query->root, &p.lexer))
        return query;
    promql_free(&query);
    return NULL;
}

struct promql *promql_parse(struct bytes text, struct error *error)
{
    return parse(text, error);
}

struct promql *promql_parse_selector(
    struct bytes text, const struct label_matcher **matchers, size_t *n_matchers, struct error *error)
{
    struct promql *query = parse(text, error);
    struct node *n = query ? query->root : NULL;
    if (n && (n->kind != NODE_SELECTOR || n->range || n->offset || n->at || n->in_parens)) {
        error_set(error, PROMQL_BAD_QUERY, "1:1: parse error: not a selector of series");
        promql_free(&query);
    }
    if (query) {
        *matchers = n->matchers;
        *n_matchers = n->n_matchers;
    }
    return query;
}

enum promql_type promql_type(const struct promql *query)
{
    return query->root->type;
}

void promql_free(struct promql **query)
{
    if (!*query)
        return;
    arena_free(&(*query)->memory);
    free(*query);
    *query = NULL;
}
