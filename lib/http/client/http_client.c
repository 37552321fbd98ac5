/* The queue of calls, and the public functions, see http_client_internal.h. */
#include "http/client/http_client_internal.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

#define DEFAULT_MAX_REPLY ((size_t)64 << 20)
#define DEFAULT_CONNECT_TIMEOUT (5 * USEC_PER_SEC)
#define DEFAULT_TIMEOUT (30 * USEC_PER_SEC)

const char *http_client_strerror(enum http_client_result r)
{
    switch (r) {
    case HTTP_CLIENT_OK:
        return "ok";
    case HTTP_CLIENT_REFUSED:
        return "no connection";
    case HTTP_CLIENT_RESET:
        return "the connection ended before the reply";
    case HTTP_CLIENT_TIMEOUT:
        return "no reply in time";
    case HTTP_CLIENT_TOO_LARGE:
        return "the reply is too large";
    case HTTP_CLIENT_BAD_REPLY:
        return "the reply is not HTTP";
    case HTTP_CLIENT_CANCELLED:
        return "cancelled";
    }
    return "unknown result";
}

static void on_start(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    struct http_client *c = arg;
    struct http_call *call;
    client_enter(c);
    while (!c->freed && (call = TAILQ_FIRST(&c->waiting))) {
        struct http_link *l = TAILQ_FIRST(&c->links);
        while (l && l->state != HTTP_LINK_POOLED)
            l = TAILQ_NEXT(l, entry);
        if (!l && c->n_links >= (size_t)c->max_connections)
            break;
        if (l && !link_carry(l, call))
            continue;
        TAILQ_REMOVE(&c->waiting, call, entry);
        if (!l)
            link_open(c, call);
    }
    client_leave(c);
}

struct http_client *http_client_new(const struct http_client_config *config)
{
    struct url_address address;
    if (url_address_parse(config->url, 80, &address) < 0)
        return NULL;
    struct http_client *c = mem_zalloc(sizeof *c);
    c->base = config->base;
    c->address = address;
    c->max_connections = config->max_connections > 0 ? config->max_connections : 1;
    c->max_reply = config->max_reply ? config->max_reply : DEFAULT_MAX_REPLY;
    c->cut_reply = config->cut_reply;
    c->connect_timeout = config->connect_timeout ? config->connect_timeout : DEFAULT_CONNECT_TIMEOUT;
    c->timeout = config->timeout ? config->timeout : DEFAULT_TIMEOUT;
    c->idle_timeout = config->idle_timeout;
    TAILQ_INIT(&c->waiting);
    TAILQ_INIT(&c->links);
    TAILQ_INIT(&c->dead);
    c->start_event = event_new(c->base, -1, 0, on_start, c);
    c->read_buffer = mem_alloc(HTTP_CLIENT_READ_SIZE);
    if (address.is_unix)
        buf_append_str(&c->host_lines, "Host: localhost\r\n");
    else
        buf_printf(&c->host_lines, strchr(address.host, ':') ? "Host: [%s]:%d\r\n" : "Host: %s:%d\r\n",
            address.host, address.port);
    if (config->auth_token)
        buf_printf(&c->host_lines, "Authorization: Bearer %s\r\n", config->auth_token);
    return c;
}

void http_client_free(struct http_client **cp)
{
    struct http_client *c = *cp;
    struct http_call *call;
    struct http_link *l;
    if (!c)
        return;
    *cp = NULL;
    c->freed = true;
    client_enter(c);
    while ((call = TAILQ_FIRST(&c->waiting)))
        call_end(call, HTTP_CLIENT_CANCELLED, false);
    while ((l = TAILQ_FIRST(&c->links))) {
        if (l->call)
            call_end(l->call, HTTP_CLIENT_CANCELLED, false);
        else
            link_close(l);
    }
    client_leave(c);
}

struct http_call *http_client_request(struct http_client *c, const struct http_call_spec *spec)
{
    assert(!c->freed);
    struct http_call *call = mem_zalloc(sizeof *call);
    struct buf *out = &call->request;
    call->client = c;
    call->is_head = strcmp(spec->method, "HEAD") == 0;
    call->may_resend = spec->may_resend;
    call->timeout = spec->timeout ? spec->timeout : c->timeout;
    call->arg = spec->arg;
    call->on_headers = spec->on_headers;
    call->on_body = spec->on_body;
    call->on_done = spec->on_done;
    buf_reserve(out, (spec->body_is_lent ? 0 : spec->body.len) + 512);
    buf_printf(out, "%s %s HTTP/1.1\r\n", spec->method, spec->target);
    buf_append_bytes(out, buf_bytes(&c->host_lines));
    if (spec->content_type)
        buf_printf(out, "Content-Type: %s\r\n", spec->content_type);
    if (spec->body.len > 0 || strcmp(spec->method, "POST") == 0 || strcmp(spec->method, "PUT") == 0)
        buf_printf(out, "Content-Length: %zu\r\n", spec->body.len);
    if (spec->headers)
        buf_append_str(out, spec->headers);
    buf_append_str(out, "\r\n");
    if (spec->body_is_lent)
        call->lent = spec->body;
    else
        buf_append_bytes(out, spec->body);
    TAILQ_INSERT_TAIL(&c->waiting, call, entry);
    client_start_soon(c);
    return call;
}

void http_call_cancel(struct http_call *call)
{
    struct http_client *c = call->client;
    client_enter(c);
    call_end(call, HTTP_CLIENT_CANCELLED, false);
    client_leave(c);
}

void http_call_pause(struct http_call *call)
{
    if (call->paused)
        return;
    call->paused = true;
    if (call->link)
        link_pause(call->link);
}

void http_call_resume(struct http_call *call)
{
    if (!call->paused)
        return;
    call->paused = false;
    if (call->link)
        link_resume(call->link);
}

const char *http_reply_header(const struct http_reply_view *r, const char *name)
{
    const struct buf *head = &r->call->head;
    const char *p = head->ptr, *end = head->ptr + head->len;
    while (r->call->head_whole && p < end) {
        const char *value = p + strlen(p) + 1;
        if (strcasecmp(p, name) == 0)
            return value;
        p = value + strlen(value) + 1;
    }
    return "";
}

struct fetch {
    enum http_client_result result;
    bool done;
    int *status;
    struct buf *body;
};

static void fetch_done(enum http_client_result result, const struct http_reply_view *reply, void *arg)
{
    struct fetch *f = arg;
    f->result = result;
    f->done = true;
    if (f->status)
        *f->status = reply->status;
    if (f->body)
        buf_append_bytes(f->body, reply->body);
}

enum http_client_result http_client_fetch(
    struct http_client *c, const struct http_call_spec *spec, int *status, struct buf *body)
{
    struct fetch f = {.status = status, .body = body};
    struct http_call_spec mine = *spec;
    mine.arg = &f;
    mine.on_done = fetch_done;
    struct http_call *call = http_client_request(c, &mine);
    while (!f.done) {
        bool ended = event_base_loop(c->base, EVLOOP_ONCE) != 0 || event_base_got_break(c->base);
        if (ended && !f.done)
            http_call_cancel(call);
    }
    return f.result;
}
