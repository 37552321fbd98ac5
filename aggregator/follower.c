#include "follower.h"

#include "http_client.h"
#include "json_fields.h"
#include "line_splitter.h"
#include "log.h"
#include "url.h"

#include <event2/event.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define RETRY_FIRST (50 * USEC_PER_MSEC)
#define RETRY_MOST (2 * USEC_PER_SEC)
#define RETRY_UNKNOWN                                                                                        \
    (200 * USEC_PER_MSEC) /* a stream not yet made: its first line is to count within a second */
#define RETRY_REFUSED (5 * USEC_PER_SEC)

struct follower {
    struct follower_config config;
    struct http_call *call;
    struct event *timer;
    struct line_splitter lines;
    usec_t backoff;
    bool stopped, paused, caught_up, has_target, ignoring, refused;
    uint64_t target;     /* the end that the first answer told */
    uint64_t asked_from; /* the cursor when asked */
    char trouble[256];
};

static void ask(struct follower *f);

static const struct slice_cursor *cursor(const struct follower *f)
{
    return aggregate_cursor(f->config.aggregate, f->config.stream);
}

/* ---- what is wrong ---- */

static void set_trouble(struct follower *f, bool refused, const char *text)
{
    if (strcmp(f->trouble, text) != 0)
        log_warn("the stream does not come", LOG_S("stream", cursor(f)->stream), LOG_S("reason", text));
    f->refused = refused;
    snprintf(f->trouble, sizeof(f->trouble), "%s", text);
}

static void clear_trouble(struct follower *f)
{
    f->trouble[0] = '\0';
    f->refused = false;
    f->backoff = 0;
}

static void check_caught_up(struct follower *f)
{
    if (f->has_target && cursor(f)->offset >= f->target)
        f->caught_up = true;
    f->config.changed(f->config.arg);
}

static void set_target(struct follower *f, uint64_t end)
{
    f->target = f->has_target ? f->target : end;
    f->has_target = true;
    check_caught_up(f);
}

/* ---- asking again ---- */

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what;
    ask(arg);
}

static void ask_after(struct follower *f, usec_t delay)
{
    struct timeval tv = {(time_t)(delay / USEC_PER_SEC), (suseconds_t)(delay % USEC_PER_SEC)};
    if (!f->stopped)
        evtimer_add(f->timer, &tv);
}

/* Doubled each time, and spread so that many who lost one server do not come back in step. */
static void back_off(struct follower *f)
{
    f->backoff = f->backoff == 0 ? RETRY_FIRST : f->backoff * 2;
    if (f->backoff > RETRY_MOST)
        f->backoff = RETRY_MOST;
    ask_after(f, f->backoff / 2 + (usec_t)(random() % (f->backoff / 2 + 1)));
}

/* ---- lines ---- */

static void on_line(void *arg, struct bytes line)
{
    struct follower *f = arg;
    aggregate_take_line(f->config.aggregate, f->config.stream, line);
}

static void on_overlong(void *arg, struct bytes head, uint64_t length)
{
    struct follower *f = arg;
    aggregate_take_overlong(f->config.aggregate, f->config.stream, head, length);
}

static void on_body(struct http_call *call, struct bytes piece, void *arg)
{
    struct follower *f = arg;
    if (f->stopped || f->ignoring)
        return;
    line_splitter_feed(&f->lines, piece);
    check_caught_up(f);
    if (aggregate_is_full(f->config.aggregate)) {
        f->paused = true;
        http_call_pause(call);
    }
}

static bool header_number(const struct http_reply_view *reply, const char *name, uint64_t *out)
{
    return bytes_to_u64(bytes_str(http_reply_header(reply, name)), out);
}

static void on_headers(const struct http_reply_view *reply, void *arg)
{
    struct follower *f = arg;
    uint64_t start, end;
    const char *id = http_reply_header(reply, "X-Millrace-Stream-Id");
    f->ignoring = true;
    if (reply->status != 200)
        return;
    if (strlen(id) != SLICE_ID_TEXT - 1 || !header_number(reply, "X-Millrace-Offset", &start) ||
        !header_number(reply, "X-Millrace-End", &end)) {
        set_trouble(f, true, "its answer does not name stream, offset and end: no pubsub of ours");
        return;
    }
    if (cursor(f)->id[0] == '\0')
        aggregate_begin_stream(f->config.aggregate, f->config.stream, id, start);
    if (strcmp(cursor(f)->id, id) != 0 || cursor(f)->offset != start) {
        set_trouble(f, true, "it answered with another stream or offset than asked for");
        return;
    }
    f->ignoring = false;
    clear_trouble(f);
    set_target(f, end);
}

/* ---- endings ---- */

static uint64_t member_number(struct bytes body, const char *pointer, uint64_t fallback)
{
    struct json_doc *doc = json_doc_parse(body);
    if (!doc)
        return fallback;
    struct json_value v = json_doc_at(doc, pointer);
    uint64_t n = fallback;
    if (v.type == JSON_STRING && !bytes_to_u64(v.v.string, &n))
        n = fallback;
    else if (v.type == JSON_I64 && v.v.i64 >= 0)
        n = (uint64_t)v.v.i64;
    json_doc_free(&doc);
    return n;
}

static void unknown_stream(struct follower *f)
{
    if (cursor(f)->id[0] != '\0') {
        set_trouble(f, true, "pubsub does not know the stream, though it was counted before");
        ask_after(f, RETRY_REFUSED);
        return;
    }
    clear_trouble(f);
    set_target(f, 0);
    ask_after(f, RETRY_UNKNOWN);
}

static void cross(struct follower *f, struct bytes body)
{
    uint64_t from = cursor(f)->offset;
    uint64_t after = member_number(body, "/after", 0), before = member_number(body, "/before", from);
    if (after <= from) {
        set_trouble(f, true, "pubsub says that the cursor is gone, but not where the stream goes on");
        ask_after(f, RETRY_REFUSED);
        return;
    }
    log_warn("crossing a hole in the stream: what was in it is not counted",
        LOG_S("stream", cursor(f)->stream), LOG_U("from", from), LOG_U("before", before),
        LOG_U("after", after));
    aggregate_cross_hole(f->config.aggregate, f->config.stream, after);
    ask_after(f, 0);
}

static void refuse(struct follower *f, const char *text)
{
    set_trouble(f, true, text);
    ask_after(f, RETRY_REFUSED);
}

static void unexpected(struct follower *f, enum http_client_result result, int status)
{
    char text[128];
    if (result == HTTP_CLIENT_OK)
        snprintf(text, sizeof(text), "pubsub answered %d", status);
    else
        snprintf(text, sizeof(text), "pubsub: %s", http_client_strerror(result));
    set_trouble(f, false, text);
    back_off(f);
}

static void on_done(enum http_client_result result, const struct http_reply_view *reply, void *arg)
{
    struct follower *f = arg;
    int status = result == HTTP_CLIENT_OK ? reply->status : 0;
    bool moved = cursor(f)->offset > f->asked_from;
    f->call = NULL;
    f->paused = false;
    line_splitter_reset(&f->lines);
    if (f->stopped)
        return;
    if (status == 200 && f->refused)
        ask_after(f, RETRY_REFUSED);
    else if (status == 200 && moved)
        ask_after(f, 0);
    else if (status == 200)
        back_off(f);
    else if (status == 404)
        unknown_stream(f);
    else if (status == 410)
        cross(f, reply->body);
    else if (status == 409)
        refuse(f, "pubsub has another stream under this name than the one counted");
    else if (status == 416)
        refuse(f, "the stream is shorter than what was counted of it: it is an old copy");
    else
        unexpected(f, result, status);
    f->config.changed(f->config.arg);
}

static void ask(struct follower *f)
{
    const struct slice_cursor *c = cursor(f);
    struct buf target = {0};
    if (f->stopped || f->call)
        return;
    if (aggregate_is_full(f->config.aggregate)) {
        ask_after(f, RETRY_UNKNOWN);
        return;
    }
    buf_printf(&target, "/sub?stream=%s&from=", c->stream);
    if (c->id[0] == '\0')
        buf_append_str(&target, "earliest");
    else
        buf_printf(&target, "%" PRIu64 "&id=%s", c->offset, c->id);
    buf_append_char(&target, '\0');
    f->asked_from = c->offset;
    struct http_call_spec spec = {.method = "GET",
        .target = target.ptr,
        .arg = f,
        .on_headers = on_headers,
        .on_body = on_body,
        .on_done = on_done};
    f->call = http_client_request(f->config.client, &spec);
    buf_free(&target);
}

/* ---- life ---- */

struct follower *follower_new(const struct follower_config *config)
{
    struct follower *f = mem_zalloc(sizeof(*f));
    f->config = *config;
    f->lines = (struct line_splitter){
        .max_line = config->max_line, .line = on_line, .overlong = on_overlong, .arg = f};
    f->timer = evtimer_new(config->base, on_timer, f);
    ask_after(f, 0);
    return f;
}

void follower_stop(struct follower *f)
{
    f->stopped = true;
    evtimer_del(f->timer);
    if (f->call)
        http_call_cancel(f->call);
}

void follower_free(struct follower **fp)
{
    struct follower *f = *fp;
    if (!f)
        return;
    follower_stop(f);
    event_free(f->timer);
    line_splitter_free(&f->lines);
    free(f);
    *fp = NULL;
}

void follower_resume(struct follower *f)
{
    if (!f->paused || !f->call || aggregate_is_full(f->config.aggregate))
        return;
    f->paused = false;
    http_call_resume(f->call);
}

bool follower_is_caught_up(const struct follower *f)
{
    return f->caught_up;
}

const char *follower_trouble(const struct follower *f, bool *refused)
{
    *refused = f->refused;
    return f->trouble[0] ? f->trouble : NULL;
}
