#include "tools/put/csv_record.h"

#include <stdio.h>
#include <stdlib.h>

enum state {
    BEGIN,
    PLAIN,
    QUOTED,
    CLOSED
}; /* CLOSED: after a quote in QUOTED, which ends the value unless another follows */

struct csv {
    struct buf names; /* of the fields, each as JSON */
    size_t *name_ends, n_names;
    enum state state;
    bool at_start;     /* of the file */
    struct buf text;   /* of the record, as read */
    struct buf values; /* without quotes */
    size_t *ends, n_fields, room;
    struct buf event;
    char wrong[120];
};

struct csv *csv_new(void)
{
    struct csv *c = mem_zalloc(sizeof *c);
    csv_begin(c);
    return c;
}

void csv_free(struct csv **cp)
{
    struct csv *c = *cp;
    if (!c)
        return;
    buf_free(&c->names);
    buf_free(&c->text);
    buf_free(&c->values);
    buf_free(&c->event);
    free(c->name_ends);
    free(c->ends);
    free(c);
    *cp = NULL;
}

static void begin_record(struct csv *c)
{
    c->state = BEGIN;
    c->n_fields = 0;
    buf_clear(&c->text);
    buf_clear(&c->values);
}

void csv_begin(struct csv *c)
{
    begin_record(c);
    buf_clear(&c->names);
    c->n_names = 0;
    c->at_start = true;
}

/* The record stays readable until the next line. */
static enum csv_result fail(struct csv *c, const char *why)
{
    snprintf(c->wrong, sizeof c->wrong, "%s", why);
    c->state = BEGIN;
    return CSV_WRONG;
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

static enum csv_result take_names(struct csv *c)
{
    buf_clear(&c->names);
    c->name_ends = mem_realloc(c->name_ends, c->n_fields * sizeof *c->name_ends);
    for (size_t i = 0; i < c->n_fields; i++) {
        struct bytes name = part(&c->values, c->ends, i);
        if (name.len == 0)
            return fail(c, "the first line names the fields, and has an empty name");
        buf_append_json(&c->names, name);
        c->name_ends[i] = c->names.len;
        for (size_t k = 0; k < i; k++)
            if (bytes_equal(part(&c->names, c->name_ends, k), part(&c->names, c->name_ends, i)))
                return fail(c, "the first line names the fields, and has a name twice");
    }
    c->n_names = c->n_fields;
    return CSV_NONE;
}

static enum csv_result end_record(struct csv *c)
{
    end_field(c);
    if (c->n_fields == 1 && c->text.len <= strlen("\r\n") && c->values.len == 0)
        return CSV_NONE; /* an empty line */
    if (c->n_names == 0)
        return take_names(c);
    if (c->n_fields != c->n_names) {
        char why[sizeof c->wrong];
        snprintf(why, sizeof why, "the record has %zu fields, and the first line has %zu", c->n_fields,
            c->n_names);
        return fail(c, why);
    }
    buf_clear(&c->event);
    for (size_t i = 0; i < c->n_fields; i++) {
        struct bytes value = part(&c->values, c->ends, i);
        if (value.len == 0)
            continue;
        buf_append_char(&c->event, c->event.len > 0 ? ',' : '{');
        buf_append_bytes(&c->event, part(&c->names, c->name_ends, i));
        buf_append_char(&c->event, ':');
        if (is_number(value))
            buf_append_bytes(&c->event, value);
        else
            buf_append_json(&c->event, value);
    }
    buf_append_str(&c->event, c->event.len > 0 ? "}" : "{}");
    return CSV_EVENT;
}

/* Returns the reason if the byte is wrong. */
static const char *add_byte(struct csv *c, char byte)
{
    bool is_quote = byte == '"', ends_field = byte == ',' && c->state != QUOTED;
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
    if (is_quote)
        c->state = c->state == QUOTED ? CLOSED : QUOTED;
    else if (c->state == BEGIN)
        c->state = PLAIN;
    return NULL;
}

enum csv_result csv_add(struct csv *c, struct bytes line)
{
    static const struct bytes mark = {"\xEF\xBB\xBF", 3};
    if (c->state != QUOTED)
        begin_record(c);
    if (c->at_start && bytes_starts_with(line, mark))
        line = bytes_of(line.ptr + mark.len, line.len - mark.len);
    c->at_start = false;
    if (c->text.len + line.len > CSV_RECORD_MAX)
        return fail(c, "the record is too long, or a quote is missing");
    buf_append_bytes(&c->text, line);
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
    return c->state == QUOTED ? fail(c, "the closing quote of a value is missing") : CSV_NONE;
}

bool csv_has_names(const struct csv *c)
{
    return c->n_names > 0;
}

bool csv_is_inside(const struct csv *c)
{
    return c->state == QUOTED;
}

struct bytes csv_event(const struct csv *c)
{
    return buf_bytes(&c->event);
}

struct bytes csv_text(const struct csv *c)
{
    return buf_bytes(&c->text);
}

const char *csv_wrong(const struct csv *c)
{
    return c->wrong;
}
