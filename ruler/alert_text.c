#include "ruler/alert_text.h"

#include "metrics/exposition.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define NUMBER_TEXT 400
#define PRECISION_MAX 60
#define SHORT_EXPONENT 6 /* from this exponent on, Go's %v writes an exponent */

enum source { SOURCE_LITERAL, SOURCE_LABEL, SOURCE_LABELS, SOURCE_VALUE };

/* A literal text or an action. */
struct part {
    enum source source;
    struct buf text; /* the literal, or the name of the label */
    /* The function for a number; NULL: none. */
    void (*function)(const struct part *p, double value, struct buf *out);
    struct buf before, after; /* of printf: the texts around the verb */
    char verb;
    int precision; /* -1: none */
};

struct alert_text {
    struct part *parts;
    size_t n, cap;
};

/* Formats a finite number by a verb, and others as Go does. */
static void format_number(struct buf *out, char verb, int precision, double value)
{
    char text[NUMBER_TEXT];
    if (!isfinite(value))
        snprintf(text, sizeof text, "%s", isnan(value) ? "NaN" : value > 0 ? "+Inf" : "-Inf");
    else if (verb == 'f')
        snprintf(text, sizeof text, "%.*f", precision, value);
    else if (verb == 'e')
        snprintf(text, sizeof text, "%.*e", precision, value);
    else
        snprintf(text, sizeof text, "%.*g", precision, value);
    buf_append_str(out, text);
}

void number_append(double value, struct buf *out)
{
    char text[40];
    int precision = 0;
    if (!isfinite(value)) {
        format_number(out, 'g', 0, value);
        return;
    }
    do
        snprintf(text, sizeof text, "%.*e", precision++, value);
    while (strtod(text, NULL) != value && precision <= 17);
    int exponent = atoi(strchr(text, 'e') + 1), decimals = precision - 1 - exponent;
    if (exponent < -4 || exponent >= SHORT_EXPONENT)
        buf_append_str(out, text);
    else
        format_number(out, 'f', decimals > 0 ? decimals : 0, value);
}

static void humanize(const struct part *p, double v, struct buf *out)
{
    static const char large[] = "kMGTPEZY", small[] = "munpfazy";
    bool is_plain = v == 0 || !isfinite(v), is_small = fabs(v) < 1;
    size_t n = 0;
    (void)p;
    for (; !is_plain && n < 8 && (is_small ? fabs(v) < 1 : fabs(v) >= 1000); n++)
        v = is_small ? v * 1000 : v / 1000;
    format_number(out, 'g', 4, v);
    if (n > 0)
        buf_append_char(out, is_small ? small[n - 1] : large[n - 1]);
}

static void humanize_duration(const struct part *p, double v, struct buf *out)
{
    if (!isfinite(v) || fabs(v) < 1 || fabs(v) >= 9e18) {
        humanize(p, v, out);
        buf_append_str(out, isfinite(v) ? "s" : "");
        return;
    }
    int64_t all = (int64_t)fabs(v), days = all / 86400, hours = all / 3600 % 24, minutes = all / 60 % 60;
    buf_append_str(out, v < 0 ? "-" : "");
    if (days > 0)
        buf_printf(out, "%" PRId64 "d ", days);
    if (all >= 3600)
        buf_printf(out, "%" PRId64 "h ", hours);
    if (all >= 60) {
        buf_printf(out, "%" PRId64 "m %" PRId64 "s", minutes, all % 60);
        return;
    }
    format_number(out, 'g', 4, fabs(v));
    buf_append_char(out, 's');
}

static void humanize_percentage(const struct part *p, double v, struct buf *out)
{
    (void)p;
    format_number(out, 'g', 4, v * 100);
    buf_append_char(out, '%');
}

static void print_formatted(const struct part *p, double v, struct buf *out)
{
    if (strchr("sv", p->verb) || (p->verb == 'g' && p->precision < 0))
        number_append(v, out);
    else
        format_number(out, p->verb, p->precision < 0 ? 6 : p->precision, v);
}

/* Appends labels as Go prints a map: map[a:b c:d]. */
static void print_labels(const struct label_set *labels, struct buf *out)
{
    buf_append_str(out, "map[");
    for (size_t i = 0; i < labels->n; i++) {
        buf_append_str(out, i > 0 ? " " : "");
        buf_append_bytes(out, labels->all[i].name);
        buf_append_char(out, ':');
        buf_append_bytes(out, labels->all[i].value);
    }
    buf_append_char(out, ']');
}

void alert_text_expand(
    const struct alert_text *t, const struct label_set *labels, double value, struct buf *out)
{
    for (const struct part *p = t->parts; p < t->parts + t->n; p++) {
        buf_append_bytes(out, buf_bytes(&p->before));
        if (p->source == SOURCE_LITERAL)
            buf_append_bytes(out, buf_bytes(&p->text));
        else if (p->source == SOURCE_LABEL)
            buf_append_bytes(out, label_set_get(labels, buf_bytes(&p->text)));
        else if (p->source == SOURCE_LABELS)
            print_labels(labels, out);
        else if (p->function)
            p->function(p, value, out);
        else
            number_append(value, out);
        buf_append_bytes(out, buf_bytes(&p->after));
    }
}

/* Takes the next word: a quoted text with its quotes, `|`, or characters up to a space or `|`. */
static struct bytes take_word(struct bytes *rest)
{
    *rest = bytes_trim(*rest);
    size_t n = 0;
    if (rest->len > 0 && rest->ptr[0] == '"') {
        const char *end = memchr(rest->ptr + 1, '"', rest->len - 1);
        n = end ? (size_t)(end - rest->ptr) + 1 : rest->len;
    } else {
        while (n < rest->len && !memchr(" \t\r\n|", rest->ptr[n], 5))
            n++;
        n += n == 0 && rest->len > 0;
    }
    struct bytes word = bytes_of(rest->ptr, n);
    *rest = bytes_of(rest->ptr + n, rest->len - n);
    return word;
}

/* Sets the source of an action. Returns false for a word that names no value. */
static bool read_value(struct bytes word, struct part *p)
{
    static const char *const prefixes[] = {"$labels", ".Labels"};
    for (size_t i = 0; i < 2; i++) {
        struct bytes prefix = bytes_str(prefixes[i]);
        if (!bytes_starts_with(word, prefix))
            continue;
        struct bytes name = bytes_of(word.ptr + prefix.len, word.len - prefix.len);
        bool is_label = name.len > 1 && name.ptr[0] == '.';
        p->source = is_label ? SOURCE_LABEL : SOURCE_LABELS;
        if (is_label)
            buf_append(&p->text, name.ptr + 1, name.len - 1);
        return name.len == 0 || (is_label && exposition_is_label_name(buf_bytes(&p->text)));
    }
    p->source = SOURCE_VALUE;
    return bytes_equal_str(word, "$value") || bytes_equal_str(word, ".Value");
}

/* Reads the format of printf in quotes. Returns false unless it has one verb, and no escapes. */
static bool read_format(struct bytes word, struct part *p)
{
    if (word.len < 2 || word.ptr[0] != '"' || word.ptr[word.len - 1] != '"' ||
        memchr(word.ptr, '\\', word.len))
        return false;
    for (size_t i = 1; i + 1 < word.len; i++) {
        if (word.ptr[i] != '%' || word.ptr[++i] == '%') {
            buf_append_char(p->verb ? &p->after : &p->before, word.ptr[i]);
            continue;
        }
        bool has_verb = p->verb != '\0';
        p->precision = word.ptr[i] == '.' ? 0 : -1;
        for (i += word.ptr[i] == '.'; p->precision >= 0 && word.ptr[i] >= '0' && word.ptr[i] <= '9'; i++)
            p->precision =
                p->precision > PRECISION_MAX ? p->precision : p->precision * 10 + word.ptr[i] - '0';
        p->verb = word.ptr[i];
        bool has_precision = p->precision >= 0, is_text = p->verb == 's' || p->verb == 'v';
        if (has_verb || !memchr("svfeg", p->verb, 5) || p->precision > PRECISION_MAX ||
            (is_text && has_precision))
            return false;
    }
    return p->verb != '\0';
}

/* Reads a function and the format of printf. Returns an error or NULL. */
static const char *read_function(struct bytes word, struct bytes *rest, struct part *p)
{
    static const struct {
        const char *name;
        void (*function)(const struct part *p, double value, struct buf *out);
    } functions[] = {{"printf", print_formatted}, {"humanize", humanize},
        {"humanizeDuration", humanize_duration}, {"humanizePercentage", humanize_percentage}};
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        if (bytes_equal_str(word, functions[i].name))
            p->function = functions[i].function;
    if (!p->function)
        return "only values and the functions of the guide are supported";
    if (p->function == print_formatted && !read_format(take_word(rest), p))
        return "printf needs a format with one of %s %v %f %e %g, without a width";
    return NULL;
}

/* Returns an error or NULL. */
static const char *read_action(struct part *p, struct bytes rest)
{
    struct bytes word = take_word(&rest);
    const char *error = NULL;
    if (read_value(word, p)) {
        word = take_word(&rest);
        if (word.len > 0)
            error = bytes_equal_str(word, "|") ? read_function(take_word(&rest), &rest, p) : "expected |";
    } else {
        buf_clear(&p->text);
        error = read_function(word, &rest, p);
        if (!error && !read_value(take_word(&rest), p))
            error = "the function needs a value such as $value";
    }
    if (!error && take_word(&rest).len > 0)
        error = "only one function is supported";
    if (!error && p->source != SOURCE_VALUE && p->function && !(p->verb && strchr("sv", p->verb)))
        error = "the function needs $value";
    return error;
}

static struct part *add_part(struct alert_text *t)
{
    struct part *p = ARRAY_ADD(t->parts, t->n, t->cap);
    *p = (struct part){0};
    return p;
}

static int read_parts(struct alert_text *t, struct bytes text, struct error *error)
{
    while (text.len > 0) {
        const char *open = memmem(text.ptr, text.len, "{{", 2);
        size_t n = open ? (size_t)(open - text.ptr) : text.len;
        buf_append(&add_part(t)->text, text.ptr, n);
        if (!open)
            break;
        struct bytes rest = bytes_of(open + 2, text.len - n - 2);
        const char *close = memmem(rest.ptr, rest.len, "}}", 2);
        if (!close)
            return error_set(error, -1, "template: {{ without }}");
        struct bytes action = bytes_trim(bytes_of(rest.ptr, (size_t)(close - rest.ptr)));
        const char *why = read_action(add_part(t), action);
        if (why)
            return error_set(error, -1, "template {{ %.*s }}: %s", (int)action.len, action.ptr, why);
        text = bytes_of(close + 2, (size_t)(rest.ptr + rest.len - close) - 2);
    }
    return 0;
}

struct alert_text *alert_text_new(struct bytes text, struct error *error)
{
    struct alert_text *t = mem_zalloc(sizeof *t);
    if (read_parts(t, text, error) != 0)
        alert_text_free(&t);
    return t;
}

void alert_text_free(struct alert_text **tp)
{
    struct alert_text *t = *tp;
    if (!t)
        return;
    for (size_t i = 0; i < t->n; i++) {
        buf_free(&t->parts[i].text);
        buf_free(&t->parts[i].before);
        buf_free(&t->parts[i].after);
    }
    free(t->parts);
    free(t);
    *tp = NULL;
}
