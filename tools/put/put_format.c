#include "tools/put/put_format.h"

#include "tools/put/log_format.h"

#include <stdlib.h>

/* Without both, each line is an event. */
struct put_reader {
    struct csv *csv;
    struct log_format *log;
    struct put_door *door;
    struct buf event; /* of a log */
};

struct put_reader *put_reader_new(const struct put_form *form, struct error *error)
{
    struct put_reader *r = mem_zalloc(sizeof *r);
    r->door = form->door;
    if (form->is_csv)
        r->csv = csv_new(&form->csv);
    else if (form->log_format && !(r->log = log_format_new(form->log_format, error)))
        put_reader_free(&r);
    return r;
}

void put_reader_free(struct put_reader **rp)
{
    struct put_reader *r = *rp;
    csv_free(&r->csv);
    log_format_free(&r->log);
    buf_free(&r->event);
    free(r);
    *rp = NULL;
}

static enum put_result csv_result(struct csv *csv, enum csv_result r, struct put_record *record)
{
    static const enum put_result results[] = {
        [CSV_MORE] = PUT_MORE, [CSV_NONE] = PUT_NONE, [CSV_EVENT] = PUT_EVENT, [CSV_WRONG] = PUT_WRONG};
    const struct csv_record *c = csv_record(csv);
    *record = (struct put_record){.event = buf_bytes(&c->event),
        .text = bytes_without_line_end(buf_bytes(&c->text)),
        .why = c->wrong,
        .note = c->note,
        .at = c->unclosed > 0 ? c->unclosed_at : 0,
        .is_replaced = c->is_replaced};
    return r == CSV_WRONG && (!c->has_names || c->unclosed > 0) ? PUT_UNREADABLE : results[r];
}

enum put_result put_reader_add(struct put_reader *r, struct bytes line, struct put_record *record)
{
    if (r->csv)
        return csv_result(r->csv, csv_add(r->csv, line), record);
    line = bytes_without_mark(line);
    record->event = line;
    if (!r->log)
        return PUT_EVENT;
    record->text = bytes_without_line_end(line);
    if (record->text.len == 0)
        return PUT_NONE;
    record->why = log_format_read(r->log, record->text, &r->event, &record->is_replaced);
    if (!record->why)
        put_door_pass(r->door, r->log, &r->event);
    record->event = buf_bytes(&r->event);
    return record->why ? PUT_WRONG : PUT_EVENT;
}

enum put_result put_reader_end(struct put_reader *r, struct put_record *record)
{
    return r->csv ? csv_result(r->csv, csv_end(r->csv), record) : PUT_NONE;
}

bool put_reader_needs_line(const struct put_reader *r)
{
    return r->csv && (csv_record(r->csv)->is_inside || !csv_record(r->csv)->has_names);
}
