#include "api/page/live.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

/* A client of /v1/live. The call to pubsub owns the client: on_done frees the client, and ends an open request. */
struct live_client {
    struct live *live;
    struct http_request *req; /* NULL: the client has disconnected */
    struct http_call *call;
    bool has_begun, is_paused;
};

struct live {
    struct http_client *pubsub;
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
    free(c);
}

static void on_drained(struct http_request *req, void *arg)
{
    struct live_client *c = arg;
    (void)req;
    c->is_paused = false;
    http_call_resume(c->call);
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
    if (!c->req)
        return;
    http_stream_write(c->req, piece);
    if (http_stream_pending(c->req) <= LIVE_AHEAD || c->is_paused)
        return;
    c->is_paused = true;
    http_call_pause(call);
    http_on_drain(c->req, LIVE_AHEAD / 2, on_drained, c);
}

static void on_done(enum http_client_result result, const struct http_reply_view *reply, void *arg)
{
    struct live_client *c = arg;
    if (c->req && c->is_paused && result == HTTP_CLIENT_CANCELLED) /* a stop must not wait for this client */
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

struct live *live_new(struct http_client *pubsub)
{
    struct live *l = mem_zalloc(sizeof *l);
    l->pubsub = pubsub;
    return l;
}

void live_drain(struct live *l)
{
    while (l->n_clients > 0)
        http_call_cancel(l->clients[0]->call);
}

void live_free(struct live **l)
{
    assert(!*l || (*l)->n_clients == 0);
    free(*l);
    *l = NULL;
}

static void pass_on(struct live *l, struct http_request *req, const char *target)
{
    struct bytes last = http_header(req, "Last-Event-ID");
    struct buf headers = {0};
    if (l->n_clients == LIVE_CLIENTS_MAX) {
        http_problem(
            req, 503, "overloaded", "close a page", "%d clients follow streams already", LIVE_CLIENTS_MAX);
        return;
    }
    buf_append_str(&headers, "Accept: text/event-stream\r\n");
    if (last.len > 0)
        buf_printf(&headers, "Last-Event-ID: %.*s\r\n", (int)last.len, last.ptr);
    buf_append_char(&headers, '\0');
    struct live_client *c = mem_zalloc(sizeof *c);
    *c = (struct live_client){.live = l, .req = req};
    l->clients[l->n_clients++] = c;
    http_on_gone(req, client_gone, c);
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
    struct bytes from = BYTES_LITERAL("latest"), lines;
    struct buf target = {0};
    if (!http_param_name(req, "stream", NULL, stream))
        return;
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
    pass_on(l, req, target.ptr);
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
    pass_on(l, req, target);
}
