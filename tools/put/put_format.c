#include "tools/put/put_format.h"

#include "tools/put/access_log.h"
#include "tools/put/csv_record.h"

#include <stdlib.h>

static void *no_reader(void)
{
    return NULL;
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

static void *access_new(void)
{
    return mem_zalloc(sizeof(struct buf));
}

static void access_free(void *reader)
{
    buf_free(reader);
    free(reader);
}

static enum put_result access_add(void *reader, struct bytes line, struct put_record *record)
{
    record->text = without_end(line);
    if (record->text.len == 0)
        return PUT_NONE;
    record->why = access_log_read(record->text, reader);
    record->event = buf_bytes(reader);
    return record->why ? PUT_WRONG : PUT_EVENT;
}

static void *csv_reader(void)
{
    return csv_new();
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
    *record = (struct put_record){
        .event = csv_event(c), .text = without_end(csv_text(c)), .why = csv_wrong(c)};
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

static const struct put_format formats[] = {
    {"lines", "line", true, no_reader, ignore, ignore, add_line, end_nothing, is_never_vital},
    {"combined", "line", true, access_new, access_free, ignore, access_add, end_nothing, is_never_vital},
    {"csv", "record", false, csv_reader, csv_reader_free, csv_reader_begin, csv_reader_add, csv_reader_end,
        csv_is_vital},
};

const struct put_format *put_format_named(const char *name)
{
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (strcmp(formats[i].name, name) == 0)
            return &formats[i];
    return NULL;
}
