#include "api/metrics_proxy.h"

#include <stdlib.h>

/* The call to the daemon owns the struct: on_done frees it. */
struct passed {
    struct http_request *req; /* NULL: the client has disconnected */
    struct http_call *call;
    const char *name; /* of the daemon */
    bool has_begun;
};

static void on_gone(struct http_request *req, void *arg)
{
    struct passed *p = arg;
    (void)req;
    p->req = NULL;
    http_call_cancel(p->call);
}

static void on_drained(struct http_request *req, void *arg)
{
    (void)req;
    http_call_resume(((struct passed *)arg)->call);
}

static void on_headers(const struct http_reply_view *reply, void *arg)
{
    struct passed *p = arg;
    if (!p->req || reply->status >= 300)
        return;
    http_stream_start(p->req, reply->status, http_reply_header(reply, "Content-Type"));
    p->has_begun = true;
}

static void on_body(struct http_call *call, struct bytes piece, void *arg)
{
    struct passed *p = arg;
    if (!p->req)
        return;
    http_stream_write(p->req, piece);
    if (http_stream_pending(p->req) > METRICS_AHEAD)
        http_call_pause(call);
}

static void on_done(enum http_client_result result, const struct http_reply_view *reply, void *arg)
{
    struct passed *p = arg;
    if (p->req && p->has_begun && result == HTTP_CLIENT_OK)
        http_stream_end(p->req);
    else if (p->req && p->has_begun)
        http_stream_abort(p->req);
    else if (p->req && reply->status == 401) /* the API's own token is right */
        http_problem(p->req, 503, "upstream-unavailable",
            "see metricdb_token_file and ruler_token_file under [api]", "%s refuses the token", p->name);
    else if (p->req && result == HTTP_CLIENT_OK)
        http_reply(p->req, reply->status, http_reply_header(reply, "Content-Type"), reply->body);
    else if (p->req)
        http_problem(p->req, 503, "upstream-unavailable", "try again", "%s does not answer: %s", p->name,
            http_client_strerror(result));
    free(p);
}

static void append_form(const struct url_query *query, struct buf *out)
{
    for (size_t i = 0; i < query->n; i++) {
        buf_append_str(out, i ? "&" : "");
        url_encode(query->params[i].name, out);
        buf_append_char(out, '=');
        url_encode(query->params[i].value, out);
    }
}

void metrics_proxy_pass(struct http_client *daemon, const char *name, struct http_request *req)
{
    struct buf target = {0}, form = {0};
    if (!daemon) {
        http_problem(req, 404, "metrics-off",
            "add a section with the name of the daemon, or set its address under [api]",
            "this pipeline has no %s", name);
        return;
    }
    if (!http_take_form(req))
        return;
    for (const char *at = http_path(req); *at; at++)
        if (*at == '/')
            buf_append_char(&target, '/');
        else
            url_encode(bytes_of(at, 1), &target);
    buf_append_char(&target, '\0');
    append_form(http_query(req), &form);
    struct passed *p = mem_zalloc(sizeof *p);
    p->req = req;
    p->name = name;
    http_on_gone(req, on_gone, p);
    http_on_drain(req, METRICS_AHEAD / 2, on_drained, p);
    p->call = http_client_request(daemon, &(struct http_call_spec){.method = "POST",
                                              .target = target.ptr,
                                              .content_type = "application/x-www-form-urlencoded",
                                              .body = buf_bytes(&form),
                                              .timeout = METRICS_TIMEOUT,
                                              .may_resend = true,
                                              .arg = p,
                                              .on_headers = on_headers,
                                              .on_body = on_body,
                                              .on_done = on_done});
    http_set_long_poll(req);
    buf_free(&target);
    buf_free(&form);
}
