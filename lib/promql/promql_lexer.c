#include "promql/promql_lexer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

static const struct {
    const char *text;
    int type;
} words[] = {
    {"and", TOKEN_AND},
    {"or", TOKEN_OR},
    {"unless", TOKEN_UNLESS},
    {"atan2", TOKEN_ATAN2},
    {"sum", TOKEN_SUM},
    {"avg", TOKEN_AVG},
    {"count", TOKEN_COUNT},
    {"min", TOKEN_MIN},
    {"max", TOKEN_MAX},
    {"group", TOKEN_GROUP},
    {"stddev", TOKEN_STDDEV},
    {"stdvar", TOKEN_STDVAR},
    {"topk", TOKEN_TOPK},
    {"bottomk", TOKEN_BOTTOMK},
    {"count_values", TOKEN_COUNT_VALUES},
    {"quantile", TOKEN_QUANTILE},
    {"offset", TOKEN_OFFSET},
    {"by", TOKEN_BY},
    {"without", TOKEN_WITHOUT},
    {"on", TOKEN_ON},
    {"ignoring", TOKEN_IGNORING},
    {"group_left", TOKEN_GROUP_LEFT},
    {"group_right", TOKEN_GROUP_RIGHT},
    {"bool", TOKEN_BOOL},
    {"start", TOKEN_START_WORD},
    {"end", TOKEN_END_WORD},
    {"inf", TOKEN_NUMBER},
    {"nan", TOKEN_NUMBER},
};

const char *token_word(int type)
{
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (words[i].type == type)
            return words[i].text;
    return "";
}

void lexer_fail(struct lexer *l, size_t position, const char *fmt, ...)
{
    size_t line = 1, column = 1;
    char reason[300];
    va_list ap;
    if (l->failed)
        return;
    l->failed = true;
    for (size_t i = 0; i < position && i < l->text.len; i++, column++)
        if (l->text.ptr[i] == '\n') {
            line++;
            column = 0;
        }
    va_start(ap, fmt);
    vsnprintf(reason, sizeof reason, fmt, ap);
    va_end(ap);
    error_set(l->error, l->error->code, "%zu:%zu: parse error: %s", line, column, reason);
}

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_alpha(char c)
{
    return c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static char peek(const struct lexer *l)
{
    return l->at < l->text.len ? l->text.ptr[l->at] : '\0';
}

static bool accept(struct lexer *l, const char *any)
{
    char c = peek(l);
    if (c == '\0' || !strchr(any, c))
        return false;
    l->at++;
    return true;
}

static void accept_run(struct lexer *l, const char *any)
{
    while (accept(l, any))
        continue;
}

static void skip_space(struct lexer *l)
{
    while (l->at < l->text.len && (is_space(peek(l)) || peek(l) == '#'))
        if (l->text.ptr[l->at++] == '#')
            while (l->at < l->text.len && peek(l) != '\n' && peek(l) != '\r')
                l->at++;
}

static struct token token_of(const struct lexer *l, int type, size_t from)
{
    return (struct token){type, from, l->at};
}

static struct token refuse(struct lexer *l, size_t from, const char *what)
{
    struct buf shown = {0};
    buf_append_printable(&shown, bytes_of(l->text.ptr + from, l->at - from));
    buf_append_char(&shown, '\0');
    if (what[strlen(what) - 1] == ' ')
        lexer_fail(l, from, shown.len == 2 ? "%s'%s'" : "%s\"%s\"", what, shown.ptr);
    else
        lexer_fail(l, from, "%s", what);
    buf_free(&shown);
    return token_of(l, TOKEN_END, from);
}

/* Reads a number, which may be the beginning of a duration: then the result is false. */
static bool scan_number(struct lexer *l)
{
    const char *digits = "0123456789";
    if (accept(l, "0") && accept(l, "xX"))
        digits = "0123456789abcdefABCDEF";
    accept_run(l, digits);
    if (accept(l, "."))
        accept_run(l, digits);
    if (accept(l, "eE")) {
        accept(l, "+-");
        accept_run(l, "0123456789");
    }
    return !is_alpha(peek(l)) && !is_digit(peek(l));
}

static bool scan_duration(struct lexer *l)
{
    do {
        accept_run(l, "0123456789");
        if (!accept(l, "smhdwy"))
            return false;
        accept(l, "s");
    } while (is_digit(peek(l)));
    return !is_alpha(peek(l));
}

static struct token lex_number(struct lexer *l, size_t from)
{
    bool only_duration = l->expects_duration;
    l->expects_duration = false;
    bool is_number = scan_number(l);
    if (is_number && only_duration)
        return refuse(l, from, "missing unit character in duration");
    if (is_number)
        return token_of(l, TOKEN_NUMBER, from);
    if (scan_duration(l))
        return token_of(l, TOKEN_DURATION, from);
    return refuse(l, from, only_duration ? "bad duration syntax: " : "bad number or duration syntax: ");
}

static struct token lex_string(struct lexer *l, size_t from, char quote)
{
    for (; l->at < l->text.len && peek(l) != quote; l->at++) {
        if (quote != '`' && peek(l) == '\\')
            l->at++;
        else if (quote != '`' && peek(l) == '\n')
            break;
    }
    if (l->at >= l->text.len || peek(l) != quote) {
        l->at = l->at > l->text.len ? l->text.len : l->at;
        return refuse(l, from, quote == '`' ? "unterminated raw string" : "unterminated quoted string");
    }
    l->at++;
    if (!bytes_is_utf8(bytes_of(l->text.ptr + from, l->at - from)))
        return refuse(l, from, "invalid UTF-8 rune");
    return token_of(l, TOKEN_STRING, from);
}

static struct token lex_word(struct lexer *l, size_t from)
{
    bool has_colon = false;
    while (is_alpha(peek(l)) || is_digit(peek(l)) || (peek(l) == ':' && !l->in_braces))
        has_colon |= l->text.ptr[l->at++] == ':';
    struct bytes word = bytes_of(l->text.ptr + from, l->at - from);
    for (size_t i = 0; i < sizeof words / sizeof *words && !l->in_braces; i++)
        if (word.len == strlen(words[i].text) && strncasecmp(word.ptr, words[i].text, word.len) == 0)
            return token_of(l, words[i].type, from);
    return token_of(l, has_colon ? TOKEN_METRIC_IDENTIFIER : TOKEN_IDENTIFIER, from);
}

/* The operators of two characters. In braces, only those of matchers. */
static struct token lex_operator(struct lexer *l, size_t from, char c)
{
    bool equal = peek(l) == '=' && !(l->in_braces && c == '='), match = peek(l) == '~';
    int type = (unsigned char)c;
    if (c == '=')
        type = equal ? TOKEN_EQUAL : match ? TOKEN_MATCH : '=';
    else if (c == '<')
        type = equal ? TOKEN_LESS_EQUAL : '<';
    else if (c == '>')
        type = equal ? TOKEN_GREATER_EQUAL : '>';
    else if (c == '!')
        type = equal ? TOKEN_NOT_EQUAL : match ? TOKEN_NOT_MATCH : '!';
    if (type == '!' || (!l->in_braces && (type == TOKEN_MATCH || type == TOKEN_NOT_MATCH))) {
        l->at += l->at < l->text.len;
        return refuse(
            l, from, c == '!' ? "unexpected character after '!': " : "unexpected character after '=': ");
    }
    l->at += type != c;
    return token_of(l, type, from);
}

/* Keeps the state that a bracket changes. Returns false if the bracket closes nothing. */
static bool track_bracket(struct lexer *l, char c)
{
    bool fits = true;
    if (c == '(')
        l->n_parens++;
    else if (c == ')')
        fits = l->n_parens > 0 && l->n_parens--;
    else if (c == '[') {
        fits = !l->in_brackets;
        l->in_brackets = l->expects_duration = true;
    } else if (c == ']') {
        fits = l->in_brackets;
        l->in_brackets = l->expects_duration = false;
    } else if (c == '{' || c == '}') {
        fits = l->in_braces == (c == '}');
        l->in_braces = c == '{';
    }
    return fits;
}

static struct token lex_end(struct lexer *l)
{
    if (l->in_braces)
        return refuse(l, l->at, "unexpected end of input inside braces");
    if (l->n_parens > 0)
        return refuse(l, l->at, "unclosed left parenthesis");
    if (l->in_brackets)
        return refuse(l, l->at, "unclosed left bracket");
    return token_of(l, TOKEN_END, l->at);
}

struct token lexer_next(struct lexer *l)
{
    if (!l->failed)
        skip_space(l);
    size_t from = l->at;
    if (l->failed)
        return (struct token){TOKEN_END, from, from};
    if (l->at == l->text.len)
        return lex_end(l);
    char c = peek(l);
    if ((is_digit(c) || l->expects_duration ||
            (c == '.' && l->at + 1 < l->text.len && is_digit(l->text.ptr[l->at + 1]))) &&
        !l->in_braces)
        return lex_number(l, from);
    l->at++;
    if (c == '"' || c == '\'' || c == '`')
        return lex_string(l, from, c);
    if (is_alpha(c) || (c == ':' && !l->in_braces && !l->in_brackets))
        return lex_word(l, from);
    if (c != '\0' && strchr("(){}[]", c))
        return track_bracket(l, c) ? token_of(l, c, from) : refuse(l, from, "unexpected bracket: ");
    if (c != '\0' && strchr("=<>!", c) && !(l->in_braces && (c == '<' || c == '>')))
        return lex_operator(l, from, c);
    if (c == ',' || (c != '\0' && !l->in_braces && strchr("+-*/%^@:", c)))
        return token_of(l, c, from);
    return refuse(l, from, l->in_braces ? "unexpected character inside braces: " : "unexpected character: ");
}

void lexer_describe(const struct lexer *l, struct token t, struct buf *out)
{
    struct bytes text = bytes_of(l->text.ptr + t.from, t.to - t.from);
    const char *kind = t.type == TOKEN_IDENTIFIER          ? "identifier "
                       : t.type == TOKEN_METRIC_IDENTIFIER ? "metric identifier "
                       : t.type == TOKEN_NUMBER            ? "number "
                       : t.type == TOKEN_DURATION          ? "duration "
                       : t.type == TOKEN_STRING            ? "string "
                                                           : "";
    bool is_operator = (t.type >= TOKEN_EQUAL && t.type <= TOKEN_ATAN2) ||
                       (t.type < TOKEN_END && strchr("+-*/%^<>", t.type));
    bool is_word = t.type >= TOKEN_SUM;
    const char *opens = is_operator ? "<op:" : !is_word ? "\"" : t.type <= TOKEN_QUANTILE ? "<aggr:" : "<";
    if (t.type == TOKEN_END) {
        buf_append_str(out, "end of input");
        return;
    }
    buf_append_str(out, kind);
    buf_append_str(out, opens);
    buf_append_printable(out, bytes_of(text.ptr, text.len > 100 ? 100 : text.len));
    buf_append_str(out, is_operator || is_word ? ">" : "\"");
}

bool lexer_number(struct bytes text, double *number)
{
    char digits[400], *end;
    bool is_word = text.len > 0 && strchr("iInN", text.ptr[0]);
    if (text.len == 0 || text.len >= sizeof digits || is_space(text.ptr[0]))
        return false;
    memcpy(digits, text.ptr, text.len);
    digits[text.len] = '\0';
    if (digits[0] == '0' && strlen(digits) > 1 && strspn(digits, "01234567") == text.len) {
        *number = (double)strtoull(digits, &end, 8);
        return *end == '\0';
    }
    *number = strtod(digits, &end);
    return *end == '\0' && (is_word || isfinite(*number));
}

/* Reads n digits of a base. Returns false if there are fewer or the number is too large. */
static bool read_code(struct bytes text, size_t *at, int n, unsigned base, uint32_t max, uint32_t *code)
{
    for (*code = 0; n > 0; n--, (*at)++) {
        int d = *at < text.len ? bytes_hex_digit(text.ptr[*at]) : -1;
        if (d < 0 || (unsigned)d >= base)
            return false;
        *code = *code * base + (unsigned)d;
    }
    return *code <= max && (*code < 0xd800 || *code >= 0xe000);
}

bool lexer_unquote(struct bytes text, struct buf *out)
{
    static const char escapes[] = "abfnrtv\\";
    char quote = text.ptr[0];
    text = bytes_of(text.ptr + 1, text.len - 2);
    for (size_t i = 0; i < text.len;) {
        uint32_t code;
        char c = text.ptr[i++];
        if (c != '\\' || quote == '`') {
            buf_append_char(out, c);
            continue;
        }
        c = text.ptr[i++];
        const char *escape = c ? strchr(escapes, c) : NULL;
        if (c == quote) {
            buf_append_char(out, c);
        } else if (escape) {
            buf_append_char(out, "\a\b\f\n\r\t\v\\"[escape - escapes]);
        } else if (c == 'x' || (c >= '0' && c <= '7')) {
            i -= c != 'x';
            if (!read_code(text, &i, c == 'x' ? 2 : 3, c == 'x' ? 16 : 8, 255, &code))
                return false;
            buf_append_char(out, (char)code);
        } else if (c == 'u' || c == 'U') {
            if (!read_code(text, &i, c == 'u' ? 4 : 8, 16, 0x10ffff, &code))
                return false;
            buf_append_utf8(out, code);
        } else {
            return false;
        }
    }
    return bytes_is_utf8(buf_bytes(out));
}
