#include "tools/stream_view.h"

#include "base/erased_line.h"
#include "counts/condition.h"
#include "counts/key_text.h"
#include "daemon/daemon.h"
#include "http/client/http_client.h"
#include "stream/stream_client.h"

#include <event2/event.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sysexits.h>

struct stream_view {
    const struct stream_view_config *config;
    const struct options *o;
    struct event_base *base;
    struct stream_client *stream;
    struct condition *condition; /* NULL: all lines are shown */
    struct json_fields *fields;  /* fields of the config, then fields of the condition; NULL: none */
    struct json_value *values;
    bool ended, was_undecided;
    int status;
    char trouble[256]; /* last reported error of the connection */
};

void stream_view_end(struct stream_view *v)
{
    v->ended = true;
    event_base_loopbreak(v->base);
}

struct bytes stream_view_text(const struct json_value *v, char space[STREAM_VIEW_VALUE_TEXT])
{
    struct bytes text;
    if (v->type == JSON_NULL)
        return bytes_str("null");
    if (!key_text_of(v, space, &text))
        return text;
    if (v->type != JSON_F64)
        return bytes_str(v->type == JSON_ARRAY ? "[...]" : "{...}");
    snprintf(space, STREAM_VIEW_VALUE_TEXT, "%.17g", v->v.f64);
    return bytes_str(space);
}

void stream_view_print(struct bytes text)
{
    struct buf out = {0};
    buf_append_printable(&out, text);
    if (out.len > 0)
        fwrite(out.ptr, 1, out.len, stdout);
    buf_free(&out);
}

static bool is_shown(struct stream_view *v)
{
    enum condition_result r =
        v->condition ? condition_test(v->condition, v->values + v->config->n_fields) : CONDITION_TRUE;
    if (r == CONDITION_UNDECIDED && !v->was_undecided)
        tool_fail(0, "--if: the condition takes too many steps for a line; such lines are not shown");
    v->was_undecided = v->was_undecided || r == CONDITION_UNDECIDED;
    return r == CONDITION_TRUE;
}

static void on_lines(struct bytes lines, void *arg)
{
    struct stream_view *v = arg;
    const char *reason;
    for (size_t at = 0; at < lines.len && !v->ended;) {
        const char *lf = memchr(lines.ptr + at, '\n', lines.len - at);
        struct bytes line = bytes_of(lines.ptr + at, (size_t)(lf - lines.ptr) - at);
        at += line.len + 1;
        if (erased_line_is(line))
            continue;
        if (v->fields && json_fields_extract(v->fields, line, v->values, &reason) != 0)
            continue;
        if (is_shown(v))
            v->config->on_line(v, line, v->values, v->config->arg);
    }
    if (!tool_show())
        stream_view_end(v); /* the process that reads the pipe has ended */
}

static void on_change(void *arg)
{
    struct stream_view *v = arg;
    bool refused = false;
    const char *trouble = stream_client_trouble(v->stream, &refused);
    if (trouble && strcmp(trouble, v->trouble) != 0) {
        snprintf(v->trouble, sizeof v->trouble, "%s", trouble);
        tool_fail(0, "%s", trouble);
    }
    bool follows = options_bool(v->o, "follow");
    if (refused)
        v->status = EX_DATAERR;
    else if (v->config->is_once || !follows)
        v->status = trouble ? EX_TEMPFAIL : EX_OK;
    if (refused || (!follows && (trouble || stream_client_is_caught_up(v->stream))))
        stream_view_end(v);
}

/* Prints that the stream does not contain the offset of --from. */
static void on_refused(int status, struct bytes body, void *arg)
{
    struct stream_view *v = arg;
    struct json_doc *doc = json_doc_parse(body);
    struct bytes detail = json_doc_text(doc, "/detail");
    v->status = tool_fail(EX_USAGE, "--from: %d %.*s", status, (int)detail.len, detail.len ? detail.ptr : "");
    json_doc_free(&doc);
    stream_view_end(v);
}

static void on_gap(uint64_t before, uint64_t after, void *arg)
{
    (void)arg;
    tool_fail(0, "the stream has lost or deleted the bytes from %" PRIu64 " to %" PRIu64, before, after);
}

static void on_overlong(struct bytes head, uint64_t length, void *arg)
{
    (void)head, (void)arg;
    tool_fail(0, "a line of %" PRIu64 " bytes is not shown", length);
}

static void on_tick(evutil_socket_t fd, short what, void *arg)
{
    struct stream_view *v = arg;
    (void)fd, (void)what;
    v->config->on_tick(v, v->config->arg);
    if (!tool_show())
        stream_view_end(v);
}

static void on_signal(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what;
    stream_view_end(arg);
}

/* Reads the condition, and prepares the extraction. Returns the exit status after printing an error. */
static int read_condition(struct stream_view *v)
{
    const char *text = options_string(v->o, "if"), **paths = NULL;
    struct error error;
    size_t n = v->config->n_fields;
    if (text && !(v->condition = condition_new(bytes_str(text), &error)))
        return tool_fail(EX_USAGE, "--if: %s", error.text);
    paths = mem_alloc((n + 1) * sizeof *paths);
    memcpy(paths, v->config->fields, n * sizeof *paths);
    if (v->condition)
        condition_add_fields(v->condition, &paths, &n);
    if (n > 0)
        v->fields = json_fields_new(paths, n);
    v->values = mem_zalloc((n + 1) * sizeof *v->values);
    free(paths);
    return EX_OK;
}

static void follow(struct stream_view *v, struct http_client *pubsub)
{
    usec_t tick = v->config->tick;
    struct timeval every = {tick / USEC_PER_SEC, tick % USEC_PER_SEC};
    struct event *events[] = {evsignal_new(v->base, SIGINT, on_signal, v),
        evsignal_new(v->base, SIGTERM, on_signal, v), event_new(v->base, -1, EV_PERSIST, on_tick, v)};
    event_add(events[0], NULL);
    event_add(events[1], NULL);
    if (tick > 0)
        event_add(events[2], &every);
    v->stream = stream_client_new(&(struct stream_client_config){.base = v->base,
        .pubsub = pubsub,
        .stream = options_string(v->o, "stream"),
        .begin = options_string(v->o, "from"),
        .on_lines = on_lines,
        .on_overlong = on_overlong,
        .on_gap = on_gap,
        .on_refused = on_refused,
        .on_change = on_change,
        .arg = v});
    event_base_dispatch(v->base);
    stream_client_free(&v->stream);
    for (size_t i = 0; i < sizeof events / sizeof *events; i++)
        event_free(events[i]);
}

static bool is_begin(const char *from)
{
    uint64_t number;
    return strcmp(from, "earliest") == 0 || strcmp(from, "latest") == 0 ||
           bytes_to_u64(bytes_str(from + (*from == '@' || *from == '-')), &number);
}

static bool ends_at_end(const struct stream_view *v)
{
    return v->config->is_once || !options_bool(v->o, "follow");
}

/* Waits until the pipeline runs, because run.json is from an earlier run. A signal ends the view. Returns 0, or an exit
 * status after printing the error. */
static int await_pipeline(struct stream_view *v, struct pipeline *p)
{
    static const struct timespec interval = {.tv_sec = 1};
    sigset_t signals, before;
    if (!pipeline_is_stopped(p) && !p->starting)
        return EX_OK;
    if (ends_at_end(v))
        return p->starting ? tool_fail(EX_TEMPFAIL, "the pipeline of %s is starting", p->data_dir)
                           : tool_check_runs(p);
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    sigprocmask(SIG_BLOCK, &signals, &before);
    tool_fail(
        0, "the pipeline of %s is %s; waiting for it", p->data_dir, p->starting ? "starting" : "stopped");
    while (!v->ended && (pipeline_is_stopped(p) || p->starting)) {
        v->ended = sigtimedwait(&signals, NULL, &interval) > 0;
        pipeline_close(p);
        pipeline_open(p, options_config(v->o), options_string(v->o, "data_dir"));
    }
    sigprocmask(SIG_SETMASK, &before, NULL);
    return EX_OK;
}

/* Checks that pubsub has the stream. Returns 0, or an exit status after printing the error. */
static int check_stream(const struct stream_view *v, const char *url, const char *token)
{
    struct buf body = {0};
    const char *why, *stream = options_string(v->o, "stream");
    const struct http_call_spec call = {.method = "GET", .target = "/streams"};
    bool ends = ends_at_end(v);
    int http_status = tool_request(url, token, &call, &body, &why), status = EX_OK;
    struct json_doc *doc = http_status == 200 ? json_doc_parse(buf_bytes(&body)) : NULL;
    if (http_status == 0 && ends)
        status = tool_fail(EX_TEMPFAIL, "%s: %s", url, why);
    char *hint = doc ? tool_stream_hint(doc, stream) : NULL;
    if (hint)
        status = tool_fail(ends ? EX_USAGE : EX_OK, "there is no stream %s%s%s", stream, hint,
            ends ? "" : "; waiting for it");
    free(hint);
    json_doc_free(&doc);
    buf_free(&body);
    return status;
}

int stream_view_run(const struct options *o, const struct stream_view_config *config)
{
    struct stream_view v = {.config = config, .o = o};
    const char *url = options_text(o, "pubsub_url");
    struct pipeline pipeline;
    struct error error;
    char *token = NULL;
    signal(SIGPIPE, SIG_IGN);
    if (!bytes_is_name(bytes_str(options_string(o, "stream"))))
        return tool_fail(EX_USAGE, "--stream is not a name");
    if (!is_begin(options_string(o, "from")))
        return tool_fail(
            EX_USAGE, "--from must be earliest, latest, an offset, @UNIXTIME or -N, the last N lines");
    if (daemon_read_token(options_text(o, "pubsub_token_file"), &token, &error) != 0)
        return tool_fail(EX_CONFIG, "%s", error.text);
    pipeline_open(&pipeline, options_config(o), options_string(o, "data_dir"));
    v.status = read_condition(&v);
    if (v.status == EX_OK && !url)
        v.status = await_pipeline(&v, &pipeline);
    v.base = event_base_new();
    struct http_client *pubsub = http_client_new(&(struct http_client_config){.base = v.base,
        .url = url ? url : pipeline_url(&pipeline, "pubsub"),
        .max_connections = 1,
        .auth_token = token});
    if (v.status == EX_OK && !pubsub)
        v.status = tool_fail(EX_USAGE, "--pubsub-url is not an address");
    if (v.status == EX_OK && !v.ended)
        v.status = check_stream(&v, url ? url : pipeline_url(&pipeline, "pubsub"), token);
    if (v.status == EX_OK && !v.ended)
        follow(&v, pubsub);
    http_client_free(&pubsub);
    event_base_free(v.base);
    json_fields_free(&v.fields);
    condition_free(&v.condition);
    free(v.values);
    free(token);
    pipeline_close(&pipeline);
    return v.status;
}
