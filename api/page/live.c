#include "api/page/live.h"
#include "api/page/live_filter.h"
#include "stream/line_scheduler.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

/* A client of /v1/live. The call to pubsub owns the client: on_done frees the client, and ends an open request. */
struct live_client {
    struct live *live;
    struct http_request *req; /* NULL: the client has disconnected */
    struct http_call *call;
    bool has_begun, is_congested;
    /* With a condition: lines that are not filtered yet, the received beginning of the next line (`rest`), and text to
     * send (`passed`). */
    struct live_filter *filter;
    struct line_queue *unfiltered;
    struct buf rest, passed;
};

struct live {
    struct http_client *pubsub;
    struct line_scheduler *scheduler;
    struct live_client *clients[LIVE_CLIENTS_MAX];
    size_t n_clients;
};

static void client_gone(struct http_request *req, void *arg)
{
    struct live_client *c = arg;
    (void)req;
    c->req = NULL;
    http_call_cancel(c->call);
}

static void forget(struct live_client *c)
{
    struct live *l = c->live;
    size_t i = 0;
    while (l->clients[i] != c)
        i++;
    l->clients[i] = l->clients[--l->n_clients];
    line_queue_free(&c->unfiltered);
    live_filter_free(&c->filter);
    buf_free(&c->rest);
    buf_free(&c->passed);
    free(c);
}

/* Stops reading from pubsub while too many bytes wait for the client or for the filter. */
static void pause_or_resume(struct live_client *c)
{
    if (c->is_congested || (c->unfiltered && line_queue_is_full(c->unfiltered)))
        http_call_pause(c->call);
    else
        http_call_resume(c->call);
}

static void on_drained(struct http_request *req, void *arg)
{
    struct live_client *c = arg;
    (void)req;
    c->is_congested = false;
    pause_or_resume(c);
}

static void send_piece(struct live_client *c, struct bytes piece)
{
    http_stream_write(c->req, piece);
    c->is_congested = c->is_congested || http_stream_pending(c->req) > LIVE_AHEAD;
    pause_or_resume(c);
}

static void on_line(struct bytes line, void *arg)
{
    struct live_client *c = arg;
    live_filter_take(c->filter, line, &c->passed);
}

static void on_slice(void *arg)
{
    struct live_client *c = arg;
    if (!c->req)
        return;
    if (line_queue_is_empty(c->unfiltered))
        live_filter_pass_id(c->filter, &c->passed);
    send_piece(c, buf_bytes(&c->passed));
    buf_clear(&c->passed);
}

static void on_headers(const struct http_reply_view *reply, void *arg)
{
    struct live_client *c = arg;
    if (!c->req || reply->status != 200)
        return;
    http_stream_start_endless(c->req, "text/event-stream");
    http_stream_disable_timeout(c->req);
    c->has_begun = true;
}

static void on_body(struct http_call *call, struct bytes piece, void *arg)
{
    struct live_client *c = arg;
    const char *lf = memrchr(piece.ptr, '\n', piece.len);
    size_t n = lf ? (size_t)(lf - piece.ptr) + 1 : 0; /* bytes up to the end of the last line */
    (void)call;
    if (!c->req)
        return;
    if (!c->filter) {
        send_piece(c, piece);
        return;
    }
    buf_append(&c->rest, piece.ptr, n);
    if (n > 0) {
        line_queue_add(c->unfiltered, buf_bytes(&c->rest), 0);
        buf_clear(&c->rest);
        pause_or_resume(c);
    }
    buf_append(&c->rest, piece.ptr + n, piece.len - n);
}

static void on_done(enum http_client_result result, const struct http_reply_view *reply, void *arg)
{
    struct live_client *c = arg;
    if (c->req && c->is_congested &&
        result == HTTP_CLIENT_CANCELLED) /* a stop must not wait for this client */
        http_stream_abort(c->req);
    else if (c->req && c->has_begun)
        http_stream_end(c->req);
    else if (c->req && reply->status == 401) /* the API's own token is right */
        http_problem(
            c->req, 503, "upstream-unavailable", "see [api] pubsub_token_file", "pubsub refuses the token");
    else if (c->req && result == HTTP_CLIENT_OK)
        http_reply(c->req, reply->status, http_reply_header(reply, "Content-Type"), reply->body);
    else if (c->req)
        http_problem(c->req, 503, "upstream-unavailable", "try again", "pubsub does not answer: %s",
            http_client_strerror(result));
    forget(c);
}

struct live *live_new(struct event_base *base, struct http_client *pubsub)
{
    struct live *l = mem_zalloc(sizeof *l);
    l->pubsub = pubsub;
    l->scheduler = line_scheduler_new(base);
    return l;
}

void live_drain(struct live *l)
{
    while (l->n_clients > 0)
        http_call_cancel(l->clients[0]->call);
}

void live_free(struct live **l)
{
    if (!*l)
        return;
    assert((*l)->n_clients == 0);
    line_scheduler_free(&(*l)->scheduler);
    free(*l);
    *l = NULL;
}

/* Passes on the reply to `target`, filtered if `filter` is not NULL. Owns the filter. */
static void pass_on(struct live *l, struct http_request *req, const char *target, struct live_filter *filter)
{
    struct bytes last = http_header(req, "Last-Event-ID");
    struct buf headers = {0};
    if (l->n_clients == LIVE_CLIENTS_MAX) {
        http_problem(
            req, 503, "overloaded", "close a page", "%d clients follow streams already", LIVE_CLIENTS_MAX);
        live_filter_free(&filter);
        return;
    }
    buf_append_str(&headers, "Accept: text/event-stream\r\n");
    if (last.len > 0)
        buf_printf(&headers, "Last-Event-ID: %.*s\r\n", (int)last.len, last.ptr);
    buf_append_char(&headers, '\0');
    struct live_client *c = mem_zalloc(sizeof *c);
    *c = (struct live_client){.live = l, .req = req, .filter = filter};
    if (filter)
        c->unfiltered = line_queue_new(&(struct line_queue_config){
            .scheduler = l->scheduler, .on_line = on_line, .on_slice = on_slice, .arg = c});
    l->clients[l->n_clients++] = c;
    http_on_gone(req, client_gone, c);
    http_on_drain(req, LIVE_AHEAD / 2, on_drained, c);
    c->call = http_client_request(l->pubsub, &(struct http_call_spec){.method = "GET",
                                                 .target = target,
                                                 .headers = headers.ptr,
                                                 .arg = c,
                                                 .on_headers = on_headers,
                                                 .on_body = on_body,
                                                 .on_done = on_done});
    http_set_long_poll(req);
    buf_free(&headers);
}

void live_reply(struct live *l, struct http_request *req)
{
    char stream[NAME_LEN_MAX + 1];
    struct bytes from = BYTES_LITERAL("latest"), lines, condition;
    struct live_filter *filter = NULL;
    struct buf target = {0};
    struct error error;
    if (!http_param_name(req, "stream", NULL, stream))
        return;
    if (http_param(req, "if", &condition) && !(filter = live_filter_new(condition, &error))) {
        http_problem(req, 400, "bad-parameter", NULL, "if: %s", error.text);
        return;
    }
    bool has_from = http_param(req, "from", &from), has_lines = http_param(req, "last", &lines);
    buf_printf(&target, "/sub?stream=%s", stream);
    if (has_from || !has_lines) {
        buf_append_str(&target, "&from=");
        url_encode(from, &target);
    }
    if (has_lines) { /* pubsub refuses a request with both */
        buf_append_str(&target, "&last=");
        url_encode(lines, &target);
    }
    buf_append_char(&target, '\0');
    pass_on(l, req, target.ptr, filter);
    buf_free(&target);
}

void live_reply_rate(struct live *l, struct http_request *req)
{
    char target[NAME_LEN_MAX + 16] = "/rate", stream[NAME_LEN_MAX + 1];
    struct bytes ignored;
    if (http_param(req, "stream", &ignored)) {
        if (!http_param_name(req, "stream", NULL, stream))
            return;
        snprintf(target, sizeof target, "/rate?stream=%s", stream);
    }
    pass_on(l, req, target, NULL);
}
