#include "tools/put/put_counted.h"

#include "base/amount.h"
#include "base/csv_record.h"

#include <inttypes.h>
#include <string.h>
#include <sysexits.h>

#define LINE_SHOWN 200

void put_counted_begin(struct put_counted *c, const struct config *config, const char *data_dir)
{
    struct error ignored;
    struct pipeline pipeline;
    *c = (struct put_counted){.lines = 0};
    if (!config || !config_section(config, "input", "")) {
        pipeline_open(&pipeline, config, data_dir);
        if (pipeline.config_path && config_read(pipeline.config_path, &c->own_config, &ignored) == 0)
            config = c->own_config;
        pipeline_close(&pipeline);
    }
    if (config && config_section(config, "input", "") && counters_read(config, &c->counters, &ignored) == 0)
        c->reader = counters_reader_new(c->counters);
}

/* The remedy for input that is not a line of JSON for each event, or "". */
static const char *remedy(struct bytes line, const char *reason)
{
    if (strncmp(reason, "not ", 4) != 0)
        return "";
    if (memchr(line.ptr, '\0', line.len))
        return "; " CSV_HAS_NULS;
    if (*line.ptr == '[')
        return "; of an array, `jq -c '.[]'` makes a line for each event";
    if (bytes_equal_str(line, "{"))
        return "; `jq -c .` makes a line for each event";
    return *line.ptr == '{' ? "" : "; a CSV file or an access log needs --format";
}

/* Names the correction if the events have their times in the column of --time-field, and not in the field of `time`. */
static void print_time_column(const struct put_counted *c)
{
    const char *field = c->counters->time_field, *column = c->time_column;
    if (column && *column && strcmp(column, field) != 0 && strstr(c->first.ptr, "is missing: no time"))
        tool_fail(0,
            "the time column is %s, but `time` of [input] is %s: in the first line of the file, change %s to "
            "%s, "
            "and omit --time-field",
            column, field, column, field);
}

void put_counted_add(struct put_counted *c, struct bytes line, const char *input, uint64_t offset)
{
    struct counters_event event;
    line = bytes_trim(line);
    if (!c->reader || line.len == 0)
        return;
    counters_reader_set_now(c->reader, clock_wall() / USEC_PER_SEC);
    c->lines++;
    if (counters_extract(c->reader, line, &event) != COUNTERS_REJECTED)
        return;
    if (c->rejected++ == 0)
        buf_printf(&c->first, "%s; first at byte %" PRIu64 " of %s: `%.*s`%s", event.reason, offset, input,
            (int)(line.len < LINE_SHOWN ? line.len : LINE_SHOWN), line.ptr, remedy(line, event.reason));
}

/* Prints the fields of counters that no event has. Unlike the aggregator, put has all events of its input, so that a few
 * events suffice for a note. Only many events make a wrong name probable. */
static void print_absent_fields(const struct put_counted *c)
{
    struct buf fields = {0};
    size_t n = counters_reader_end_sample(c->reader);
    const char *field;
    for (size_t i = 0; (field = counters_reader_absent(c->reader, i)); i++)
        buf_printf(&fields, "%s%s", i > 0 ? ", " : "", field);
    if (fields.len > 0 && n < COUNTERS_SAMPLE)
        tool_fail(0,
            "note: counters use the field %s, which %s. If the events should have it, correct its name in "
            "the "
            "configuration or in the events; if not, name it in `optional` of [input]",
            fields.ptr, n == 1 ? "the event does not have" : "none of these events has");
    else if (fields.len > 0)
        tool_fail(0,
            "warning: no event of %zu has the configured field %s (correct the field's name in the "
            "configuration, or the sender; or name the field in `optional` of [input])",
            n, fields.ptr);
    buf_free(&fields);
}

int put_counted_report(struct put_counted *c, bool is_posted)
{
    if (c->rejected > 0 && is_posted)
        tool_fail(0, "warning: %" PRIu64 " of %" PRIu64 " %s cannot be counted: %s (see millrace rejects)",
            c->rejected, c->lines, plural(c->lines, "line", "lines"), c->first.ptr);
    if (c->rejected > 0 && is_posted)
        print_time_column(c);
    if (c->reader && is_posted)
        print_absent_fields(c);
    int status = c->rejected > 0 && c->rejected == c->lines ? EX_DATAERR : 0;
    counters_reader_free(&c->reader);
    counters_free(&c->counters);
    config_free(&c->own_config);
    buf_free(&c->first);
    return status;
}
