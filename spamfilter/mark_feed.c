#include "spamfilter/mark_feed.h"

#include "base/erased_line.h"
#include "json/json_fields.h"
#include "spamfilter/mark_line.h"
#include "stream/stream_feed.h"
#include "stream/stream_program.h"

#include <stdio.h>
#include <stdlib.h>

#define LINE_MAX_BYTES (URL_TEXT_MAX * 2) /* JSON may escape characters */

struct mark_feed {
    struct mark_change change; /* first; the change that is being stored */
    struct spamfilter *server;
    struct stream_feed *stream;
    struct json_fields *fields;
    struct buf collected;         /* updates of the lines from the change's cursor to the stream's cursor */
    char tag[STREAM_CURSOR_TEXT]; /* of the change */
    enum { IDLE, STORING, REFUSED } state;
    struct stats_counter *lines, *bad;
};

static void skip(struct mark_feed *f, int error, struct bytes text)
{
    stats_add(f->bad, 1);
    stream_feed_log_skipped(f->stream, mark_line_error(error).detail, text);
}

/* Appends the update of a line. Returns URL_OK, or the error of the line. */
static int take_line(struct mark_feed *f, struct bytes line)
{
    enum { OP, URL, ID, VALUES };
    struct json_value v[VALUES];
    const char *reason;
    size_t action = 0;
    if (json_fields_extract(f->fields, line, v, &reason) != 0 || v[URL].type != JSON_STRING)
        return MARK_LINE_JSON;
    while (action < MARK_LOAD &&
           !(v[OP].type == JSON_STRING && bytes_equal_str(v[OP].v.string, mark_actions[action])))
        action++;
    if (action == MARK_LOAD)
        return MARK_LINE_OP;
    if (v[ID].type != JSON_MISSING && (v[ID].type != JSON_I64 || v[ID].v.i64 <= 0 ||
                                          (uint64_t)v[ID].v.i64 > mark_line_id_max((enum mark_action)action)))
        return MARK_LINE_BAD_ID;
    return mark_line_append(mark_store_marks(f->server->store), (enum mark_action)action, v[URL].v.string,
        v[ID].type == JSON_MISSING ? 0 : (uint64_t)v[ID].v.i64, &f->server->form, &f->collected);
}

static void store(struct mark_feed *f)
{
    f->state = STORING;
    spamfilter_change(f->server, &f->change);
}

/* Stores the collected updates and the stream's cursor. */
static void store_collected(struct mark_feed *f)
{
    const struct stream_cursor *at = stream_client_cursor(stream_feed_client(f->stream));
    struct buf used = f->change.lines;
    if (f->state != IDLE || at->offset == f->server->stream_offset)
        return;
    buf_clear(&used);
    f->change.lines = f->collected;
    f->collected = used;
    stream_cursor_print(at, f->tag);
    f->change.cursor = (struct mark_cursor){at->offset, bytes_str(f->tag)};
    store(f);
}

static void on_made(struct mark_change *change, const struct mark_update *u, enum mark_result r)
{
    struct mark_feed *f = (struct mark_feed *)change;
    int error = mark_line_error_of(r);
    stats_add(f->server->updates[u->action], r == MARK_DONE);
    if (error != URL_OK)
        skip(f, error, u->text);
}

static void on_done(struct mark_change *change, enum journal_result r)
{
    struct mark_feed *f = (struct mark_feed *)change;
    f->state = r == JOURNAL_OK ? IDLE : REFUSED;
    if (r == JOURNAL_NO_SPACE)
        disk_guard_note_full(f->server->guard);
    if (r != JOURNAL_OK)
        return;
    f->server->stream_offset = change->cursor.offset;
    stream_client_resume(stream_feed_client(f->stream));
    store_collected(f);
}

static void on_lines(struct bytes lines, void *arg)
{
    struct mark_feed *f = arg;
    struct bytes line;
    while (bytes_take_line(&lines, &line)) {
        int error = erased_line_is(line) ? URL_OK : take_line(f, line);
        stats_add(f->lines, 1);
        if (error != URL_OK)
            skip(f, error, line);
    }
    store_collected(f);
    if (f->collected.len > MARK_FEED_MAX)
        stream_client_pause(stream_feed_client(f->stream));
}

static void on_overlong(struct bytes head, void *arg)
{
    struct mark_feed *f = arg;
    stats_add(f->lines, 1);
    skip(f, URL_LENGTH, head);
}

static uint64_t stored(void *arg)
{
    return ((struct mark_feed *)arg)->server->stream_offset;
}

static void register_stats(struct mark_feed *f)
{
    struct stats *s = daemon_stats(f->server->daemon);
    f->lines = stats_counter(s, "stream_lines_total", NULL, "lines of the stream of marks");
    f->bad = stats_counter(s, "stream_lines_skipped_total", NULL, "lines of the stream that change nothing");
}

/* Returns the stored cursor. */
static struct stream_cursor cursor_of(const struct mark_feed *f)
{
    struct mark_cursor stored = mark_store_cursor(f->server->store, f->change.follower);
    char tag[STREAM_CURSOR_TEXT];
    snprintf(tag, sizeof tag, "%.*s", (int)stored.tag.len, stored.tag.len > 0 ? stored.tag.ptr : "");
    return stream_cursor_read(tag, stored.offset);
}

struct mark_feed *mark_feed_new(struct spamfilter *server, struct error *error)
{
    static const char *const paths[] = {"op", "url", "id"};
    struct daemon *d = server->daemon;
    struct mark_feed *f = mem_zalloc(sizeof *f);
    const char *stream = options_text(daemon_options(d), "stream");
    f->change = (struct mark_change){.made = on_made, .done = on_done, .follower = bytes_str(stream)};
    f->server = server;
    f->fields = json_fields_new(paths, sizeof paths / sizeof *paths);
    register_stats(f);
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
        mark_feed_free(&f);
    return f;
}

void mark_feed_stop(struct mark_feed *f)
{
    if (f)
        stream_feed_stop(f->stream);
}

void mark_feed_tick(struct mark_feed *f)
{
    if (f && f->state == REFUSED)
        store(f);
}

void mark_feed_free(struct mark_feed **fp)
{
    struct mark_feed *f = *fp;
    if (!f)
        return;
    stream_feed_free(&f->stream);
    json_fields_free(&f->fields);
    buf_free(&f->change.lines);
    buf_free(&f->collected);
    free(f);
    *fp = NULL;
}
