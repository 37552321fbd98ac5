/* promql_tree: a parsed and checked expression, as the evaluation reads it.
 *
 * 1. Each node's type is known, and its arguments have the types that its operation needs.
 * 2. Parentheses have no node. A unary plus and the sign of a number have none, either.
 * 3. All memory belongs to the arena of the expression. */
#ifndef MILLRACE_PROMQL_TREE_H
#define MILLRACE_PROMQL_TREE_H

#include "promql/promql.h"
#include "promql/promql_arena.h"

enum node_kind {
    NODE_NUMBER,
    NODE_STRING,
    NODE_SELECTOR,  /* a matrix if `range` is above 0 */
    NODE_SUBQUERY,  /* args: the expression */
    NODE_NEGATE,    /* args: the operand */
    NODE_BINARY,    /* args: left, right */
    NODE_CALL,      /* args: the arguments */
    NODE_AGGREGATE, /* args: the vector, and the parameter if the operation has one */
};

enum match_side { MATCH_ONE_TO_ONE, MATCH_GROUP_LEFT, MATCH_GROUP_RIGHT };
enum at_modifier { AT_NONE, AT_TIME, AT_START, AT_END };

struct label_names {
    struct bytes *names;
    size_t n;
};

struct node {
    enum node_kind kind;
    enum promql_type type;
    bool in_parens;
    size_t from, to; /* positions in the text */
    unsigned depth;
    struct node **args;
    size_t n_args;

    double number;
    struct bytes text; /* of a string */

    struct label_matcher *matchers; /* of a selector */
    size_t n_matchers;
    struct bytes name;                 /* in front of the braces; also in the matchers */
    int64_t range, offset, step, time; /* milliseconds; step 0: a minute */
    enum at_modifier at;

    const struct promql_function *function;

    int operation;          /* a token_type, of a binary operation or an aggregation */
    bool is_without, is_on; /* the labels are those of `without`, and of `on` */
    bool has_matching;      /* `on` or `ignoring` is present */
    bool is_bool;           /* a comparison answers 0 or 1 */
    enum match_side side;
    struct label_names labels;  /* of by, without, on and ignoring */
    struct label_names include; /* of group_left and group_right */
};

struct promql {
    struct arena memory;
    struct node *root;
};

/* Checks the types of a node and of the nodes below it, and the rules that the grammar does not express. The error is that of the
 * lexer. */
struct lexer;
bool promql_check(const struct node *n, struct lexer *lexer);

#endif
