#include "metrics/exposition.h"

#include "base/text_hash.h"

#include <math.h>
#include <stdlib.h>
#include <strings.h>

#define SECONDS_MAX 1e12 /* of a timestamp */
#define NUMBER_MAX 400   /* characters; enough for each double in decimals */

/* Sets the error "line N, column M: WHY" for a place in the line. */
static bool bad(struct exposition *e, const char *at, const char *why)
{
    error_set(&e->error, -1, "line %zu, column %zu: %s", e->n_line, (size_t)(at - e->line) + 1, why);
    return false;
}

enum exposition_result exposition_refuse(struct exposition *e, const char *why)
{
    bad(e, e->line, why);
    return EXPOSITION_BAD;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

static char peek(const struct exposition *e)
{
    return e->at < e->line_end ? *e->at : '\n';
}

static bool take(struct exposition *e, char c)
{
    if (peek(e) != c)
        return false;
    e->at++;
    return true;
}

static void skip_blanks(struct exposition *e)
{
    while (is_blank(peek(e)))
        e->at++;
}

/* OpenMetrics separates by exactly one space. */
static bool read_gap(struct exposition *e)
{
    const char *begin = e->at;
    skip_blanks(e);
    size_t n = (size_t)(e->at - begin);
    bool is_gap = e->format == EXPOSITION_TEXT ? n > 0 : n == 1 && *begin == ' ';
    return is_gap || bad(e, begin, e->format == EXPOSITION_TEXT ? "expected a space" : "expected one space");
}

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static size_t name_length(const char *p, const char *end, bool with_colons)
{
    const char *begin = p;
    while (p < end && (is_letter(*p) || (with_colons && *p == ':') || (p > begin && is_digit(*p))))
        p++;
    return (size_t)(p - begin);
}

bool exposition_is_label_name(struct bytes text)
{
    return text.len > 0 && name_length(text.ptr, text.ptr + text.len, false) == text.len;
}

bool exposition_is_metric_name(struct bytes text)
{
    return text.len > 0 && name_length(text.ptr, text.ptr + text.len, true) == text.len;
}

void exposition_unescape(struct bytes text, struct buf *out)
{
    for (size_t i = 0; i < text.len; i++) {
        char next = text.ptr[i] == '\\' && i + 1 < text.len ? text.ptr[i + 1] : '\0';
        bool is_escape = next == '\\' || next == '"' || next == 'n';
        i += is_escape;
        buf_append_char(out, is_escape && next == 'n' ? '\n' : text.ptr[i]);
    }
}

static bool read_name(struct exposition *e, bool is_metric, struct bytes *name)
{
    *name = bytes_of(e->at, name_length(e->at, e->line_end, is_metric));
    e->at += name->len;
    return name->len > 0 ||
           bad(e, e->at, is_metric ? "expected the name of a metric" : "expected the name of a label");
}

/* Reads the text after an opening quote. */
static bool read_quoted(struct exposition *e, struct bytes *value)
{
    const char *begin = e->at;
    bool is_escaped = false;
    for (; peek(e) != '"'; e->at++) {
        is_escaped = is_escaped || peek(e) == '\\';
        e->at += peek(e) == '\\';
        if (e->at >= e->line_end)
            return bad(e, begin - 1, "the quoted text has no end");
    }
    *value = bytes_of(begin, (size_t)(e->at++ - begin));
    if (!bytes_is_utf8(*value))
        return bad(e, begin, "the text is not UTF-8");
    if (!is_escaped)
        return true;
    size_t at =
        e->text.len; /* the text does not move, because next_line has reserved the length of the line */
    exposition_unescape(*value, &e->text);
    *value = bytes_of(e->text.ptr + at, e->text.len - at);
    return true;
}

/* Reads the labels after an opening brace and appends them to e->labels. */
static bool read_labels(struct exposition *e)
{
    for (;;) {
        struct exposition_label label;
        skip_blanks(e);
        if (take(e, '}'))
            return true;
        if (!read_name(e, false, &label.name))
            return false;
        skip_blanks(e);
        if (!take(e, '='))
            return bad(e, e->at, "expected =");
        skip_blanks(e);
        if (!take(e, '"'))
            return bad(e, e->at, "expected a quote");
        if (!read_quoted(e, &label.value))
            return false;
        *ARRAY_ADD(e->labels, e->n_labels, e->cap_labels) = label;
        skip_blanks(e);
        if (!take(e, ',') && peek(e) != '}')
            return bad(e, e->at, "expected , or }");
    }
}

static struct bytes read_token(struct exposition *e)
{
    const char *begin = e->at;
    while (e->at < e->line_end && !is_blank(*e->at))
        e->at++;
    return bytes_of(begin, (size_t)(e->at - begin));
}

static bool is_decimal(struct bytes t)
{
    size_t i = 0, digits = 0;
    if (t.len > NUMBER_MAX)
        return false;
    i += i < t.len && (t.ptr[i] == '+' || t.ptr[i] == '-');
    for (; i < t.len && is_digit(t.ptr[i]); i++)
        digits++;
    i += i < t.len && t.ptr[i] == '.';
    for (; i < t.len && is_digit(t.ptr[i]); i++)
        digits++;
    if (digits == 0 || i == t.len || (t.ptr[i] != 'e' && t.ptr[i] != 'E'))
        return digits > 0 && i == t.len;
    i++;
    i += i < t.len && (t.ptr[i] == '+' || t.ptr[i] == '-');
    digits = i;
    while (i < t.len && is_digit(t.ptr[i]))
        i++;
    return i > digits && i == t.len;
}

static bool is_word(struct bytes t, const char *word)
{
    return t.len == strlen(word) && strncasecmp(t.ptr, word, t.len) == 0;
}

/* Reads a decimal number, NaN, or Inf with or without a sign. Hexadecimal numbers are errors. */
static bool read_number(struct exposition *e, const char *expected, struct bytes *text, double *number)
{
    *text = read_token(e);
    if (bytes_to_short_decimal(*text, number))
        return true;
    struct bytes word = *text;
    if (word.len > 0 && (*word.ptr == '+' || *word.ptr == '-'))
        word = bytes_of(word.ptr + 1, word.len - 1);
    if (is_word(word, "nan")) {
        *number = NAN;
    } else if (is_word(word, "inf") || is_word(word, "infinity")) {
        *number = *text->ptr == '-' ? -INFINITY : INFINITY;
    } else {
        if (!is_decimal(*text))
            return bad(e, text->ptr, expected);
        *number = strtod(text->ptr, NULL); /* ends at the space or LF after the number */
        if (isinf(*number))
            return bad(e, text->ptr, "the number is out of range");
    }
    return true;
}

/* Timestamps are milliseconds in the text format and seconds in OpenMetrics. */
static bool read_time(struct exposition *e, int64_t *time)
{
    struct bytes text;
    double seconds;
    if (e->format == EXPOSITION_TEXT) {
        text = read_token(e);
        return bytes_to_i64(text, time) || bad(e, text.ptr, "expected a timestamp in milliseconds");
    }
    if (!read_number(e, "expected a timestamp in seconds", &text, &seconds))
        return false;
    if (!(fabs(seconds) <= SECONDS_MAX))
        return bad(e, text.ptr, "the timestamp is out of range");
    *time = llround(seconds * 1000);
    return true;
}

/* Reads " # {labels} value [timestamp]" from the # on. */
static bool read_exemplar(struct exposition *e)
{
    struct bytes text;
    double value;
    int64_t time;
    e->at++;
    if (!read_gap(e))
        return false;
    if (!take(e, '{'))
        return bad(e, e->at, "expected the labels of an exemplar");
    if (!read_labels(e) || !read_gap(e) ||
        !read_number(e, "expected the value of an exemplar", &text, &value))
        return false;
    if (e->at < e->line_end && (!read_gap(e) || !read_time(e, &time)))
        return false;
    return true;
}

/* Reads what follows a number in OpenMetrics: [timestamp] [exemplar]. */
static bool read_open_rest(struct exposition *e)
{
    struct exposition_sample *s = &e->sample;
    if (e->at == e->line_end)
        return true;
    if (!read_gap(e))
        return false;
    s->has_time = peek(e) != '#';
    if (!s->has_time)
        return read_exemplar(e);
    if (!read_time(e, &s->time))
        return false;
    if (e->at == e->line_end)
        return true;
    return read_gap(e) && (peek(e) == '#' ? read_exemplar(e) : bad(e, e->at, "expected an exemplar"));
}

/* Reads what follows a number in the text format: [timestamp]. */
static bool read_text_rest(struct exposition *e)
{
    struct exposition_sample *s = &e->sample;
    skip_blanks(e);
    s->has_time = e->at < e->line_end;
    if (s->has_time && !read_time(e, &s->time))
        return false;
    skip_blanks(e);
    return true;
}

static bool read_sample(struct exposition *e)
{
    struct exposition_sample *s = &e->sample;
    bool is_open = e->format == EXPOSITION_OPENMETRICS;
    *s = (struct exposition_sample){0};
    e->n_labels = 0;
    if (!read_name(e, true, &s->name))
        return false;
    const char *name_end = e->at;
    if (!is_open)
        skip_blanks(e);
    bool has_labels = take(e, '{');
    if (has_labels && !read_labels(e))
        return false;
    s->n_labels = e->n_labels;
    if (is_open && !read_gap(e))
        return false;
    if (!has_labels && e->at == name_end)
        return bad(e, e->at, "expected a space");
    skip_blanks(e);
    if (!read_number(e, "expected a number", &s->value_text, &s->value) ||
        !(is_open ? read_open_rest(e) : read_text_rest(e)))
        return false;
    s->labels = e->labels;
    return e->at == e->line_end || bad(e, e->at, "expected the end of the line");
}

static bool is_type(struct bytes t)
{
    static const char *const types[] = {"counter", "gauge", "histogram", "summary", "untyped", "unknown",
        "info", "stateset", "gaugehistogram"};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (bytes_equal_str(t, types[i]))
            return true;
    return false;
}

/* Reads a line with # at its beginning. The text format has comments; in OpenMetrics each such line has a meaning. */
static bool read_comment(struct exposition *e)
{
    bool is_open = e->format == EXPOSITION_OPENMETRICS;
    struct bytes name;
    const char *begin = ++e->at;
    skip_blanks(e);
    struct bytes word = read_token(e);
    if (is_open && (word.ptr != begin + 1 || *begin != ' '))
        return bad(e, begin, "expected one space");
    if (is_open && bytes_equal_str(word, "EOF")) {
        e->is_ended = true;
        if (e->at < e->line_end)
            return bad(e, e->at, "expected the end of the line");
        return e->line_end + 1 >= e->end || bad(e, e->at, "bytes follow # EOF");
    }
    bool is_type_line = bytes_equal_str(word, "TYPE");
    if (!is_open && (!is_type_line || e->at == e->line_end))
        return true;
    if (!is_type_line && !bytes_equal_str(word, "HELP") && !bytes_equal_str(word, "UNIT"))
        return bad(e, word.ptr, "expected TYPE, HELP, UNIT or EOF");
    if (!read_gap(e) || !read_name(e, true, &name))
        return false;
    if (!is_type_line)
        return e->at == e->line_end || read_gap(e);
    if (!read_gap(e))
        return false;
    struct bytes type = read_token(e);
    if (!is_type(type))
        return bad(e, type.ptr, "unknown type");
    if (!is_open)
        skip_blanks(e);
    return e->at == e->line_end || bad(e, e->at, "expected the end of the line");
}

/* Finds the end of the next line. The last line of OpenMetrics, `# EOF`, may have no LF. */
static bool next_line(struct exposition *e)
{
    e->line = e->at;
    e->n_line++;
    e->line_end = memchr(e->at, '\n', (size_t)(e->end - e->at));
    if (!e->line_end) {
        e->line_end = e->end;
        if (e->format == EXPOSITION_TEXT ||
            !bytes_equal_str(bytes_of(e->at, (size_t)(e->end - e->at)), "# EOF"))
            return bad(e, e->end, "the page ends inside a line");
    }
    e->text.len = 0;
    buf_reserve(&e->text, (size_t)(e->line_end - e->line));
    return true;
}

enum exposition_result exposition_next(struct exposition *e)
{
    while (e->at < e->end) {
        bool is_sample = false;
        if (!next_line(e))
            return EXPOSITION_BAD;
        if (e->format == EXPOSITION_TEXT)
            skip_blanks(e);
        if (peek(e) == '#') {
            e->comments = e->comments * 31 + text_hash(bytes_of(e->line, (size_t)(e->line_end - e->line)));
            if (!read_comment(e))
                return EXPOSITION_BAD;
        } else if (e->at < e->line_end || e->format == EXPOSITION_OPENMETRICS) {
            is_sample = true;
            if (!read_sample(e))
                return EXPOSITION_BAD;
        }
        e->at = e->line_end < e->end ? e->line_end + 1 : e->end;
        if (is_sample)
            return EXPOSITION_SAMPLE;
    }
    if (e->format == EXPOSITION_OPENMETRICS && !e->is_ended) {
        e->line = e->at;
        e->n_line++;
        bad(e, e->at, "the page ends without # EOF");
        return EXPOSITION_BAD;
    }
    return EXPOSITION_END;
}

bool exposition_format_of(const char *content_type, enum exposition_format *format)
{
    struct bytes type = bytes_trim(bytes_of(content_type, strcspn(content_type, ";")));
    bool is_open = bytes_equal_nocase(type, BYTES_LITERAL("application/openmetrics-text"));
    *format = is_open ? EXPOSITION_OPENMETRICS : EXPOSITION_TEXT;
    return is_open || bytes_equal_nocase(type, BYTES_LITERAL("text/plain"));
}

void exposition_init(struct exposition *e, enum exposition_format format, struct bytes body)
{
    *e = (struct exposition){.format = format, .at = body.ptr, .end = body.ptr + body.len};
}

void exposition_free(struct exposition *e)
{
    free(e->labels);
    buf_free(&e->text);
    *e = (struct exposition){0};
}
