#include "api/page/events.h"

#include <stdlib.h>

#define UNOWNED_MAX ((size_t)64 << 20)

/* Events that were sent to the queue, whose reply is outstanding. */
struct post {
    struct api *api;
    struct http_request *req; /* NULL after the client has disconnected */
    bool is_pixel;
    struct buf events;
    size_t n;
    struct buf refused; /* members of the reply that list the refused events */
};

static void post_gone(struct http_request *req, void *arg)
{
    struct post *p = arg;
    (void)req;
    p->req = NULL;
    p->api->unowned += p->events.cap;
}

static void post_free(struct post *p)
{
    if (!p->req)
        p->api->unowned -= p->events.cap;
    buf_free(&p->events);
    buf_free(&p->refused);
    free(p);
}

static void reply_pixel(struct http_request *req)
{
    static const char gif[] =
        "GIF89a\1\0\1\0\x80\0\0\0\0\0\xFF\xFF\xFF!\xF9\4\1\0\0\0\0,\0\0\0\0\1\0\1\0\0\2\2D\1\0;";
    http_add_header(req, "Cache-Control", "no-store");
    http_reply(req, 200, "image/gif", bytes_of(gif, sizeof gif - 1));
}

static void post_done(enum http_client_result result, const struct http_reply_view *reply, void *arg)
{
    struct post *p = arg;
    if (!p->req) {
        post_free(p);
        return;
    }
    if (result == HTTP_CLIENT_REFUSED)
        http_problem(p->req, 503, "upstream-unavailable", "try again", "cannot connect to the queue");
    else if (result != HTTP_CLIENT_OK)
        http_problem(p->req, 503, "upstream-unavailable",
            "the queue may have stored the events; use producer, mark and next to make a retry harmless",
            "the queue did not answer: %s", http_client_strerror(result));
    else if (reply->status != 200) { /* pass the queue's error on unchanged */
        const char *retry = http_reply_header(reply, "Retry-After");
        if (*retry)
            http_add_header(p->req, "Retry-After", "%s", retry);
        http_reply(p->req, reply->status, http_reply_header(reply, "Content-Type"), reply->body);
    } else if (p->is_pixel)
        reply_pixel(p->req);
    else
        http_replyf(p->req, 200, "application/json", "{\"accepted\":%zu%s%.*s}\n", p->n,
            *http_reply_header(reply, "X-Millrace-Duplicate") ? ",\"duplicate\":true" : "",
            (int)p->refused.len, p->refused.len ? p->refused.ptr : "");
    post_free(p);
}

/* Appends the parameters of the request that the queue supports. Returns true if the request has such parameters. */
static bool append_marks(struct http_request *req, struct buf *target)
{
    static const char *const marks[] = {"queue", "producer", "mark", "next"};
    struct bytes value;
    bool any = false;
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) {
        if (!http_param(req, marks[i], &value))
            continue;
        any = true;
        buf_printf(target, "&%s=", marks[i]);
        url_encode(value, target);
    }
    return any;
}

/* Sends the events to the queue, and takes ownership of the memory of `events`. `marks`: further parameters of the
 * target. `refused` is NULL if no event of the request was refused. */
static void send_events(struct http_request *req, struct api *api, struct buf *events, size_t n,
    struct bytes marks, bool is_pixel, const struct event_refusals *refused)
{
    if (api->unowned > UNOWNED_MAX) {
        http_refuse_hold(req, HTTP_HOLD_OVERLOADED, NULL);
        return;
    }
    struct buf target = {0};
    buf_printf(&target, "/mput?separator=%%0A%.*s", (int)marks.len, marks.ptr);
    buf_append_char(&target, '\0');
    struct post *p = mem_zalloc(sizeof *p);
    *p = (struct post){.api = api, .req = req, .is_pixel = is_pixel, .events = *events, .n = n};
    *events = (struct buf){0};
    if (refused && refused->n > 0)
        buf_printf(&p->refused, ",\"partial\":true,\"refused\":%zu,\"errors\":[%.*s]", refused->n,
            (int)refused->list.len, refused->list.ptr);
    http_set_held_bytes(req, p->events.cap);
    http_on_gone(req, post_gone, p);
    http_client_request(api->queue, &(struct http_call_spec){.method = "POST",
                                        .target = target.ptr,
                                        .content_type = "application/octet-stream",
                                        .body = buf_bytes(&p->events),
                                        .body_is_lent = true,
                                        .arg = p,
                                        .on_done = post_done});
    buf_free(&target);
}

static void refuse_events(struct http_request *req, const struct error *error)
{
    http_problem(req, 400, "invalid-event",
        "post JSON objects, one a line, or one array of objects; nothing was stored", "%s", error->text);
}

void events_post(struct http_request *req, void *ctx)
{
    struct api *api = ctx;
    struct buf marks = {0}, events = {0}, body;
    struct bytes value;
    size_t n = 0;
    struct event_refusals refused = {0};
    bool has_marks = append_marks(req, &marks);
    if ((has_marks && !http_require_same_origin(req)) ||
        !http_param_bool(req, "all_or_none", false, &refused.all_or_none))
        goto out;
    body = http_take_body(req);
    door_begin(api->door, req);
    int result = event_body_read(api->event_body, buf_bytes(&body), clock_wall(), &events, &n, &refused);
    buf_free(&body);
    stats_add(api->refused_events, refused.n);
    if (refused.too_many)
        http_problem(req, 413, "too-large", "post fewer events at once", "%s", refused.first.text);
    else if (result != 0 || (n == 0 && refused.n > 0))
        refuse_events(req, &refused.first);
    else if (n == 0 && !http_param(req, "mark", &value))
        http_problem(req, 400, "empty-body", "post events, one JSON object a line", "the body has no events");
    else
        send_events(req, api, &events, n, buf_bytes(&marks), false, &refused);
out:
    buf_free(&refused.list);
    buf_free(&events);
    buf_free(&marks);
}

void events_pixel(struct http_request *req, void *ctx)
{
    struct api *api = ctx;
    struct buf events = {0};
    struct error error;
    door_begin(api->door, req);
    if (event_body_from_query(api->event_body, http_query(req), clock_wall(), &events, &error) != 0)
        refuse_events(req, &error);
    else
        send_events(req, api, &events, 1, BYTES_NONE, true, NULL);
    buf_free(&events);
}

void events_incr(struct http_request *req, void *ctx)
{
    struct api *api = ctx;
    struct bytes ns = BYTES_NONE, key = BYTES_NONE, sub = BYTES_NONE;
    struct buf marks = {0}, events = {0};
    uint64_t n;
    struct error error;
    if (!http_param_u64(req, "n", 1, 1, EVENT_REPEAT_MAX, &n))
        return;
    const struct counters *c = api->counters;
    const struct counter *counter = http_param(req, "ns", &ns) ? counters_find(c, ns) : NULL;
    bool has_sub = http_param(req, "sub", &sub) && sub.len > 0,
         is_sub = counter && memchr(ns.ptr, '.', ns.len);
    const struct counter *total = is_sub ? &c->totals[counter->total] : counter;
    append_marks(req, &marks);
    if (!counter)
        http_problem(req, ns.len > 0 ? 404 : 400, ns.len > 0 ? "unknown-counter" : "missing-parameter",
            "GET /v1/counters lists them", "ns is not the namespace of a counter");
    else if (!http_param(req, "key", &key) && total->kind != COUNTER_CONSTANT)
        http_problem(req, 400, "missing-parameter", NULL, "key is required");
    else if (is_sub && !has_sub)
        http_problem(req, 400, "missing-parameter", NULL, "ns=%s is a subtotal and needs sub=", counter->ns);
    else if (has_sub && !is_sub)
        http_problem(req, 400, "bad-parameter", NULL, "sub needs the ns of a subtotal");
    else if (event_body_incr(api->event_body, counter, key, sub, n, clock_wall(), &events, &error) != 0)
        http_problem(req, 422, "not-a-field", NULL, "%s", error.text);
    else
        send_events(req, api, &events, n, buf_bytes(&marks), false, NULL);
    buf_free(&events);
    buf_free(&marks);
}
