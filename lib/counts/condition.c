#include "counts/condition.h"

#include "counts/key_text.h"
#include "counts/text_pattern.h"
#include "json/json_path.h"

#include <assert.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>

#define NUMBER_TEXT_MAX 63 /* longest text that is read as a number, in bytes */
#define FOUND_MAX 40       /* bytes of the condition that an error quotes */
#define BLANKS " \t"
#define OPERATOR_BYTES "=!<>~&|"
#define NAME_END BLANKS OPERATOR_BYTES ".,[]()\"" /* bytes that end a name */

/* Comparisons are exact, because a long double holds every 64-bit integer and every double. */
static_assert(LDBL_MANT_DIG >= 64, "a long double holds 64-bit integers");

enum kind { AND, OR, NOT, PRESENT, EQUAL, LESS, LESS_EQUAL, GREATER, GREATER_EQUAL, MATCHES };

struct value {
    enum { VALUE_TEXT, VALUE_NUMBER, VALUE_NULL } kind;
    long double number;
    char *text;
    size_t len;
};

/* The steps set the result one after another. A test sets the result, and NOT negates the result. AND continues at step
 * `to` if the result is false, and OR if the result is true. */
struct step {
    enum kind kind;
    size_t to;
    size_t field;                        /* index of the tested field */
    const struct key_function *function; /* NULL: the value of the field itself */
    char *argument;
    struct value *values; /* EQUAL: true if any of the values is equal */
    size_t n_values, values_room;
    bool has_texts, has_numbers; /* whether any of the values is a text or a number */
    struct text_pattern *pattern;
};

struct condition {
    struct step *steps;
    char **fields;
    size_t n_steps, steps_room, n_fields, fields_room;
    struct buf space; /* result of a function */
    size_t read;      /* bytes that functions have read in the present test */
};

struct parser {
    struct condition *c;
    const char *begin, *at, *end;
    size_t levels, n_fields, n_patterns;
    struct error *error;
};

static bool is_among(char c, const char *list)
{
    return c != '\0' && strchr(list, c);
}

static void skip_blanks(struct parser *p)
{
    while (p->at < p->end && is_among(*p->at, BLANKS))
        p->at++;
}

static bool take_char(struct parser *p, char c)
{
    skip_blanks(p);
    bool found = p->at < p->end && *p->at == c;
    p->at += found;
    return found;
}

static size_t length_until(const struct parser *p, const char *stops)
{
    size_t n = 0;
    while (p->at + n < p->end && !is_among(p->at[n], stops))
        n++;
    return n;
}

static struct bytes operator_at(const struct parser *p)
{
    size_t n = 0;
    while (p->at + n < p->end && is_among(p->at[n], OPERATOR_BYTES))
        n++;
    return bytes_of(p->at, n);
}

/* Returns the operator of this grammar for one of another language (`and` for `&&`), or NULL. */
static const char *meant_by(struct bytes found)
{
    static const char *const others[][2] = {{"==", "="}, {"===", "="}, {"<>", "!="}, {"!==", "!="},
        {"=<", "<="}, {"=>", ">="}, {"=~", "~"}, {"~=", "~"}, {"!", "not"}, {"&", "and"}, {"&&", "and"},
        {"|", "or"}, {"||", "or"}, {"is", "="}, {"eq", "="}, {"ne", "!="}, {"lt", "<"}, {"le", "<="},
        {"gt", ">"}, {"ge", ">="}, {"like", "~"}, {"matches", "~"}, {"contains", "~"}, {"and", "and"},
        {"or", "or"}, {"not", "not"}, {"in", "in"}};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (bytes_equal_nocase(found, bytes_str(others[i][0])) && !bytes_equal_str(found, others[i][1]))
            return others[i][1];
    return NULL;
}

static size_t column_of(const struct parser *p)
{
    size_t column = 1;
    for (const char *c = p->begin; c < p->at; c++)
        column += (*c & 0xc0) != 0x80;
    return column;
}

/* Sets the error: the column, the expected text, and the text found there. Returns false. */
static bool fail(struct parser *p, const char *expected)
{
    struct bytes found = operator_at(p);
    if (found.len == 0)
        found.len = length_until(p, NAME_END);
    const char *meant = found.len > 0 ? meant_by(found) : NULL;
    if (found.len == 0) /* the byte begins no word */
        found.len = p->at < p->end;
    if (found.len > FOUND_MAX)
        for (found.len = FOUND_MAX; (found.ptr[found.len] & 0xc0) == 0x80;)
            found.len--;
    if (found.len == 0)
        error_set(p->error, -1, "column %zu: expected %s at the end", column_of(p), expected);
    else
        error_set(p->error, -1, "column %zu: expected %s, not %.*s%s%s%s", column_of(p), expected,
            (int)found.len, found.ptr, meant ? " (did you mean " : "", meant ? meant : "", meant ? "?)" : "");
    return false;
}

static bool fail_at(struct parser *p, const char *at, const char *expected)
{
    p->at = at;
    return fail(p, expected);
}

static bool take_keyword(struct parser *p, const char *word)
{
    skip_blanks(p);
    const char *after = p->at + strlen(word);
    bool found = bytes_starts_with(bytes_of(p->at, (size_t)(p->end - p->at)), bytes_str(word)) &&
                 (after == p->end || (is_among(*after, NAME_END) && !is_among(*after, ".[")));
    p->at += found ? strlen(word) : 0;
    return found;
}

static struct step *add_step(struct condition *c, enum kind kind)
{
    struct step *s = ARRAY_ADD(c->steps, c->n_steps, c->steps_room);
    *s = (struct step){.kind = kind};
    return s;
}

static size_t index_of_field(struct condition *c, struct bytes path)
{
    for (size_t i = 0; i < c->n_fields; i++)
        if (bytes_equal_str(path, c->fields[i]))
            return i;
    *ARRAY_ADD(c->fields, c->n_fields, c->fields_room) = bytes_dup(path);
    return c->n_fields - 1;
}

static bool take_path(struct parser *p, struct bytes *path)
{
    static const char *const words[] = {"and", "or", "not", "in"};
    skip_blanks(p);
    const char *begin = p->at;
    for (bool more = true; more;) {
        size_t left = (size_t)(p->end - p->at);
        bool is_bracket = left > 0 && *p->at == '[', is_quoted = is_bracket && left > 1 && p->at[1] == '"';
        const char *close = is_bracket ? memmem(p->at, left, is_quoted ? "\"]" : "]", 1 + is_quoted) : NULL;
        p->at = close ? close + 1 + is_quoted : p->at + length_until(p, NAME_END);
        more = p->at < p->end && (*p->at == '.' || (*p->at == '[' && (close || !is_bracket)));
        p->at += more && *p->at == '.';
    }
    *path = bytes_of(begin, (size_t)(p->at - begin));
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (bytes_equal_str(*path, words[i]))
            return fail_at(p, begin, "a field");
    return json_path_is_valid(*path) || fail_at(p, begin, "a field");
}

static bool take_subject(struct parser *p, struct step *s)
{
    struct bytes path, field, argument;
    if (!take_path(p, &path))
        return false;
    if (p->at < p->end && *p->at == '(') {
        const char *begin = path.ptr;
        p->at++;
        if (!take_path(p, &path))
            return false;
        if (take_char(p, ','))
            p->at += length_until(p, ")");
        if (!take_char(p, ')'))
            return fail(p, ")");
        s->function = key_function_parse(bytes_of(begin, (size_t)(p->at - begin)), &field, &argument);
        if (!s->function || !bytes_equal(field, path))
            return fail_at(p, begin, "a field or " KEY_FUNCTIONS);
        s->argument = bytes_dup(argument);
    }
    size_t before = p->c->n_fields;
    s->field = index_of_field(p->c, path);
    p->n_fields += p->c->n_fields > before;
    return p->n_fields <= CONDITION_FIELDS_MAX || fail_at(p, path.ptr, "fewer different fields");
}

static size_t digits_at(struct bytes text, size_t at)
{
    size_t n = 0;
    while (at + n < text.len && text.ptr[at + n] >= '0' && text.ptr[at + n] <= '9')
        n++;
    return n;
}

/* Reads a text that has the form of a JSON number. */
static bool read_number(struct bytes text, long double *out)
{
    char copy[NUMBER_TEXT_MAX + 1];
    size_t at = text.len > 0 && text.ptr[0] == '-', whole = digits_at(text, at), n = 1;
    int64_t i64;
    uint64_t u64;
    if (whole == 0 || (whole > 1 && text.ptr[at] == '0') || text.len > NUMBER_TEXT_MAX)
        return false;
    at += whole;
    if (at == text.len && bytes_to_i64(text, &i64)) {
        *out = i64;
        return true;
    }
    if (at == text.len && bytes_to_u64(text, &u64)) {
        *out = u64;
        return true;
    }
    if (at < text.len && text.ptr[at] == '.')
        at += 1 + (n = digits_at(text, at + 1));
    if (n > 0 && at < text.len && (text.ptr[at] | 0x20) == 'e') {
        at++;
        at += at < text.len && is_among(text.ptr[at], "+-");
        at += n = digits_at(text, at);
    }
    if (n == 0 || at != text.len)
        return false;
    memcpy(copy, text.ptr, text.len);
    copy[text.len] = '\0';
    *out = strtod(copy, NULL);
    return isfinite(*out);
}

/* True for a whole number beyond 64 bits, such as the number of a card. As a double, it would be equal to its
 * neighbours. */
static bool is_beyond_64_bits(struct bytes text)
{
    int64_t i64;
    uint64_t u64;
    size_t begin = text.len > 0 && text.ptr[0] == '-';
    return text.len > 0 && begin + digits_at(text, begin) == text.len && !bytes_to_i64(text, &i64) &&
           !bytes_to_u64(text, &u64);
}

/* Appends a text in quotes without its quotes. */
static bool take_quoted(struct parser *p, struct buf *out)
{
    const char *begin = p->at++;
    while (p->at < p->end && *p->at != '"') {
        p->at += *p->at == '\\' && p->at + 1 < p->end && is_among(p->at[1], "\"\\");
        buf_append_char(out, *p->at++);
    }
    if (p->at == p->end)
        return fail_at(p, begin, "a text with a closing quote");
    p->at++;
    return true;
}

static bool take_word(struct parser *p, const char *stops, struct buf *out)
{
    const char *begin = p->at;
    size_t open = 0;
    while (p->at < p->end && !is_among(*p->at, stops) && (*p->at != ')' || open > 0)) {
        open += *p->at == '(';
        open -= *p->at == ')';
        if (*p->at == '\\' && ++p->at == p->end)
            return fail_at(p, begin, "quotes around a text with \\ at the end");
        p->at++;
    }
    buf_append(out, begin, (size_t)(p->at - begin));
    return open == 0 || fail_at(p, begin, "quotes around a text with a single (");
}

/* Takes a word or a text in quotes. The text ends with a NUL, which `text` does not count. */
static bool take_text(
    struct parser *p, const char *expected, const char *stops, struct buf *text, bool *is_quoted)
{
    skip_blanks(p);
    *is_quoted = p->at < p->end && *p->at == '"';
    if (p->at < p->end && *p->at == '\'')
        return fail(p, "double quotes");
    if (!(*is_quoted ? take_quoted(p, text) : take_word(p, stops, text)))
        return false;
    if (text->len == 0 && !*is_quoted)
        return fail(p, expected);
    buf_append_char(text, '\0');
    text->len--;
    return true;
}

static bool take_value(struct parser *p, struct step *s, const char *stops)
{
    const char *expected = s->kind == EQUAL ? "a value" : "a number", *begin;
    struct buf text = {0};
    bool is_quoted = false;
    skip_blanks(p);
    begin = p->at;
    struct value *v = ARRAY_ADD(s->values, s->n_values, s->values_room);
    *v = (struct value){.kind = VALUE_TEXT};
    bool ok = begin < p->end && *begin == '(' ? fail(p, "a value without parentheses")
                                              : take_text(p, expected, stops, &text, &is_quoted);
    v->text = text.ptr;
    v->len = text.len;
    if (ok && !is_quoted && bytes_equal_str(buf_bytes(&text), "null"))
        v->kind = VALUE_NULL;
    else if (ok && s->kind == EQUAL && (is_quoted || is_beyond_64_bits(buf_bytes(&text))))
        v->kind = VALUE_TEXT;
    else if (ok && read_number(buf_bytes(&text), &v->number))
        v->kind = VALUE_NUMBER;
    if (ok && s->kind != EQUAL && v->kind != VALUE_NUMBER)
        ok = fail_at(p, begin, expected);
    s->has_texts = s->has_texts || v->kind == VALUE_TEXT;
    s->has_numbers = s->has_numbers || v->kind == VALUE_NUMBER;
    return ok;
}

static bool take_list(struct parser *p, struct step *s)
{
    s->kind = EQUAL;
    if (!take_char(p, '('))
        return fail(p, "( after in");
    do {
        if (!take_value(p, s, BLANKS ","))
            return false;
    } while (take_char(p, ','));
    return take_char(p, ')') || fail(p, "a comma or )");
}

static bool take_pattern(struct parser *p, struct step *s)
{
    struct buf text = {0};
    struct error why;
    bool is_quoted = false;
    skip_blanks(p);
    size_t column = column_of(p);
    bool ok = take_text(p, "a pattern", BLANKS, &text, &is_quoted);
    if (ok && p->n_patterns++ == CONDITION_PATTERNS_MAX) {
        error_set(p->error, -1, "column %zu: more than %d patterns", column, CONDITION_PATTERNS_MAX);
        ok = false;
    } else if (ok && !(s->pattern = text_pattern_new(text.ptr, &why))) {
        error_set(p->error, -1, "column %zu: %s", column, why.text);
        ok = false;
    }
    buf_free(&text);
    return ok;
}

static bool take_test(struct parser *p)
{
    static const struct comparison {
        const char *text;
        enum kind kind;
        bool is_negated;
    } comparisons[] = {{"=", EQUAL, false}, {"!=", EQUAL, true}, {"<", LESS, false},
        {"<=", LESS_EQUAL, false}, {">", GREATER, false}, {">=", GREATER_EQUAL, false}, {"~", MATCHES, false},
        {"!~", MATCHES, true}};
    struct step *s = add_step(p->c, PRESENT);
    if (!take_subject(p, s))
        return false;
    bool is_negated = take_keyword(p, "not"), ok = true;
    if (take_keyword(p, "in")) {
        ok = take_list(p, s);
    } else if (is_negated) {
        return fail(p, "in after not");
    } else if (operator_at(p).len > 0) {
        const struct comparison *c = comparisons, *end = c + sizeof comparisons / sizeof *comparisons;
        while (c < end && !bytes_equal_str(operator_at(p), c->text))
            c++;
        if (c == end)
            return fail(p, "an operator");
        p->at += strlen(c->text);
        s->kind = c->kind;
        is_negated = c->is_negated;
        ok = s->kind == MATCHES ? take_pattern(p, s) : take_value(p, s, BLANKS);
    }
    if (is_negated)
        add_step(p->c, NOT);
    return ok;
}

static bool take_condition(struct parser *p);

static bool take_term(struct parser *p)
{
    bool is_negated = take_keyword(p, "not"), ok;
    const char *begin = p->at;
    if (!is_negated && !take_char(p, '('))
        return take_test(p);
    if (++p->levels > CONDITION_LEVELS_MAX)
        return fail_at(p, begin, "fewer nested parentheses and not");
    ok = is_negated ? take_term(p) : take_condition(p);
    p->levels--;
    if (is_negated)
        add_step(p->c, NOT);
    else if (ok && !take_char(p, ')'))
        return fail(p, "and, or or )");
    return ok;
}

/* Takes one term, or several terms with the keyword between them. */
static bool take_terms(struct parser *p, const char *word, enum kind kind, bool (*take)(struct parser *))
{
    bool ok = take(p);
    while (ok && take_keyword(p, word)) {
        size_t jump = p->c->n_steps;
        add_step(p->c, kind);
        ok = take(p);
        p->c->steps[jump].to = p->c->n_steps;
    }
    return ok;
}

static bool take_conjunction(struct parser *p)
{
    return take_terms(p, "and", AND, take_term);
}

static bool take_condition(struct parser *p)
{
    return take_terms(p, "or", OR, take_conjunction);
}

/* Returns NULL, or the reason why no condition has this text. */
static const char *refusal(struct bytes text)
{
    if (text.len > CONDITION_TEXT_MAX)
        return "the condition is too long";
    for (size_t i = 0; i < text.len; i++)
        if (((unsigned char)text.ptr[i] < 0x20 && text.ptr[i] != '\t') || text.ptr[i] == 0x7f)
            return "the condition contains a control character";
    return bytes_is_utf8(text) ? NULL : "the condition is not UTF-8";
}

static bool read_text(struct condition *c, struct bytes text, struct error *error)
{
    const char *why = refusal(text);
    struct parser p = {.c = c, .begin = text.ptr, .at = text.ptr, .end = text.ptr + text.len, .error = error};
    if (why)
        return error_set(error, -1, "%s", why) == 0;
    bool ok = take_condition(&p);
    skip_blanks(&p);
    if (ok && p.at < p.end)
        ok = fail(&p, c->steps[c->n_steps - 1].kind == PRESENT ? "an operator, and, or or the end"
                                                               : "and, or or the end");
    return ok;
}

struct condition *condition_new(struct bytes text, struct error *error)
{
    struct condition *c = mem_zalloc(sizeof *c);
    if (!read_text(c, text, error))
        condition_free(&c);
    return c;
}

struct condition *condition_new_pair(const char *keep, const char *drop, struct error *error)
{
    struct condition *c = mem_zalloc(sizeof *c);
    bool ok = !drop || read_text(c, bytes_str(drop), error);
    if (drop)
        add_step(c, NOT);
    size_t jump = c->n_steps;
    if (drop && keep)
        add_step(c, AND);
    ok = ok && (!keep || read_text(c, bytes_str(keep), error));
    if (drop && keep)
        c->steps[jump].to = c->n_steps;
    if (!ok)
        condition_free(&c);
    return c;
}

void condition_free(struct condition **cp)
{
    struct condition *c = *cp;
    if (!c)
        return;
    for (size_t i = 0; i < c->n_steps; i++) {
        struct step *s = &c->steps[i];
        for (size_t k = 0; k < s->n_values; k++)
            free(s->values[k].text);
        free(s->values);
        free(s->argument);
        text_pattern_free(&s->pattern);
    }
    for (size_t i = 0; i < c->n_fields; i++)
        free(c->fields[i]);
    free(c->steps);
    free(c->fields);
    buf_free(&c->space);
    free(c);
    *cp = NULL;
}

size_t condition_add_fields(const struct condition *c, const char ***paths, size_t *n)
{
    size_t first = *n;
    *n += c->n_fields;
    *paths = mem_realloc(*paths, *n * sizeof **paths);
    for (size_t i = 0; i < c->n_fields; i++)
        (*paths)[first + i] = c->fields[i];
    return first;
}

/* Reads the text of the tested value. Returns false if there is none. */
static bool subject_text(struct condition *c, const struct step *s, const struct json_value *v,
    char digits[KEY_TEXT_DIGITS], struct bytes *out)
{
    if (v->type == JSON_MISSING || v->type == JSON_NULL || key_text_of(v, digits, out))
        return false;
    c->read += s->function ? out->len : 0;
    if (c->read > CONDITION_FUNCTION_BYTES_MAX)
        return false;
    if (s->function && out->len > 0)
        *out = key_function_apply(s->function, *out, s->argument, &c->space);
    return !s->function || out->len > 0;
}

static bool subject_number(
    struct condition *c, const struct step *s, const struct json_value *v, long double *out)
{
    char digits[KEY_TEXT_DIGITS];
    struct bytes text;
    if (s->function || v->type == JSON_STRING)
        return subject_text(c, s, v, digits, &text) && read_number(text, out);
    if (v->type == JSON_I64)
        *out = v->v.i64;
    else if (v->type == JSON_U64)
        *out = v->v.u64;
    else if (v->type == JSON_F64)
        *out = v->v.f64;
    else
        return false;
    return true;
}

static bool is_equal(struct condition *c, const struct step *s, const struct json_value *v)
{
    char digits[KEY_TEXT_DIGITS];
    struct bytes text = BYTES_NONE;
    long double number = 0;
    bool has_text = s->has_texts && subject_text(c, s, v, digits, &text);
    bool has_number = s->has_numbers && subject_number(c, s, v, &number);
    for (size_t i = 0; i < s->n_values; i++) {
        const struct value *value = &s->values[i];
        bool equal = value->kind == VALUE_NULL ? v->type == JSON_NULL && !s->function
                     : value->kind == VALUE_NUMBER
                         ? has_number && number == value->number
                         : has_text && bytes_equal(text, bytes_of(value->text, value->len));
        if (equal)
            return true;
    }
    return false;
}

static enum condition_result test(struct condition *c, const struct step *s, const struct json_value *v)
{
    static const enum condition_result results[] = {[TEXT_PATTERN_FOUND] = CONDITION_TRUE,
        [TEXT_PATTERN_NOT_FOUND] = CONDITION_FALSE,
        [TEXT_PATTERN_UNDECIDED] = CONDITION_UNDECIDED};
    char digits[KEY_TEXT_DIGITS];
    struct bytes text;
    long double n;
    if (s->kind == PRESENT)
        return s->function ? subject_text(c, s, v, digits, &text) : v->type != JSON_MISSING;
    if (s->kind == EQUAL)
        return is_equal(c, s, v);
    if (s->kind == MATCHES)
        return subject_text(c, s, v, digits, &text) ? results[text_pattern_find(s->pattern, text)]
                                                    : CONDITION_FALSE;
    if (!subject_number(c, s, v, &n))
        return CONDITION_FALSE;
    long double limit = s->values->number;
    return s->kind == LESS         ? n < limit
           : s->kind == LESS_EQUAL ? n <= limit
           : s->kind == GREATER    ? n > limit
                                   : n >= limit;
}

enum condition_result condition_test(struct condition *c, const struct json_value *values)
{
    enum condition_result result = CONDITION_FALSE;
    c->read = 0;
    for (size_t i = 0; i < c->n_steps && result != CONDITION_UNDECIDED;) {
        const struct step *s = &c->steps[i++];
        if (s->kind == NOT)
            result = !result;
        else if (s->kind != AND && s->kind != OR)
            result = test(c, s, &values[s->field]);
        else if (result == (s->kind == OR ? CONDITION_TRUE : CONDITION_FALSE))
            i = s->to;
        if (c->read > CONDITION_FUNCTION_BYTES_MAX)
            result = CONDITION_UNDECIDED;
    }
    return result;
}
