#include "metricdb/sample_line.h"

#include <math.h>
#include <stdlib.h>

#define NUMBER_MAX 63
#define TIME_MAX 1e15 /* milliseconds; far beyond the store's */

enum { HAS_TIME = 1, HAS_LABELS = 2, HAS_VALUE = 4, HAS_ALL = 7, HAS_BY = 8, HAS_VALUES = 16 };

static void skip_space(struct sample_line *l)
{
    while (l->at < l->end && (*l->at == ' ' || *l->at == '\t' || *l->at == '\r'))
        l->at++;
}

static bool take(struct sample_line *l, char c)
{
    skip_space(l);
    if (l->at == l->end || *l->at != c)
        return false;
    l->at++;
    skip_space(l);
    return true;
}

/* Reads four hexadecimal digits. Returns -1 for another text. */
static int take_unit(struct sample_line *l)
{
    int unit = 0;
    for (int i = 0; i < 4; i++, l->at++) {
        int digit = l->at < l->end ? bytes_hex_digit(*l->at) : -1;
        if (digit < 0)
            return -1;
        unit = unit * 16 + digit;
    }
    return unit;
}

static void append_utf8(struct buf *b, unsigned c)
{
    static const unsigned char lead[] = {0, 0xc0, 0xe0, 0xf0};
    int more = c < 0x80 ? 0 : c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
    buf_append_char(b, (char)(lead[more] | c >> 6 * more));
    while (more-- > 0)
        buf_append_char(b, (char)(0x80u | (c >> 6 * more & 0x3fu)));
}

/* Reads the text after \u, which may be a pair of surrogates. */
static bool take_unicode(struct sample_line *l)
{
    int high = take_unit(l), low = 0;
    if (high < 0 || (high >= 0xdc00 && high < 0xe000))
        return false;
    if (high >= 0xd800 && high < 0xdc00) {
        if (l->end - l->at < 2 || l->at[0] != '\\' || l->at[1] != 'u')
            return false;
        l->at += 2;
        low = take_unit(l);
        if (low < 0xdc00 || low >= 0xe000)
            return false;
        high = 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00);
    }
    append_utf8(&l->text, (unsigned)high);
    return true;
}

static bool take_escape(struct sample_line *l)
{
    static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
    if (l->at == l->end)
        return false;
    char c = *l->at++;
    const char *found = c ? strchr(names, c) : NULL;
    if (found)
        buf_append_char(&l->text, values[found - names]);
    return found || (c == 'u' && take_unicode(l));
}

/* Reads a JSON string. A text with escapes goes to l->text, which has room for the whole line and so never moves. */
static bool take_text(struct sample_line *l, struct bytes *out)
{
    skip_space(l);
    if (l->at == l->end || *l->at != '"')
        return false;
    const char *plain = ++l->at;
    size_t begin = l->text.len;
    bool is_escaped = false;
    while (l->at < l->end && *l->at != '"') {
        if ((unsigned char)*l->at < 0x20)
            return false;
        if (*l->at++ != '\\')
            continue;
        buf_append(&l->text, plain, (size_t)(l->at - 1 - plain));
        is_escaped = true;
        if (!take_escape(l))
            return false;
        plain = l->at;
    }
    if (l->at == l->end)
        return false;
    *out = bytes_of(plain, (size_t)(l->at++ - plain));
    if (is_escaped) {
        buf_append_bytes(&l->text, *out);
        *out = bytes_of(l->text.ptr + begin, l->text.len - begin);
    }
    return true;
}

static bool is_of_number(char c)
{
    return (c >= '0' && c <= '9') || c == '.' || c == '-' || c == '+' || c == 'e' || c == 'E';
}

static bool take_number(struct sample_line *l, double *out)
{
    char copy[NUMBER_MAX + 1], *end;
    const char *begin = l->at;
    while (l->at < l->end && l->at - begin < NUMBER_MAX && is_of_number(*l->at))
        l->at++;
    struct bytes text = bytes_of(begin, (size_t)(l->at - begin));
    if (text.len == 0 || !(*begin == '-' || (*begin >= '0' && *begin <= '9')))
        return false;
    if (bytes_to_short_decimal(text, out))
        return true;
    memcpy(copy, text.ptr, text.len);
    copy[text.len] = '\0';
    *out = strtod(copy, &end);
    return *end == '\0';
}

static bool take_labels(struct sample_line *l)
{
    if (!take(l, '{'))
        return false;
    if (!take(l, '}')) {
        do {
            struct metric_label *label = ARRAY_ADD(l->labels, l->n_labels, l->cap_labels);
            if (!take_text(l, &label->name) || !take(l, ':') || !take_text(l, &label->value))
                return false;
        } while (take(l, ','));
        if (!take(l, '}'))
            return false;
    }
    return true;
}

static bool take_value(struct sample_line *l, struct sample_value *out)
{
    static const struct {
        const char *text;
        double value;
    } names[] = {{"NaN", NAN}, {"+Inf", INFINITY}, {"-Inf", -INFINITY}, {"stale", 0}};
    struct bytes text;
    out->is_stale = false;
    if (l->at < l->end && *l->at != '"')
        return take_number(l, &out->number);
    if (!take_text(l, &text))
        return false;
    size_t i = 0;
    while (i < sizeof names / sizeof *names && !bytes_equal_str(text, names[i].text))
        i++;
    if (i == sizeof names / sizeof *names)
        return false;
    out->number = names[i].value;
    out->is_stale = i == sizeof names / sizeof *names - 1;
    return true;
}

/* Reads `v`. Returns its bits, or 0 for another value. */
static unsigned take_values(struct sample_line *l)
{
    struct sample_value *v;
    if (!take(l, '{'))
        return take_value(l, ARRAY_ADD(l->values, l->n, l->cap)) ? HAS_VALUE : 0;
    do {
        v = ARRAY_ADD(l->values, l->n, l->cap);
        if (!take_text(l, &v->text) || !take(l, ':') || !take_value(l, v))
            return 0;
    } while (take(l, ','));
    return take(l, '}') ? HAS_VALUE | HAS_VALUES : 0;
}

/* Makes room for the label `by` at its place in the order of names. */
static void insert_by(struct sample_line *l, struct bytes name)
{
    ARRAY_ADD(l->labels, l->n_labels, l->cap_labels);
    for (l->by = l->labels + l->n_labels - 1; l->by > l->labels && bytes_compare(l->by[-1].name, name) > 0;
         l->by--)
        l->by[0] = l->by[-1];
    l->by->name = name;
}

/* Reads a member. Returns its bits, or 0 for another member or value. */
static unsigned take_member(struct sample_line *l, struct bytes *by)
{
    struct bytes name;
    double seconds;
    if (!take_text(l, &name) || !take(l, ':'))
        return 0;
    if (bytes_equal_str(name, "labels"))
        return take_labels(l) ? HAS_LABELS : 0;
    if (bytes_equal_str(name, "v"))
        return take_values(l);
    if (bytes_equal_str(name, "by"))
        return take_text(l, by) ? HAS_BY : 0;
    if (!bytes_equal_str(name, "t") || !take_number(l, &seconds) || !(fabs(seconds * 1000) < TIME_MAX))
        return 0;
    l->sample.at = llround(seconds * 1000);
    return HAS_TIME;
}

bool sample_line_read(struct sample_line *l, struct bytes line)
{
    struct bytes by;
    unsigned seen = 0;
    l->sample = (struct sample){0};
    l->by = NULL;
    l->n_labels = l->n = l->next = 0;
    l->at = line.ptr;
    l->end = line.ptr + line.len;
    buf_clear(&l->text);
    buf_reserve(&l->text, line.len);
    if (!bytes_is_utf8(line) || !take(l, '{'))
        return false;
    do {
        unsigned member = take_member(l, &by);
        if (!member || (seen & member))
            return false;
        seen |= member;
    } while (take(l, ','));
    if (!take(l, '}') || l->at != l->end || (seen != HAS_ALL && seen != (HAS_ALL | HAS_BY | HAS_VALUES)))
        return false;
    if (seen & HAS_BY)
        insert_by(l, by);
    return true;
}

bool sample_line_next(struct sample_line *l)
{
    if (l->next == l->n)
        return false;
    const struct sample_value *v = &l->values[l->next++];
    if (l->by)
        l->by->value = v->text;
    l->sample.labels = l->labels;
    l->sample.n_labels = l->n_labels;
    l->sample.value = v->number;
    l->sample.is_stale = v->is_stale;
    return true;
}

void sample_line_free(struct sample_line *l)
{
    free(l->labels);
    free(l->values);
    buf_free(&l->text);
    *l = (struct sample_line){0};
}
