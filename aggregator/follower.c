#include "aggregator/follower.h"

#include "stream/stream_program.h"

#include <stdlib.h>

struct follower {
    struct follower_config config;
    struct stream_client *stream;
};

static bool is_full(const struct follower *f)
{
    return aggregate_is_full(f->config.aggregate);
}

static void note_cursor(struct follower *f, bool is_copy)
{
    char id[SLICE_ID_TEXT];
    stream_cursor_print(stream_client_cursor(f->stream), id);
    aggregate_set_stream_id(f->config.aggregate, f->config.stream, id);
    count_watermark_on_cursor(f->config.watermark, f->config.stream, is_copy);
}

static void on_begin(void *arg)
{
    struct follower *f = arg;
    char id[SLICE_ID_TEXT];
    const struct stream_cursor *at = stream_client_cursor(f->stream);
    stream_cursor_print(at, id);
    aggregate_begin_stream(f->config.aggregate, f->config.stream, id, at->offset);
    f->config.changed(f->config.arg);
}

static void on_lines(struct bytes lines, void *arg)
{
    struct follower *f = arg;
    struct bytes line;
    aggregate_set_wall(f->config.aggregate, clock_wall(), daemon_trusted_time(f->config.daemon));
    while (bytes_take_line(&lines, &line))
        aggregate_take_line(f->config.aggregate, f->config.stream, line);
    note_cursor(f, false);
    if (is_full(f))
        stream_client_pause(f->stream);
}

static void on_overlong(struct bytes head, uint64_t length, void *arg)
{
    struct follower *f = arg;
    aggregate_take_overlong(f->config.aggregate, f->config.stream, head, length);
    note_cursor(f, false);
}

static void on_gap(uint64_t before, uint64_t after, void *arg)
{
    struct follower *f = arg;
    aggregate_cross_hole(f->config.aggregate, f->config.stream, after);
    note_cursor(f, after <= before);
}

static void on_statement(const struct stream_statement *s, void *arg)
{
    struct follower *f = arg;
    count_watermark_on_statement(f->config.watermark, f->config.stream, s);
}

static void on_response_end(void *arg)
{
    struct follower *f = arg;
    count_watermark_on_response_end(f->config.watermark, f->config.stream);
}

static void on_change(void *arg)
{
    struct follower *f = arg;
    f->config.changed(f->config.arg);
}

struct follower *follower_new(const struct follower_config *config)
{
    struct follower *f = mem_zalloc(sizeof *f);
    const struct slice_cursor *c = aggregate_cursor(config->aggregate, config->stream);
    _Static_assert(SLICE_ID_TEXT == STREAM_CURSOR_TEXT, "an id in a slice is the text of a cursor");
    f->config = *config;
    f->stream =
        stream_program_continue(config->daemon, &(struct stream_client_config){.pubsub = config->client,
                                                    .stream = c->stream,
                                                    .from = stream_cursor_read(c->id, c->offset),
                                                    .max_line = config->max_line,
                                                    .on_begin = on_begin,
                                                    .on_lines = on_lines,
                                                    .on_overlong = on_overlong,
                                                    .on_gap = on_gap,
                                                    .on_statement = on_statement,
                                                    .on_response_end = on_response_end,
                                                    .on_change = on_change,
                                                    .arg = f});
    return f;
}

void follower_stop(struct follower *f)
{
    stream_client_stop(f->stream);
}

void follower_free(struct follower **fp)
{
    struct follower *f = *fp;
    if (!f)
        return;
    stream_client_free(&f->stream);
    free(f);
    *fp = NULL;
}

void follower_resume(struct follower *f)
{
    if (!is_full(f))
        stream_client_resume(f->stream);
}

bool follower_is_caught_up(const struct follower *f)
{
    return stream_client_is_caught_up(f->stream);
}

const struct stream_place *follower_place(const struct follower *f)
{
    return stream_client_place(f->stream);
}

const char *follower_trouble(const struct follower *f, bool *refused)
{
    return stream_client_trouble(f->stream, refused);
}
