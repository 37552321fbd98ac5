#include "sql/event_reader.h"

#include "base/erased_line.h"
#include "base/line_source.h"
#include "http/client/http_client.h"
#include "stream/stream_client.h"

#include <event2/event.h>
#include <glob.h>
#include <stdlib.h>

#define TICK_USEC 100000 /* between two looks at *cancel */

struct event_reader {
    const atomic_bool *cancel;
    char *stream;
    struct event_base *base;
    struct event *tick;
    struct http_client *pubsub;
    struct stream_client *client; /* NULL: files */
    struct buf lines;             /* the latest lines, which end at the client's cursor */
    size_t at;                    /* the next of them */
    glob_t files;
    size_t file; /* the next file */
    struct line_source *source;
};

static void on_lines(struct bytes lines, void *arg)
{
    struct event_reader *r = arg;
    /* Until the client resumes, it makes no further request. All lines in r->lines are therefore consecutive. */
    stream_client_pause(r->client);
    buf_append_bytes(&r->lines, lines);
}

static void on_tick(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what, (void)arg;
}

struct event_reader *event_reader_of_stream(
    const char *url, const char *token, const char *stream, const char *begin, const atomic_bool *cancel)
{
    struct event_reader *r = mem_zalloc(sizeof *r);
    r->cancel = cancel;
    r->stream = mem_strdup(stream);
    r->base = event_base_new();
    r->tick = event_new(r->base, -1, EV_PERSIST, on_tick, NULL);
    event_add(r->tick, &(struct timeval){0, TICK_USEC});
    r->pubsub = http_client_new(
        &(struct http_client_config){.base = r->base, .url = url, .max_connections = 1, .auth_token = token});
    if (r->pubsub)
        r->client = stream_client_new(&(struct stream_client_config){.base = r->base,
            .pubsub = r->pubsub,
            .stream = stream,
            .begin = begin,
            .on_lines = on_lines,
            .arg = r});
    return r;
}

struct event_reader *event_reader_of_files(const char *pattern)
{
    struct event_reader *r = mem_zalloc(sizeof *r);
    if (glob(pattern, 0, NULL, &r->files) != 0)
        r->files.gl_pathc = 0;
    return r;
}

void event_reader_free(struct event_reader **rp)
{
    struct event_reader *r = *rp;
    if (!r)
        return;
    stream_client_free(&r->client);
    http_client_free(&r->pubsub);
    if (r->tick)
        event_free(r->tick);
    if (r->base)
        event_base_free(r->base);
    else
        globfree(&r->files);
    line_source_close(&r->source);
    buf_free(&r->lines);
    free(r->stream);
    free(r);
    *rp = NULL;
}

/* Waits for lines. Returns 1, 0 at the end, or -1 with the error. */
static int receive(struct event_reader *r, struct error *error)
{
    buf_clear(&r->lines);
    r->at = 0;
    if (r->client)
        stream_client_resume(r->client);
    while (r->lines.len == 0) {
        const char *trouble = r->client ? stream_client_trouble(r->client, NULL) : "no address of pubsub";
        if (trouble)
            return error_set(error, -1, "stream %s: %s", r->stream, trouble);
        if (r->cancel && atomic_load(r->cancel))
            return error_set(error, -1, "interrupted");
        if (stream_client_is_caught_up(r->client))
            return 0;
        event_base_loop(r->base, EVLOOP_ONCE);
    }
    return 1;
}

static int next_of_stream(struct event_reader *r, struct event_reader_line *out, struct error *error)
{
    int got = r->at < r->lines.len ? 1 : receive(r, error);
    if (got <= 0)
        return got;
    const char *begin = r->lines.ptr + r->at, *lf = memchr(begin, '\n', r->lines.len - r->at);
    uint64_t first = stream_client_cursor(r->client)->offset - r->lines.len;
    *out = (struct event_reader_line){bytes_of(begin, (size_t)(lf - begin)), first + r->at, r->stream};
    r->at += out->line.len + 1;
    return 1;
}

static int next_of_files(struct event_reader *r, struct event_reader_line *out, struct error *error)
{
    struct bytes line;
    for (;;) {
        if (!r->source && r->file == r->files.gl_pathc)
            return 0;
        if (!r->source && !(r->source = line_source_open(r->files.gl_pathv[r->file++], error)))
            return -1;
        switch (line_source_next(r->source, false, &line, error)) {
        case LINE_SOURCE_FAILED:
            return -1;
        case LINE_SOURCE_END:
            line_source_close(&r->source);
            break;
        case LINE_SOURCE_LINE:
            *out = (struct event_reader_line){bytes_without_line_end(line),
                line_source_offset(r->source) - line.len, r->files.gl_pathv[r->file - 1]};
            return 1;
        default: /* a line over LINE_SOURCE_LINE_MAX */
            break;
        }
    }
}

int event_reader_next(struct event_reader *r, struct event_reader_line *out, struct error *error)
{
    int got;
    do
        got = r->base ? next_of_stream(r, out, error) : next_of_files(r, out, error);
    while (got > 0 && erased_line_is(out->line));
    return got;
}
