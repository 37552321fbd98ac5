/* promql_lexer: the tokens of an expression.
 *
 * 1. A token of one character has this character as its type; other types start at 256.
 * 2. A keyword is recognized only outside braces, in upper and in lower case.
 * 3. The first error is final: it is kept in `error`, and each further token is TOKEN_END. */
#ifndef MILLRACE_PROMQL_LEXER_H
#define MILLRACE_PROMQL_LEXER_H

#include "base/bytes.h"
#include "base/error.h"

enum token_type {
    TOKEN_END = 256,
    TOKEN_IDENTIFIER,
    TOKEN_METRIC_IDENTIFIER, /* an identifier with a colon */
    TOKEN_NUMBER,
    TOKEN_DURATION,
    TOKEN_STRING,
    TOKEN_EQUAL, /* == */
    TOKEN_NOT_EQUAL,
    TOKEN_LESS_EQUAL,
    TOKEN_GREATER_EQUAL,
    TOKEN_MATCH, /* =~ */
    TOKEN_NOT_MATCH,
    TOKEN_AND,
    TOKEN_OR,
    TOKEN_UNLESS,
    TOKEN_ATAN2,
    TOKEN_SUM, /* the aggregations, up to TOKEN_QUANTILE */
    TOKEN_AVG,
    TOKEN_COUNT,
    TOKEN_MIN,
    TOKEN_MAX,
    TOKEN_GROUP,
    TOKEN_STDDEV,
    TOKEN_STDVAR,
    TOKEN_TOPK,
    TOKEN_BOTTOMK,
    TOKEN_COUNT_VALUES,
    TOKEN_QUANTILE,
    TOKEN_OFFSET, /* other words, up to TOKEN_END_WORD */
    TOKEN_BY,
    TOKEN_WITHOUT,
    TOKEN_ON,
    TOKEN_IGNORING,
    TOKEN_GROUP_LEFT,
    TOKEN_GROUP_RIGHT,
    TOKEN_BOOL,
    TOKEN_START_WORD,
    TOKEN_END_WORD,
};

struct token {
    int type;
    size_t from, to; /* positions in the text */
};

struct lexer {
    struct bytes text;
    size_t at;
    size_t n_parens;
    bool in_braces, in_brackets, expects_duration, failed;
    struct error *error;
};

static inline bool token_is_comparison(int type)
{
    return type == '<' || type == '>' || (type >= TOKEN_EQUAL && type <= TOKEN_GREATER_EQUAL);
}
static inline bool token_is_set(int type)
{
    return type >= TOKEN_AND && type <= TOKEN_UNLESS;
}
static inline bool token_is_aggregation(int type)
{
    return type >= TOKEN_SUM && type <= TOKEN_QUANTILE;
}
/* Writes the text of a keyword. */
const char *token_word(int type);

struct token lexer_next(struct lexer *l);
/* Sets the error "LINE:COLUMN: parse error: REASON", unless the lexer has one. */
void lexer_fail(struct lexer *l, size_t position, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* Writes the token as errors name it: identifier "foo", <op:*>. */
void lexer_describe(const struct lexer *l, struct token t, struct buf *out);

/* Reads decimal, hexadecimal and octal numbers, Inf and NaN. */
bool lexer_number(struct bytes text, double *number);
/* Appends the text of a string with its quotes. Returns false at an invalid escape sequence. */
bool lexer_unquote(struct bytes text, struct buf *out);

#endif
