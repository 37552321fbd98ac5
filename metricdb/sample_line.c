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

/* Reads a JSON string. A text with escapes goes to l->text, which has room for the whole line and so never moves. */
static bool take_text(struct sample_line *l, struct bytes *out)
{
    skip_space(l);
    if (l->at == l->end || *l->at != '"')
        return false;
    const char *begin = ++l->at;
    bool is_escaped = false;
    for (; l->at < l->end && *l->at != '"'; l->at++) {
        if ((unsigned char)*l->at < 0x20)
            return false;
        if (*l->at == '\\' && l->at + 1 < l->end) {
            l->at++;
            is_escaped = true;
        }
    }
    if (l->at == l->end)
        return false;
    *out = bytes_of(begin, (size_t)(l->at++ - begin));
    if (!is_escaped)
        return true;
    size_t place = l->text.len;
    bool is_valid = buf_append_json_text(&l->text, *out);
    *out = bytes_of(l->text.ptr + place, l->text.len - place);
    return is_valid;
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
