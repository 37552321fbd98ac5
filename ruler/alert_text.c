#include "ruler/alert_text.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define STEPS_MAX 8 /* functions of an action */
#define NUMBER_TEXT 400
#define PRECISION_MAX 60
#define SHORT_EXPONENT 6 /* from this exponent on, Go's %v writes an exponent */

enum source { SOURCE_TEXT, SOURCE_LABEL, SOURCE_VALUE };
enum function { PRINTF, HUMANIZE, HUMANIZE_1024, HUMANIZE_DURATION, HUMANIZE_PERCENTAGE, TO_UPPER, TO_LOWER };
static const char *const function_names[] = {
    "printf", "humanize", "humanize1024", "humanizeDuration", "humanizePercentage", "toUpper", "toLower"};
#define FUNCTIONS (sizeof function_names / sizeof *function_names)

struct step {
    enum function function;
    char *format; /* of printf */
};

/* A literal text or an action. */
struct part {
    enum source source;
    char *text; /* of a literal or a string; the name of a label */
    size_t len;
    struct step steps[STEPS_MAX];
    size_t n_steps;
};

struct alert_text {
    struct part *parts;
    size_t n, cap;
};

/* A value on its way through the functions of an action. */
struct cell {
    bool is_number;
    double number;
    struct buf text;
};

/* Formats a number by a verb of printf: f, e or g. Writes infinities and NaN as Go does. */
static void format_number(struct buf *out, char verb, int width, int precision, double value)
{
    char text[NUMBER_TEXT];
    if (!isfinite(value))
        snprintf(text, sizeof text, "%*s", width, isnan(value) ? "NaN" : value > 0 ? "+Inf" : "-Inf");
    else if (verb == 'f')
        snprintf(text, sizeof text, "%*.*f", width, precision, value);
    else if (verb == 'e')
        snprintf(text, sizeof text, "%*.*e", width, precision, value);
    else
        snprintf(text, sizeof text, "%*.*g", width, precision, value);
    buf_append_str(out, text);
}

static void append_short(struct buf *out, double value)
{
    format_number(out, 'g', 0, 4, value);
}

void number_append(double value, struct buf *out)
{
    char text[40];
    int precision = 0;
    if (!isfinite(value)) {
        format_number(out, 'g', 0, 0, value);
        return;
    }
    do
        snprintf(text, sizeof text, "%.*e", precision++, value);
    while (strtod(text, NULL) != value && precision <= 17);
    int exponent = atoi(strchr(text, 'e') + 1), decimals = precision - 1 - exponent;
    if (exponent < -4 || exponent >= SHORT_EXPONENT)
        buf_append_str(out, text);
    else
        format_number(out, 'f', 0, decimals > 0 ? decimals : 0, value);
}

static void append_scaled(struct buf *out, double value, const char *const *prefixes, double base, bool is_small)
{
    const char *prefix = "";
    for (size_t i = 0; i < 8 && (is_small ? fabs(value) < 1 : fabs(value) >= base); i++) {
        prefix = prefixes[i];
        value = is_small ? value * base : value / base;
    }
    append_short(out, value);
    buf_append_str(out, prefix);
}

static const char *const large[] = {"k", "M", "G", "T", "P", "E", "Z", "Y"};
static const char *const small[] = {"m", "u", "n", "p", "f", "a", "z", "y"};
static const char *const binary[] = {"ki", "Mi", "Gi", "Ti", "Pi", "Ei", "Zi", "Yi"};

static void humanize(struct buf *out, double v)
{
    bool is_plain = v == 0 || !isfinite(v), is_small = fabs(v) < 1;
    if (is_plain)
        append_short(out, v);
    else
        append_scaled(out, v, is_small ? small : large, 1000, is_small);
}

static void humanize_1024(struct buf *out, double v)
{
    if (fabs(v) <= 1 || !isfinite(v))
        append_short(out, v);
    else
        append_scaled(out, v, binary, 1024, false);
}

static void humanize_duration(struct buf *out, double v)
{
    if (!isfinite(v) || fabs(v) < 1 || fabs(v) >= 9e18) {
        humanize(out, v);
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
    append_short(out, fabs(v));
    buf_append_char(out, 's');
}

/* Reads a decimal at *p; a longer one than 3 digits ends as a number that format_is_valid refuses. */
static int read_digits(const char **p)
{
    int n = 0;
    while (**p >= '0' && **p <= '9' && n < 1000)
        n = n * 10 + *(*p)++ - '0';
    return n;
}

/* A verb of printf. A precision of -1 is the shortest text that restores the number. */
struct verb {
    int width, precision;
    char letter;
};

/* Reads a verb behind its %, and moves *p to its letter. */
static struct verb read_verb(const char **p)
{
    struct verb v = {.width = read_digits(p), .precision = -1};
    if (**p == '.') {
        ++*p;
        v.precision = read_digits(p);
    }
    v.letter = **p;
    return v;
}

static const char *print_verb(struct verb v, const struct cell *in, struct buf *out)
{
    struct buf text = {0};
    bool is_shortest = v.letter == 'v' || v.letter == 's' || (v.letter == 'g' && v.precision < 0);
    if (!in->is_number && v.letter != 's' && v.letter != 'v')
        return "printf of a number gets a text";
    if (!is_shortest) {
        format_number(out, v.letter, v.width, v.precision < 0 ? 6 : v.precision, in->number);
        return NULL;
    }
    if (in->is_number)
        number_append(in->number, &text);
    else
        buf_append_bytes(&text, buf_bytes(&in->text));
    for (size_t n = text.len; n < (size_t)v.width; n++)
        buf_append_char(out, ' ');
    buf_append_bytes(out, buf_bytes(&text));
    buf_free(&text);
    return NULL;
}

/* Runs printf with its single verb, which format_is_valid has checked. Returns an error or NULL. */
static const char *print_formatted(const char *p, const struct cell *in, struct buf *out)
{
    const char *error = NULL;
    for (; *p != '\0' && !error; p++)
        if (*p != '%' || *++p == '%')
            buf_append_char(out, *p);
        else
            error = print_verb(read_verb(&p), in, out);
    return error;
}

static void change_case(const struct cell *in, bool is_upper, struct buf *out)
{
    char from = is_upper ? 'a' : 'A', to = is_upper ? 'z' : 'Z';
    for (size_t i = 0; i < in->text.len; i++)
        buf_append_char(out, in->text.ptr[i] >= from && in->text.ptr[i] <= to ? in->text.ptr[i] ^ 0x20
                                                                              : in->text.ptr[i]);
}

/* A text is a number where a function needs one. */
static bool to_number(struct cell *c)
{
    if (c->is_number)
        return true;
    char *text = bytes_dup(buf_bytes(&c->text)), *end;
    c->number = strtod(text, &end);
    bool is_number = end != text && *end == '\0';
    free(text);
    return is_number;
}

/* Replaces the cell by the function's result. Returns an error or NULL. */
static const char *apply(const struct step *s, struct cell *c)
{
    struct buf out = {0};
    const char *error = NULL;
    bool needs_number = s->function >= HUMANIZE && s->function <= HUMANIZE_PERCENTAGE;
    if (needs_number && !to_number(c))
        return "a function of numbers gets another text";
    if (s->function == PRINTF) {
        error = print_formatted(s->format, c, &out);
    } else if (s->function == HUMANIZE) {
        humanize(&out, c->number);
    } else if (s->function == HUMANIZE_1024) {
        humanize_1024(&out, c->number);
    } else if (s->function == HUMANIZE_DURATION) {
        humanize_duration(&out, c->number);
    } else if (s->function == HUMANIZE_PERCENTAGE) {
        append_short(&out, c->number * 100);
        buf_append_char(&out, '%');
    } else if (c->is_number) {
        error = "a function of texts gets a number";
    } else {
        change_case(c, s->function == TO_UPPER, &out);
    }
    buf_free(&c->text);
    *c = (struct cell){.text = out};
    return error;
}

static const char *expand(const struct part *p, const struct label_set *labels, double value, struct buf *out)
{
    struct cell c = {.is_number = p->source == SOURCE_VALUE, .number = value};
    const char *error = NULL;
    struct bytes text = bytes_of(p->text, p->len);
    if (p->source != SOURCE_VALUE)
        buf_append_bytes(&c.text, p->source == SOURCE_LABEL ? label_set_get(labels, text) : text);
    for (size_t i = 0; i < p->n_steps && !error; i++)
        error = apply(&p->steps[i], &c);
    if (!error && c.is_number)
        number_append(c.number, out);
    else if (!error)
        buf_append_bytes(out, buf_bytes(&c.text));
    buf_free(&c.text);
    return error;
}

void alert_text_expand(
    const struct alert_text *t, const struct label_set *labels, double value, struct buf *out)
{
    size_t at = out->len;
    for (size_t i = 0; i < t->n; i++) {
        const char *error = expand(&t->parts[i], labels, value, out);
        if (!error)
            continue;
        out->len = at;
        buf_append_str(out, "<error expanding template: ");
        buf_append_str(out, error);
        buf_append_char(out, '>');
        return;
    }
}

static struct part *add_part(struct alert_text *t, enum source source, struct bytes text)
{
    struct part *p = ARRAY_ADD(t->parts, t->n, t->cap);
    *p = (struct part){.source = source, .text = bytes_dup(text), .len = text.len};
    return p;
}

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

/* Takes the next word of an action: a quoted text with its quotes, `|`, or characters up to a space or `|`. */
static struct bytes take_word(struct bytes *rest)
{
    *rest = bytes_trim(*rest);
    size_t n = 0;
    if (rest->len > 0 && rest->ptr[0] == '"') {
        for (n = 1; n < rest->len && rest->ptr[n] != '"'; n++)
            n += rest->ptr[n] == '\\';
        n = n < rest->len ? n + 1 : rest->len;
    } else if (rest->len > 0 && rest->ptr[0] == '|') {
        n = 1;
    } else {
        while (n < rest->len && !is_space(rest->ptr[n]) && rest->ptr[n] != '|')
            n++;
    }
    struct bytes word = bytes_of(rest->ptr, n);
    *rest = bytes_of(rest->ptr + n, rest->len - n);
    return word;
}

/* Appends the text of a quoted word. Returns false if the word is not quoted or has an escape other than \" \\ \n \t. */
static bool unquote(struct bytes word, struct buf *out)
{
    static const char from[] = "\"\\nt", to[] = "\"\\\n\t";
    if (word.len < 2 || word.ptr[0] != '"' || word.ptr[word.len - 1] != '"')
        return false;
    for (size_t i = 1; i + 1 < word.len; i++) {
        const char *found = NULL;
        if (word.ptr[i] == '\\' && !(found = memchr(from, word.ptr[++i], 4)))
            return false;
        buf_append_char(out, found ? to[found - from] : word.ptr[i]);
    }
    return true;
}

/* True if a format of printf has one verb for one value. */
static bool format_is_valid(const char *p)
{
    size_t verbs = 0;
    for (; *p != '\0'; p++) {
        if (*p != '%' || *++p == '%')
            continue;
        struct verb v = read_verb(&p);
        if (v.letter == '\0' || !strchr("svfeg", v.letter) || v.width > PRECISION_MAX || v.precision > PRECISION_MAX)
            return false;
        verbs++;
    }
    return verbs == 1;
}

/* Sets the source of an action from a word. Returns false if the word is not a value. */
static bool read_value(struct bytes word, struct part *p)
{
    static const char *const prefixes[] = {"$labels.", ".Labels."};
    struct buf text = {0};
    free(p->text);
    p->text = NULL;
    for (size_t i = 0; i < 2; i++) {
        struct bytes prefix = bytes_str(prefixes[i]);
        struct bytes name = bytes_starts_with(word, prefix) ? bytes_of(word.ptr + prefix.len, word.len - prefix.len) : BYTES_NONE;
        if (!label_name_is_valid(name))
            continue;
        *p = (struct part){.source = SOURCE_LABEL, .text = bytes_dup(name), .len = name.len};
        return true;
    }
    if (bytes_equal_str(word, "$value") || bytes_equal_str(word, ".Value")) {
        *p = (struct part){.source = SOURCE_VALUE};
        return true;
    }
    bool is_text = unquote(word, &text);
    if (is_text)
        *p = (struct part){.source = SOURCE_TEXT, .text = bytes_dup(buf_bytes(&text)), .len = text.len};
    buf_free(&text);
    return is_text;
}

static int refuse(struct error *error, struct bytes action, const char *why)
{
    action = bytes_trim(action);
    return error_set(error, -1, "template {{ %.*s }}: %s", (int)action.len, action.ptr, why);
}

/* Reads a function and the format of printf. Returns an error or NULL. */
static const char *read_step(struct bytes word, struct bytes *rest, struct step *step)
{
    size_t f = 0;
    while (f < FUNCTIONS && !bytes_equal_str(word, function_names[f]))
        f++;
    if (f == FUNCTIONS)
        return "only values and the functions of the guide are supported";
    *step = (struct step){.function = (enum function)f};
    if (f != PRINTF)
        return NULL;
    struct buf format = {0};
    if (unquote(take_word(rest), &format)) {
        buf_append_char(&format, '\0');
        step->format = mem_strdup(format.ptr);
    }
    buf_free(&format);
    return step->format && format_is_valid(step->format) ? NULL : "printf needs a format with one of %s %v %f %e %g";
}

/* Reads an action: VALUE or FUNCTION VALUE, then `| FUNCTION` any number of times. */
static int read_action(struct alert_text *t, struct bytes action, struct error *error)
{
    struct part *p = add_part(t, SOURCE_TEXT, BYTES_NONE);
    struct bytes rest = action, word = take_word(&rest);
    struct step first;
    bool has_first = !read_value(word, p);
    if (has_first) {
        const char *why = read_step(word, &rest, &first);
        if (!why && !read_value(take_word(&rest), p))
            why = "the function needs a value such as $value or $labels.NAME";
        if (why) {
            if (bytes_equal_str(word, "printf"))
                free(first.format);
            return refuse(error, action, why);
        }
        p->steps[p->n_steps++] = first;
    }
    while ((word = take_word(&rest)).len > 0) {
        if (!bytes_equal_str(word, "|") || p->n_steps == STEPS_MAX)
            return refuse(error, action, "expected | and a function");
        const char *why = read_step(take_word(&rest), &rest, &p->steps[p->n_steps++]);
        if (why)
            return refuse(error, action, why);
    }
    return 0;
}

static struct bytes cut_space(struct bytes text, bool at_start, bool at_end)
{
    while (at_start && text.len > 0 && is_space(text.ptr[0]))
        text = bytes_of(text.ptr + 1, text.len - 1);
    while (at_end && text.len > 0 && is_space(text.ptr[text.len - 1]))
        text.len--;
    return text;
}

static int read_parts(struct alert_text *t, struct bytes text, struct error *error)
{
    bool trims = false;
    while (text.len > 0) {
        const char *open = memmem(text.ptr, text.len, "{{", 2);
        size_t n = open ? (size_t)(open - text.ptr) : text.len;
        bool trims_before = open && n + 3 < text.len && open[2] == '-' && is_space(open[3]);
        struct bytes literal = cut_space(bytes_of(text.ptr, n), trims, trims_before);
        if (literal.len > 0)
            add_part(t, SOURCE_TEXT, literal);
        if (!open)
            break;
        struct bytes rest = bytes_of(open + 2 + trims_before, text.len - n - 2 - trims_before);
        const char *close = memmem(rest.ptr, rest.len, "}}", 2);
        if (!close)
            return error_set(error, -1, "template: {{ without }}");
        struct bytes action = bytes_of(rest.ptr, (size_t)(close - rest.ptr));
        trims = action.len > 1 && action.ptr[action.len - 1] == '-' && is_space(action.ptr[action.len - 2]);
        if (read_action(t, bytes_of(action.ptr, action.len - trims), error) != 0)
            return -1;
        text = bytes_of(close + 2, rest.len - action.len - 2);
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
        for (size_t k = 0; k < t->parts[i].n_steps; k++)
            free(t->parts[i].steps[k].format);
        free(t->parts[i].text);
    }
    free(t->parts);
    free(t);
    *tp = NULL;
}
