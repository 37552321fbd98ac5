#include "base/amount.h"
#include "base/csv_record.h"

#include "base/rfc3339.h"

#include <stdio.h>
#include <stdlib.h>

/* CLOSED: after a quote in QUOTED. This quote ends the value unless another quote follows. */
enum state { BEGIN, PLAIN, QUOTED, CLOSED };

struct csv {
    struct csv_record r;
    struct csv_form form;
    char delimiter;
    struct buf names; /* names of the fields, each as JSON; empty: the field is left out */
    size_t *name_ends, n_names;
    size_t time_column;
    bool has_noted[RFC3339_SKIPPED]; /* the kinds of notes about times that were given for this file */
    char note_text[300];
    enum state state;
    bool at_start; /* of the file */
    size_t line_at,
        quoted_from;   /* the current line in the text; the number of the line of the last opening quote */
    struct buf values; /* without quotes */
    size_t *ends, n_fields, room;
};

struct csv *csv_new(const struct csv_form *form)
{
    struct csv *c = mem_zalloc(sizeof *c);
    c->form = *form;
    csv_begin(c);
    return c;
}

void csv_free(struct csv **cp)
{
    struct csv *c = *cp;
    if (!c)
        return;
    buf_free(&c->names);
    buf_free(&c->r.text);
    buf_free(&c->values);
    buf_free(&c->r.event);
    free(c->name_ends);
    free(c->ends);
    free(c);
    *cp = NULL;
}

static void begin_record(struct csv *c)
{
    c->state = BEGIN;
    c->n_fields = 0;
    c->r.lines = c->r.unclosed = 0;
    buf_clear(&c->r.text);
    buf_clear(&c->values);
}

void csv_begin(struct csv *c)
{
    begin_record(c);
    buf_clear(&c->names);
    c->n_names = 0;
    c->at_start = true;
    c->delimiter = c->form.delimiter;
    c->r.note = NULL;
}

/* The record stays readable until the next line. */
static enum csv_result fail(struct csv *c, const char *why)
{
    snprintf(c->r.wrong, sizeof c->r.wrong, "%s", why);
    c->state = BEGIN;
    return CSV_WRONG;
}

static enum csv_result fail_unclosed(struct csv *c, const char *why)
{
    c->r.unclosed = c->r.lines - c->quoted_from + 1;
    return fail(c, why);
}

static struct bytes part(const struct buf *text, const size_t *ends, size_t i)
{
    size_t from = i > 0 ? ends[i - 1] : 0;
    return bytes_of(text->ptr + from, ends[i] - from);
}

static void end_field(struct csv *c)
{
    *ARRAY_ADD(c->ends, c->n_fields, c->room) = c->values.len;
    c->state = BEGIN;
}

static size_t digits(struct bytes text, size_t at)
{
    size_t n = 0;
    while (at + n < text.len && text.ptr[at + n] >= '0' && text.ptr[at + n] <= '9')
        n++;
    return n;
}

static bool is_number(struct bytes text)
{
    size_t at = text.len > 0 && text.ptr[0] == '-', whole = digits(text, at);
    if (text.len > CSV_NUMBER_MAX || whole == 0 || (whole > 1 && text.ptr[at] == '0'))
        return false;
    at += whole;
    if (at == text.len)
        return true;
    size_t fraction = text.ptr[at] == '.' ? digits(text, at + 1) : 0;
    return fraction > 0 && at + 1 + fraction == text.len;
}

/* Adds a column that is left out to the note. */
static void note_column(struct csv *c, size_t column, struct bytes name)
{
    size_t n = c->r.note ? strlen(c->note_text) : 0;
    const char *before =
        c->r.note ? ", " : "ignored: columns without a name, or with the name of an earlier column: ";
    snprintf(c->note_text + n, sizeof c->note_text - n, "%s%zu%s%.*s%s", before, column + 1,
        name.len ? " (" : "", (int)(name.len < 60 ? name.len : 60), name.ptr ? name.ptr : "",
        name.len ? ")" : "");
    c->r.note = c->note_text;
}

static enum csv_result take_names(struct csv *c)
{
    size_t named = 0;
    if (c->values.len > 0 && memchr(c->values.ptr, '\0', c->values.len))
        return fail(c, CSV_HAS_NULS);
    buf_clear(&c->names);
    c->name_ends = mem_realloc(c->name_ends, c->n_fields * sizeof *c->name_ends);
    c->time_column = CSV_NO_COLUMN;
    for (size_t i = 0; i < c->n_fields; i++) {
        struct bytes name = part(&c->values, c->ends, i);
        size_t from = c->names.len;
        bool is_known = name.len == 0;
        buf_append_json(&c->names, name);
        struct bytes json = bytes_of(c->names.ptr + from, c->names.len - from);
        for (size_t k = 0; k < i && !is_known; k++)
            is_known = bytes_equal(part(&c->names, c->name_ends, k), json);
        if (is_known) {
            c->names.len = from;
            note_column(c, i, name);
        } else if (c->form.time_column && bytes_equal_str(name, c->form.time_column))
            c->time_column = i;
        c->name_ends[i] = c->names.len;
        named += !is_known;
    }
    if (named == 0)
        return fail(c, "the first line must name the fields, but names none");
    c->n_names = c->n_fields;
    return CSV_NONE;
}

static void note_once(struct csv *c, enum rfc3339_zone about, const char *text)
{
    if (!c->has_noted[about])
        c->r.note = text;
    c->has_noted[about] = true;
}

/* Appends a time in the form time_form, or in a form of rfc3339_read_lenient. */
static bool append_time(struct csv *c, struct bytes value)
{
    char text[RFC3339_TEXT], copy[64];
    int64_t time;
    enum rfc3339_zone zone;
    if (value.len >= sizeof copy || (!c->form.time_form && rfc3339_read(value, &time)))
        return false;
    snprintf(copy, sizeof copy, "%.*s", (int)value.len, value.ptr);
    if (!(c->form.time_form ? rfc3339_read_form(copy, c->form.time_form, &time, &zone)
                            : rfc3339_read_lenient(value, &time, &zone)))
        return false;
    if (zone == RFC3339_SKIPPED)
        snprintf(c->r.wrong, sizeof c->r.wrong, "the clocks of --time-zone skip the time %s", copy);
    if (zone == RFC3339_TWICE)
        note_once(
            c, zone, "some times occur twice because the clocks are set back; the first occurrence counts");
    else if (zone != RFC3339_ZONED && !c->form.has_zone)
        note_once(c, RFC3339_NAIVE, "times without a zone are read in the zone of --time-zone (default UTC)");
    buf_append_json(&c->r.event, bytes_str(rfc3339_write(time, text)));
    return true;
}

/* Refuses a value of the time column that is in no form of a time. */
static void refuse_no_time(struct csv *c, struct bytes value)
{
    int64_t time;
    if (rfc3339_read(value, &time) || bytes_to_usec(value, &time))
        return;
    snprintf(c->r.wrong, sizeof c->r.wrong, "%.*s is not a time%s", value.len < 60 ? (int)value.len : 60,
        value.ptr,
        c->form.time_form ? " of the form of --time-format"
                          : "; name its form, such as --time-format='%d.%m.%Y %H:%M'");
}

/* Refuses a time in another form than RFC 3339, if the file has no time column. */
static void refuse_text_time(struct csv *c, size_t column, struct bytes value)
{
    int64_t time;
    enum rfc3339_zone zone;
    bool is_chosen = c->form.time_column && !*c->form.time_column;
    if (is_chosen || c->r.wrong[0] || rfc3339_read(value, &time) ||
        !rfc3339_read_lenient(value, &time, &zone))
        return;
    struct bytes name = part(&c->names, c->name_ends, column);
    snprintf(c->r.wrong, sizeof c->r.wrong,
        "%.*s has a time, but is not the time column; use --time-field=COLUMN, or --time-field= to post "
        "times as texts",
        name.len < 60 ? (int)name.len : 60, name.ptr);
}

/* Returns the number without a fraction of zeros. */
static struct bytes short_number(struct bytes number)
{
    const char *point = memchr(number.ptr, '.', number.len);
    size_t n = number.len;
    while (point && number.ptr[n - 1] == '0')
        n--;
    struct bytes whole = point && number.ptr + n - 1 == point ? bytes_of(number.ptr, n - 1) : number;
    return bytes_equal_str(whole, "-0") ? bytes_of(whole.ptr + 1, 1) : whole;
}

static void append_value(struct csv *c, size_t i, struct bytes value)
{
    bool is_time = i == c->time_column, has_digits = is_time && digits(value, 0) == value.len;
    buf_append_char(&c->r.event, c->r.event.len > 0 ? ',' : '{');
    buf_append_bytes(&c->r.event, part(&c->names, c->name_ends, i));
    buf_append_char(&c->r.event, ':');
    if (is_time && c->form.time_form && append_time(c, value))
        return;
    if (is_number(value))
        buf_append_bytes(&c->r.event, short_number(value));
    else if (has_digits && value.len <= 19 && value.ptr[0] != '0') /* nanoseconds */
        buf_append_bytes(&c->r.event, value);
    else if (!is_time || !append_time(c, value)) {
        buf_append_json(&c->r.event, value);
        if (is_time)
            refuse_no_time(c, value);
    }
    if (c->time_column == CSV_NO_COLUMN)
        refuse_text_time(c, i, value);
}

static enum csv_result end_record(struct csv *c)
{
    end_field(c);
    if (c->n_fields == 1 && c->r.text.len <= strlen("\r\n") && c->values.len == 0)
        return CSV_NONE; /* an empty line */
    if (c->n_names == 0)
        return take_names(c);
    while (c->n_fields > c->n_names && part(&c->values, c->ends, c->n_fields - 1).len == 0)
        c->n_fields--;
    if (c->n_fields != c->n_names) {
        char why[sizeof c->r.wrong];
        snprintf(why, sizeof why, "the record has %zu %s, and the first line has %zu%s", c->n_fields,
            plural(c->n_fields, "field", "fields"), c->n_names,
            c->n_fields > c->n_names ? "; quotes must enclose a value that contains the delimiter" : "");
        return fail(c, why);
    }
    buf_clear(&c->r.event);
    c->r.wrong[0] = '\0';
    c->r.is_replaced = !bytes_is_utf8(buf_bytes(&c->values));
    for (size_t i = 0; i < c->n_fields; i++) {
        struct bytes value = part(&c->values, c->ends, i);
        if (value.len > 0 && part(&c->names, c->name_ends, i).len > 0)
            append_value(c, i, value);
    }
    buf_append_str(&c->r.event, c->r.event.len > 0 ? "}" : "{}");
    return c->r.wrong[0] ? CSV_WRONG : CSV_EVENT;
}

/* Returns the delimiter that is most frequent outside quotes in the first line. */
static char find_delimiter(struct bytes line)
{
    size_t counts[sizeof CSV_DELIMITERS] = {0}, best = 0;
    bool is_quoted = false;
    for (size_t i = 0; i < line.len; i++) {
        const char *d = line.ptr[i] ? strchr(CSV_DELIMITERS, line.ptr[i]) : NULL;
        is_quoted = is_quoted != (line.ptr[i] == '"');
        if (d && !is_quoted)
            counts[d - CSV_DELIMITERS]++;
    }
    for (size_t i = 1; i < sizeof CSV_DELIMITERS - 1; i++)
        best = counts[i] > counts[best] ? i : best;
    return CSV_DELIMITERS[best];
}

/* Reads a line "sep=;" before the names, which Excel also reads. */
static bool read_separator(struct csv *c, struct bytes line)
{
    static const struct bytes sep = {"sep=", 4};
    struct bytes text = line;
    while (text.len > 0 && (text.ptr[text.len - 1] == '\n' || text.ptr[text.len - 1] == '\r'))
        text.len--;
    if (text.len != sep.len + 1 || !bytes_equal_nocase(bytes_of(text.ptr, sep.len), sep))
        return false;
    c->delimiter = c->form.delimiter ? c->form.delimiter : text.ptr[sep.len];
    return true;
}

/* Returns the reason if the byte is wrong. */
static const char *add_byte(struct csv *c, char byte)
{
    bool is_quote = byte == '"', ends_field = byte == c->delimiter && c->state != QUOTED;
    if (ends_field) {
        end_field(c);
        return c->n_fields < CSV_FIELDS_MAX ? NULL : "the record has too many fields";
    }
    if (is_quote && c->state == PLAIN)
        return "a quote within a value without quotes";
    if (!is_quote && c->state == CLOSED)
        return "text after a closing quote";
    if (!is_quote || c->state == CLOSED)
        buf_append_char(&c->values, byte);
    if (is_quote && c->state == BEGIN)
        c->quoted_from = c->r.lines, c->r.unclosed_at = c->line_at;
    if (is_quote)
        c->state = c->state == QUOTED ? CLOSED : QUOTED;
    else if (c->state == BEGIN)
        c->state = PLAIN;
    return NULL;
}

enum csv_result csv_add(struct csv *c, struct bytes line)
{
    if (c->state != QUOTED)
        begin_record(c);
    c->r.lines++;
    c->r.note = NULL;
    if (c->at_start)
        line = bytes_without_mark(line);
    if (c->at_start && read_separator(c, line)) {
        c->at_start = false;
        return CSV_NONE;
    }
    if (!c->delimiter && line.len > 0 && !strchr("\r\n", line.ptr[0]))
        c->delimiter = find_delimiter(line);
    c->at_start = false;
    if (c->r.text.len + line.len > CSV_RECORD_MAX)
        return c->state == QUOTED ? fail_unclosed(c, "the record is too long, or a quote is missing")
                                  : fail(c, "the record is too long");
    c->line_at = c->r.text.len;
    buf_append_bytes(&c->r.text, line);
    bool has_end = line.len > 0 && line.ptr[line.len - 1] == '\n';
    size_t end = line.len - has_end;
    bool has_cr = has_end && end > 0 && line.ptr[end - 1] == '\r';
    for (size_t i = 0; i < end - has_cr; i++) {
        const char *why = add_byte(c, line.ptr[i]);
        if (why)
            return fail(c, why);
    }
    if (c->state != QUOTED)
        return end_record(c);
    buf_append(&c->values, line.ptr + end - has_cr, has_cr + has_end);
    return has_end ? CSV_MORE : csv_end(c);
}

enum csv_result csv_end(struct csv *c)
{
    return c->state == QUOTED ? fail_unclosed(c, "the closing quote of a value is missing") : CSV_NONE;
}

size_t csv_column(const struct csv *c, const char *name)
{
    struct buf json = {0};
    size_t i = 0;
    buf_append_json(&json, bytes_str(name));
    while (i < c->n_names && !bytes_equal(part(&c->names, c->name_ends, i), buf_bytes(&json)))
        i++;
    buf_free(&json);
    return i < c->n_names ? i : CSV_NO_COLUMN;
}

struct bytes csv_value(const struct csv *c, size_t column)
{
    return column < c->n_fields ? part(&c->values, c->ends, column) : BYTES_NONE;
}

bool csv_read_delimiter(const char *text, char *delimiter)
{
    bool is_tab = strcmp(text, "tab") == 0 || strcmp(text, "\\t") == 0;
    *delimiter = is_tab ? '\t' : *text;
    return is_tab || (strlen(text) == 1 && !strchr("\"\r\n", *text));
}

const struct csv_record *csv_record(struct csv *c)
{
    c->r.has_names = c->n_names > 0;
    c->r.is_inside = c->state == QUOTED;
    return &c->r;
}
