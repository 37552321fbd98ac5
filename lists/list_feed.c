#include "lists/list_feed.h"

#include "base/erased_line.h"
#include "json/json_fields.h"
#include "json/json_path.h"
#include "stream/stream_feed.h"
#include "stream/stream_program.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define LINE_MAX_BYTES (LIST_DATA_MAX * 2) /* JSON may escape characters */

const char *const list_feed_fields[LIST_FEED_FIELDS] = {
    [LIST_FEED_OP] = "op_field",
    [LIST_FEED_ID] = "id_field",
    [LIST_FEED_KEYS] = "keys_field",
    [LIST_FEED_AUTHOR] = "author_field",
    [LIST_FEED_FOLLOWER] = "follower_field",
    [LIST_FEED_TIME] = "time_field",
    [LIST_FEED_DATA] = "data_field",
};

struct list_feed {
    struct lists_change change; /* first; the change that is being stored */
    struct lists_server *server;
    struct stream_feed *stream;
    struct json_fields *fields;
    bool has_data_field;
    struct buf keys_pointer; /* of the field with the keys, as a JSON pointer with its NUL */
    struct buf collected;    /* operations of the lines from the change's cursor to the stream's cursor */
    struct buf texts[LIST_FEED_FIELDS], names;
    char tag[STREAM_CURSOR_TEXT]; /* of the change */
    bool is_storing;
    struct stats_counter *lines, *bad;
};

static void skip(struct list_feed *f, const char *why, struct bytes line)
{
    stats_add(f->bad, 1);
    stream_feed_log_skipped(f->stream, why, line);
}

/* Returns the text of a string or an integer, or BYTES_NONE. A number's text is in *number. */
static struct bytes text_of(const struct json_value *v, struct buf *number)
{
    buf_clear(number);
    if (v->type == JSON_STRING)
        return v->v.string;
    if (v->type == JSON_I64)
        buf_printf(number, "%" PRId64, v->v.i64);
    else if (v->type == JSON_U64)
        buf_append_u64(number, v->v.u64);
    return number->len > 0 ? buf_bytes(number) : BYTES_NONE;
}

/* Appends a name. Returns false if the value is none. */
static bool add_name(struct list_feed *f, const struct json_value *v)
{
    struct bytes name = text_of(v, &f->texts[LIST_FEED_KEYS]);
    bool is_valid = list_name_is_valid(name);
    if (is_valid)
        list_name_append(&f->names, name);
    return is_valid;
}

static bool add_element(const struct json_doc *item, size_t i, void *arg)
{
    struct json_value v = json_doc_at(item, "");
    (void)i;
    return add_name(arg, &v);
}

/* Appends the keys of a line. Returns false if the value is neither a name nor an array of names. */
static bool add_keys(struct list_feed *f, const struct json_value *v, struct bytes line)
{
    if (v->type != JSON_ARRAY)
        return add_name(f, v);
    struct json_doc *doc = json_doc_parse(line);
    bool r = json_doc_each(doc, f->keys_pointer.ptr, add_element, f);
    json_doc_free(&doc);
    return r;
}

/* Reads a time in seconds. Returns false if the value is none. */
static bool read_time(struct list_feed *f, const struct json_value *v, usec_t *out)
{
    *out = -1;
    if (v->type == JSON_MISSING || v->type == JSON_NULL)
        *out = lists_stamp(f->server->lists, clock_wall());
    else if (v->type == JSON_STRING)
        return bytes_to_usec(v->v.string, out);
    else if (v->type == JSON_I64 && v->v.i64 <= LIST_TIME_MAX / USEC_PER_SEC)
        *out = v->v.i64 * USEC_PER_SEC;
    else if (v->type == JSON_F64 && v->v.f64 >= 0 && v->v.f64 < (double)LIST_TIME_MAX / USEC_PER_SEC)
        *out = (usec_t)(v->v.f64 * USEC_PER_SEC + 0.5);
    return *out >= 0 && *out <= LIST_TIME_MAX;
}

/* Returns the operation of a line, LIST_FOLLOW and LIST_UNFOLLOW by name, otherwise by the fields; 0: none. */
static int type_of(const struct json_value v[LIST_FEED_FIELDS])
{
    bool has_keys = v[LIST_FEED_KEYS].type != JSON_MISSING;
    struct bytes op = v[LIST_FEED_OP].type == JSON_MISSING  ? BYTES_LITERAL("add")
                      : v[LIST_FEED_OP].type == JSON_STRING ? v[LIST_FEED_OP].v.string
                                                            : BYTES_NONE;
    return bytes_equal_str(op, "add")        ? (has_keys ? LIST_ADD : LIST_ADD_BY_AUTHOR)
           : bytes_equal_str(op, "remove")   ? (has_keys ? LIST_REMOVE_FROM : LIST_REMOVE)
           : bytes_equal_str(op, "follow")   ? LIST_FOLLOW
           : bytes_equal_str(op, "unfollow") ? LIST_UNFOLLOW
                                             : 0;
}

/* Reads the names of an operation. Returns NULL, or the reason why they are not valid. */
static const char *take_names(
    struct list_feed *f, enum list_op_type type, const struct json_value *v, struct bytes line)
{
    buf_clear(&f->names);
    switch (type) {
    case LIST_REMOVE:
        return NULL;
    case LIST_FOLLOW:
    case LIST_UNFOLLOW:
        return add_name(f, &v[LIST_FEED_FOLLOWER]) ? NULL : "the follower is not a name of 1 to 255 bytes";
    case LIST_ADD_BY_AUTHOR:
        return add_name(f, &v[LIST_FEED_AUTHOR]) ? NULL
                                                 : "neither keys nor author is a name of 1 to 255 bytes";
    default:
        return add_keys(f, &v[LIST_FEED_KEYS], line) ? NULL : "a key is not a name of 1 to 255 bytes";
    }
}

/* Appends the operation of a line. Returns NULL, or the reason why the line is not valid. */
static const char *take_line(struct list_feed *f, struct bytes line)
{
    struct json_value v[LIST_FEED_FIELDS];
    const char *reason;
    if (json_fields_extract(f->fields, line, v, &reason) != 0)
        return reason;
    struct list_op op = {.type = (enum list_op_type)type_of(v)};
    if (op.type == 0)
        return "op is not add, remove, follow or unfollow";
    bool is_edge = op.type == LIST_FOLLOW || op.type == LIST_UNFOLLOW,
         is_add = op.type == LIST_ADD || op.type == LIST_ADD_BY_AUTHOR;
    if ((reason = take_names(f, op.type, v, line)))
        return reason;
    if (is_add && !read_time(f, &v[LIST_FEED_TIME], &op.time))
        return "the time is not Unix seconds";
    op.id = text_of(&v[is_edge ? LIST_FEED_AUTHOR : LIST_FEED_ID], &f->texts[LIST_FEED_ID]);
    if (is_add)
        op.data = f->has_data_field ? text_of(&v[LIST_FEED_DATA], &f->texts[LIST_FEED_DATA]) : line;
    op.names = buf_bytes(&f->names);
    reason = list_op_error(&op);
    if (!reason)
        list_op_append(&f->collected, &op);
    return reason;
}

/* Stores the collected operations and the stream's cursor. */
static void store_collected(struct list_feed *f)
{
    const struct stream_cursor *at = stream_client_cursor(stream_feed_client(f->stream));
    struct buf used = f->change.ops;
    if (f->is_storing || at->offset == f->server->stream_offset)
        return;
    buf_clear(&used);
    f->change.ops = f->collected;
    f->collected = used;
    stream_cursor_print(at, f->tag);
    f->change.cursor = (struct lists_cursor){at->offset, bytes_str(f->tag)};
    f->is_storing = true;
    lists_server_change(f->server, &f->change);
}

static void on_done(struct lists_change *change, enum journal_result r)
{
    struct list_feed *f = (struct list_feed *)change;
    if (r != JOURNAL_OK) {
        lists_server_keep(f->server, change);
        return;
    }
    f->is_storing = false;
    f->server->stream_offset = change->cursor.offset;
    stream_client_resume(stream_feed_client(f->stream));
    store_collected(f);
}

static void on_lines(struct bytes lines, void *arg)
{
    struct list_feed *f = arg;
    struct bytes line;
    while (bytes_take_line(&lines, &line)) {
        const char *why = erased_line_is(line) ? NULL : take_line(f, line);
        stats_add(f->lines, 1);
        if (why)
            skip(f, why, line);
    }
    store_collected(f);
    if (f->collected.len > LIST_FEED_MAX)
        stream_client_pause(stream_feed_client(f->stream));
}

static void on_overlong(struct bytes head, void *arg)
{
    struct list_feed *f = arg;
    stats_add(f->lines, 1);
    skip(f, "the line is too long", head);
}

static uint64_t stored(void *arg)
{
    return ((struct list_feed *)arg)->server->stream_offset;
}

/* Returns the stored cursor. */
static struct stream_cursor cursor_of(const struct list_feed *f)
{
    struct lists_cursor at = lists_follower_cursor(f->server->lists, f->change.follower);
    char tag[STREAM_CURSOR_TEXT];
    snprintf(tag, sizeof tag, "%.*s", (int)at.tag.len, at.tag.len > 0 ? at.tag.ptr : "");
    return stream_cursor_read(tag, at.offset);
}

/* Prepares to read the fields of the settings. */
static void set_fields(struct list_feed *f)
{
    const struct options *o = daemon_options(f->server->daemon);
    const char *paths[LIST_FEED_FIELDS];
    f->has_data_field = options_text(o, "data_field") != NULL;
    struct json_path keys = {.rest = bytes_str(options_string(o, "keys_field"))};
    for (size_t i = 0; i < LIST_FEED_FIELDS; i++)
        paths[i] = options_text(o, list_feed_fields[i]) ? options_text(o, list_feed_fields[i]) : "id";
    f->fields = json_fields_new(paths, LIST_FEED_FIELDS);
    for (struct json_step step; json_path_next(&keys, &step);)
        if (step.is_index)
            buf_printf(&f->keys_pointer, "/%" PRIu32, step.index);
        else
            json_pointer_append(&f->keys_pointer, step.name);
    buf_append_char(&f->keys_pointer, '\0');
}

struct list_feed *list_feed_new(struct lists_server *server, struct error *error)
{
    struct daemon *d = server->daemon;
    struct list_feed *f = mem_zalloc(sizeof *f);
    struct stats *s = daemon_stats(d);
    const char *stream = options_text(daemon_options(d), "stream");
    f->change = (struct lists_change){.done = on_done, .follower = bytes_str(stream)};
    f->server = server;
    set_fields(f);
    f->lines = stats_counter(s, "stream_lines_total", NULL, "lines of the stream");
    f->bad = stats_counter(s, "stream_lines_skipped_total", NULL, "lines of the stream that are not valid");
    struct stream_cursor from = cursor_of(f);
    f->server->stream_offset = from.offset;
    f->stream = stream_feed_new(d,
        &(struct stream_feed_config){.from = from,
            .max_line = LINE_MAX_BYTES,
            .on_lines = on_lines,
            .on_overlong = on_overlong,
            .stored = stored,
            .arg = f},
        error);
    if (!f->stream)
        list_feed_free(&f);
    return f;
}

void list_feed_stop(struct list_feed *f)
{
    if (f)
        stream_feed_stop(f->stream);
}

void list_feed_free(struct list_feed **fp)
{
    struct list_feed *f = *fp;
    if (!f)
        return;
    stream_feed_free(&f->stream);
    json_fields_free(&f->fields);
    for (size_t i = 0; i < LIST_FEED_FIELDS; i++)
        buf_free(&f->texts[i]);
    buf_free(&f->keys_pointer);
    buf_free(&f->names);
    buf_free(&f->change.ops);
    buf_free(&f->collected);
    free(f);
    *fp = NULL;
}
