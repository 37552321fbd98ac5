#include "ruler/alert_text.h"

#include "base/rfc3339.h"
#include "metrics/exposition.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define NUMBER_TEXT 400
#define PRECISION_MAX 60
#define SHORT_EXPONENT 6 /* from this exponent on, Go's %v writes an exponent */

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

const char *time_write(int64_t ms, char out[TIME_TEXT])
{
    char text[RFC3339_TEXT];
    if (ms == 0)
        return strcpy(out, "0001-01-01T00:00:00Z");
    rfc3339_write(ms / 1000, text);
    snprintf(out, TIME_TEXT, "%.19s.%03dZ", text, (int)(ms % 1000));
    return out;
}

static void humanize(double v, struct buf *out)
{
    static const char large[] = "kMGTPEZY", small[] = "munpfazy";
    bool is_plain = v == 0 || !isfinite(v), is_small = fabs(v) < 1;
    size_t n = 0;
    for (; !is_plain && n < 8 && (is_small ? fabs(v) < 1 : fabs(v) >= 1000); n++)
        v = is_small ? v * 1000 : v / 1000;
    format_number(out, 'g', 4, v);
    if (n > 0)
        buf_append_char(out, is_small ? small[n - 1] : large[n - 1]);
}

static void humanize_duration(double v, struct buf *out)
{
    if (!isfinite(v) || fabs(v) < 1 || fabs(v) >= 9e18) {
        humanize(v, out);
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

static void humanize_percentage(double v, struct buf *out)
{
    format_number(out, 'g', 4, v * 100);
    buf_append_char(out, '%');
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

static bool is_number(struct bytes word)
{
    return bytes_equal_str(word, "$value") || bytes_equal_str(word, ".Value");
}

/* Appends a value. Returns false for a word that names none. */
static bool print_value(struct bytes word, const struct label_set *labels, double value, struct buf *out)
{
    static const char *const prefixes[] = {"$labels", ".Labels"};
    for (size_t i = 0; i < 2; i++) {
        struct bytes prefix = bytes_str(prefixes[i]);
        if (!bytes_starts_with(word, prefix))
            continue;
        if (word.len == prefix.len) {
            print_labels(labels, out);
            return true;
        }
        struct bytes name = bytes_of(word.ptr + prefix.len + 1, word.len - prefix.len - 1);
        buf_append_bytes(out, label_set_get(labels, name));
        return word.ptr[prefix.len] == '.' && exposition_is_label_name(name);
    }
    if (is_number(word))
        number_append(value, out);
    return is_number(word);
}

/* Appends a text, or a number if `text` is NULL, by a format in quotes. Returns an error or NULL. */
static const char *print_formatted(struct bytes format, const struct buf *text, double value, struct buf *out)
{
    static const char bad[] = "printf needs a format with one of %s %v %f %e %g, without a width";
    size_t n_verbs = 0;
    if (format.len < 2 || format.ptr[0] != '"' || format.ptr[format.len - 1] != '"' ||
        memchr(format.ptr, '\\', format.len))
        return bad;
    for (const char *p = format.ptr + 1; p < format.ptr + format.len - 1; p++) {
        if (*p != '%' || *++p == '%') {
            buf_append_char(out, *p);
            continue;
        }
        int precision = *p == '.' ? 0 : -1;
        for (p += *p == '.'; precision >= 0 && precision <= PRECISION_MAX && *p >= '0' && *p <= '9'; p++)
            precision = precision * 10 + *p - '0';
        bool is_plain = *p == 's' || *p == 'v' || (*p == 'g' && precision < 0);
        if (n_verbs++ > 0 || !memchr("svfeg", *p, 5) || precision > PRECISION_MAX ||
            (is_plain && precision >= 0))
            return bad;
        if (text && (!is_plain || *p == 'g'))
            return "the function needs $value";
        if (text)
            buf_append_bytes(out, buf_bytes(text));
        else if (is_plain)
            number_append(value, out);
        else
            format_number(out, *p, precision < 0 ? 6 : precision, value);
    }
    return n_verbs == 1 ? NULL : bad;
}

static const struct function {
    const char *name;
    void (*print)(double value, struct buf *out); /* NULL: print_formatted */
} functions[] = {{"printf", NULL}, {"humanize", humanize}, {"humanizeDuration", humanize_duration},
    {"humanizePercentage", humanize_percentage}};

static const struct function *find_function(struct bytes name)
{
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        if (bytes_equal_str(name, functions[i].name))
            return &functions[i];
    return NULL;
}

/* Appends the result of an action; `text` is scratch memory. Returns an error or NULL. */
static const char *expand_action(
    struct bytes rest, const struct label_set *labels, double value, struct buf *text, struct buf *out)
{
    struct bytes operand = take_word(&rest), name = operand, format = BYTES_NONE;
    bool is_first = print_value(operand, labels, value, text);
    if (is_first) {
        name = take_word(&rest);
        if (name.len == 0) {
            buf_append_bytes(out, buf_bytes(text));
            return NULL;
        }
        if (!bytes_equal_str(name, "|"))
            return "expected |";
        name = take_word(&rest);
    }
    const struct function *f = find_function(name);
    if (!f)
        return "only values and the functions of the guide are supported";
    if (!f->print)
        format = take_word(&rest);
    if (!is_first)
        operand = take_word(&rest);
    if (!is_first && !print_value(operand, labels, value, text))
        return "the function needs a value such as $value";
    if (take_word(&rest).len > 0)
        return "only one function is supported";
    if (!f->print)
        return print_formatted(format, is_number(operand) ? NULL : text, value, out);
    if (!is_number(operand))
        return "the function needs $value";
    f->print(value, out);
    return NULL;
}

int alert_text_expand(
    struct bytes text, const struct label_set *labels, double value, struct buf *out, struct error *error)
{
    while (text.len > 0) {
        const char *open = memmem(text.ptr, text.len, "{{", 2);
        size_t n = open ? (size_t)(open - text.ptr) : text.len;
        buf_append(out, text.ptr, n);
        if (!open)
            break;
        struct bytes rest = bytes_of(open + 2, text.len - n - 2);
        const char *close = memmem(rest.ptr, rest.len, "}}", 2);
        if (!close)
            return error_set(error, -1, "template: {{ without }}");
        struct bytes action = bytes_trim(bytes_of(rest.ptr, (size_t)(close - rest.ptr)));
        struct buf scratch = {0};
        const char *why = expand_action(action, labels, value, &scratch, out);
        buf_free(&scratch);
        if (why)
            return error_set(error, -1, "template {{ %.*s }}: %s", (int)action.len, action.ptr, why);
        text = bytes_of(close + 2, (size_t)(rest.ptr + rest.len - close) - 2);
    }
    return 0;
}

void alert_texts_expand(
    const struct label_set *texts, const struct label_set *labels, double value, struct label_set *out)
{
    struct buf text = {0};
    for (const struct label *l = texts->all; l < texts->all + texts->n; l++) {
        buf_clear(&text);
        alert_text_expand(l->value, labels, value, &text, NULL);
        label_set_put(out, l->name, buf_bytes(&text));
    }
    buf_free(&text);
}
