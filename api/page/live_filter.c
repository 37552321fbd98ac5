#include "api/page/live_filter.h"

#include "base/erased_line.h"
#include "counts/condition.h"

#include <stdlib.h>

#define UNDECIDED                                                                                            \
    "event: undecided\ndata: \"the condition takes too many steps for a line; such lines are left out\"\n\n"

struct live_filter {
    struct condition *condition;
    struct json_fields *fields;
    struct json_value *values;
    /* the text and the data of the event that is being read; the id of the last removed event */
    struct buf event, data, id;
    bool has_name, has_data, was_undecided;
};

struct live_filter *live_filter_new(struct bytes condition, struct error *error)
{
    struct condition *c = condition_new(condition, error);
    const char **paths = NULL;
    size_t n = 0;
    if (!c)
        return NULL;
    struct live_filter *f = mem_zalloc(sizeof *f);
    f->condition = c;
    condition_add_fields(c, &paths, &n);
    f->fields = json_fields_new(paths, n);
    f->values = mem_zalloc(n * sizeof *f->values);
    free(paths);
    return f;
}

void live_filter_free(struct live_filter **fp)
{
    struct live_filter *f = *fp;
    if (!f)
        return;
    condition_free(&f->condition);
    json_fields_free(&f->fields);
    free(f->values);
    buf_free(&f->event);
    buf_free(&f->data);
    buf_free(&f->id);
    free(f);
    *fp = NULL;
}

static bool passes(struct live_filter *f, struct buf *out)
{
    const char *reason;
    struct bytes line = buf_bytes(&f->data);
    if (f->has_name || !f->has_data)
        return true;
    if (erased_line_is(line) || json_fields_extract(f->fields, line, f->values, &reason) != 0)
        return false;
    enum condition_result r = condition_test(f->condition, f->values);
    if (r == CONDITION_UNDECIDED && !f->was_undecided)
        buf_append_str(out, UNDECIDED);
    f->was_undecided = f->was_undecided || r == CONDITION_UNDECIDED;
    return r == CONDITION_TRUE;
}

void live_filter_take(struct live_filter *f, struct bytes line, struct buf *out)
{
    static const struct bytes data = BYTES_LITERAL("data: "), name = BYTES_LITERAL("event: "),
                              id = BYTES_LITERAL("id: ");
    buf_append_bytes(&f->event, line);
    buf_append_char(&f->event, '\n');
    f->has_name = f->has_name || bytes_starts_with(line, name);
    if (bytes_starts_with(line, data)) {
        if (f->has_data)
            buf_append_char(&f->data, '\n');
        f->has_data = true;
        buf_append(&f->data, line.ptr + data.len, line.len - data.len);
    } else if (bytes_starts_with(line, id)) {
        buf_clear(&f->id);
        buf_append_bytes(&f->id, line);
    }
    if (line.len > 0)
        return;
    if (passes(f, out)) {
        buf_append_bytes(out, buf_bytes(&f->event));
        buf_clear(&f->id);
    }
    buf_clear(&f->event);
    buf_clear(&f->data);
    f->has_name = f->has_data = false;
}

void live_filter_pass_id(struct live_filter *f, struct buf *out)
{
    if (f->id.len == 0 || f->event.len > 0)
        return;
    buf_append_bytes(out, buf_bytes(&f->id));
    buf_append_str(out, "\n\n");
    buf_clear(&f->id);
}
