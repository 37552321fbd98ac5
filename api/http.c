#include "api/http.h"

#include "api/render.h"
#include <stdlib.h>

#define UNOWNED_MAX ((size_t)64 << 20)

static void handle_query(struct http_request *req, struct api *api, enum query_kind kind)
{
    struct query query;
    struct query_context context = {
        .counters = api->counters, .max_rows = api->max_rows, .now = clock_wall() / USEC_PER_SEC};
    struct query_error error, unused;
    int result = query_parse(&context, kind, http_query(req), &query, &error);
    if (result == 0) {
        ask_start(api->asks, req, &query, NULL);
        return;
    }
    context.accepts_former = strcmp(error.code, "unknown-counter") == 0;
    if (context.accepts_former && query_parse(&context, kind, http_query(req), &query, &unused) == 0)
        ask_start(api->asks, req, &query, &error);
    else
        http_problem(req, error.status, error.code, *error.hint ? error.hint : NULL, "%s", error.detail);
}

static void handle_series(struct http_request *req, void *ctx)
{
    handle_query(req, ctx, QUERY_SERIES);
}

static void handle_breakdown(struct http_request *req, void *ctx)
{
    handle_query(req, ctx, QUERY_BREAKDOWN);
}

static void handle_counters(struct http_request *req, void *ctx)
{
    struct buf out = {0};
    render_counters(((struct api *)ctx)->counters, &out);
    http_reply(req, 200, "application/json", buf_bytes(&out));
    buf_free(&out);
}

/* A body that is on its way to the queue. */
struct post {
    struct api *api;
    struct http_request *req; /* NULL after the client has disconnected */
    struct buf body;
    size_t lines;
};

/* The client disconnected. The events are still sent to the queue. */
static void post_gone(struct http_request *req, void *arg)
{
    struct post *p = arg;
    (void)req;
    p->req = NULL;
    p->api->unowned += p->body.cap;
}

static void post_free(struct post *p)
{
    if (!p->req)
        p->api->unowned -= p->body.cap;
    buf_free(&p->body);
    free(p);
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
    } else
        http_replyf(p->req, 200, "application/json", "{\"accepted\":%zu%s}\n", p->lines,
            *http_reply_header(reply, "X-Millrace-Duplicate") ? ",\"duplicate\":true" : "");
    post_free(p);
}

/* Drops empty lines and each CR before an LF, and ends the last line. Returns the number of events. */
static size_t clean_events(struct buf *body)
{
    size_t n = 0, kept = 0;
    for (size_t at = 0; at < body->len;) {
        const char *line = body->ptr + at, *lf = memchr(line, '\n', body->len - at);
        size_t len = lf ? (size_t)(lf - line) : body->len - at;
        at += len + (lf != NULL);
        if (len && line[len - 1] == '\r')
            len--;
        if (len == 0)
            continue;
        memmove(body->ptr + kept, line, len);
        kept += len;
        if (kept == body->len)
            buf_append_char(body, '\n');
        body->ptr[kept++] = '\n';
        n++;
    }
    body->len = kept;
    return n;
}

static void handle_events(struct http_request *req, void *ctx)
{
    static const char *const marks[] = {"queue", "producer", "mark", "next"};
    struct api *api = ctx;
    struct buf target = {0};
    struct bytes value;
    bool names_producer = false;
    http_add_header(req, "Access-Control-Allow-Origin", "*");
    if (http_method(req) ==
        HTTP_OPTIONS_) { /* any page may post events; counts are not readable across origins */
        http_add_header(req, "Access-Control-Allow-Methods", "POST, OPTIONS");
        http_add_header(req, "Access-Control-Allow-Headers", "Content-Type, Content-Encoding, Authorization");
        http_add_header(req, "Access-Control-Max-Age", "86400");
        http_reply(req, 204, NULL, BYTES_NONE);
        return;
    }
    buf_append_str(&target, "/mput?separator=%0A");
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) {
        if (!http_param(req, marks[i], &value))
            continue;
        names_producer = true;
        buf_printf(&target, "&%s=", marks[i]);
        url_encode(value, &target);
    }
    buf_append_char(&target, '\0');
    struct post *p = mem_zalloc(sizeof *p);
    *p = (struct post){.api = api, .req = req, .body = http_take_body(req)};
    p->lines = clean_events(&p->body);
    http_set_held_bytes(req, p->body.cap);
    /* A page from another origin may post events, but may name neither queue nor producer, nor move a mark. */
    bool allowed = !names_producer || http_require_same_origin(req);
    bool is_empty = p->lines == 0 && !http_param(req, "mark", &value);
    bool is_full = api->unowned > UNOWNED_MAX;
    if (allowed && is_empty)
        http_problem(req, 400, "empty-body", "post events, one JSON object a line", "the body has no events");
    else if (allowed && is_full)
        http_refuse_hold(req, HTTP_HOLD_OVERLOADED, NULL);
    if (allowed && !is_empty && !is_full) {
        http_on_gone(req, post_gone, p);
        http_client_request(api->queue, &(struct http_call_spec){.method = "POST",
                                            .target = target.ptr,
                                            .content_type = "application/octet-stream",
                                            .body = buf_bytes(&p->body),
                                            .body_is_lent = true,
                                            .arg = p,
                                            .on_done = post_done});
    } else {
        post_free(p);
    }
    buf_free(&target);
}

const struct http_route api_routes[] = {
    {.path = "/v1/series",
        .methods = HTTP_GET_,
        .handler = handle_series,
        .help = "LABEL=KEY, or ns= and key=: counts by hour, day, week or month"},
    {.path = "/v1/breakdown",
        .methods = HTTP_GET_,
        .handler = handle_breakdown,
        .help = "LABEL=KEY&by=LABEL: the subtotals of a key, largest first"},
    {.path = "/v1/counters",
        .methods = HTTP_GET_,
        .handler = handle_counters,
        .help = "the configured counters"},
    {.path = "/v1/events",
        .methods = HTTP_POST_ | HTTP_OPTIONS_,
        .flags = HTTP_ROUTE_DECODES_BODY | HTTP_ROUTE_PUBLIC,
        .handler = handle_events,
        .help = "put events, one a line, onto the local queue"},
    {.path = NULL},
};
