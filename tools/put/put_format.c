#include "tools/put/put_format.h"

#include "tools/put/log_format.h"

#include <stdlib.h>

static void *line_new(const struct put_form *form, struct error *error)
{
    (void)form, (void)error;
    return mem_zalloc(1);
}

static void ignore(void *reader)
{
    (void)reader;
}

static enum put_result end_nothing(void *reader, struct put_record *record)
{
    (void)reader, (void)record;
    return PUT_NONE;
}

static bool is_never_vital(const void *reader)
{
    (void)reader;
    return false;
}

static enum put_result add_line(void *reader, struct bytes line, struct put_record *record)
{
    (void)reader;
    record->event = line;
    return PUT_EVENT;
}

static struct bytes without_end(struct bytes line)
{
    while (line.len > 0 && (line.ptr[line.len - 1] == '\n' || line.ptr[line.len - 1] == '\r'))
        line.len--;
    return line;
}

struct log_reader {
    struct log_format *format;
    struct buf event;
};

static void *log_new(const struct put_form *form, struct error *error)
{
    struct log_format *format = log_format_new(form->log_format, error);
    struct log_reader *r = format ? mem_zalloc(sizeof *r) : NULL;
    if (r)
        r->format = format;
    return r;
}

static void log_free(void *reader)
{
    struct log_reader *r = reader;
    log_format_free(&r->format);
    buf_free(&r->event);
    free(r);
}

static enum put_result log_add(void *reader, struct bytes line, struct put_record *record)
{
    struct log_reader *r = reader;
    record->text = without_end(line);
    if (record->text.len == 0)
        return PUT_NONE;
    record->why = log_format_read(r->format, record->text, &r->event, &record->is_replaced);
    record->event = buf_bytes(&r->event);
    return record->why ? PUT_WRONG : PUT_EVENT;
}

static void *csv_reader(const struct put_form *form, struct error *error)
{
    (void)error;
    return csv_new(&form->csv);
}

static void csv_reader_free(void *reader)
{
    struct csv *c = reader;
    csv_free(&c);
}

static void csv_reader_begin(void *reader)
{
    csv_begin(reader);
}

static enum put_result csv_result(const struct csv *c, enum csv_result r, struct put_record *record)
{
    static const enum put_result results[] = {
        [CSV_MORE] = PUT_MORE, [CSV_NONE] = PUT_NONE, [CSV_EVENT] = PUT_EVENT, [CSV_WRONG] = PUT_WRONG};
    *record = (struct put_record){.event = csv_event(c),
        .text = without_end(csv_text(c)),
        .why = csv_wrong(c),
        .note = csv_note(c),
        .is_replaced = csv_is_replaced(c)};
    return r == CSV_WRONG && !csv_has_names(c) ? PUT_UNREADABLE : results[r];
}

static enum put_result csv_reader_add(void *reader, struct bytes line, struct put_record *record)
{
    return csv_result(reader, csv_add(reader, line), record);
}

static enum put_result csv_reader_end(void *reader, struct put_record *record)
{
    return csv_result(reader, csv_end(reader), record);
}

static bool csv_is_vital(const void *reader)
{
    return csv_is_inside(reader) || !csv_has_names(reader);
}

#define LOG_FORMAT(NAME)                                                                                     \
    {                                                                                                        \
        NAME, "line", true, false, log_new, log_free, ignore, log_add, end_nothing, is_never_vital           \
    }

static const struct put_format formats[] = {
    {"lines", "line", true, false, line_new, free, ignore, add_line, end_nothing, is_never_vital},
    LOG_FORMAT("combined"),
    LOG_FORMAT("vhost_combined"),
    LOG_FORMAT("log"), /* --log-format */
    {"csv", "record", false, true, csv_reader, csv_reader_free, csv_reader_begin, csv_reader_add,
        csv_reader_end, csv_is_vital},
};

const struct put_format *put_format_named(const char *name)
{
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (strcmp(formats[i].name, name) == 0)
            return &formats[i];
    return NULL;
}
