/* The endpoints every daemon has. Their ctx is the server. */
#include "http/server/http_internal.h"

static void handle_ping(struct http_request *req, void *ctx)
{
    (void)ctx;
    http_reply(req, 200, NULL, BYTES_LITERAL("OK"));
}

static void handle_health(struct http_request *req, void *ctx)
{
    const struct http_server *s = ctx;
    const char *why = http_not_ready(s);
    const char *degraded = s->config.degraded ? s->config.degraded(s->config.not_ready_arg) : NULL;
    if (why)
        http_problem(req, 503, "not-ready", NULL, "%s", why);
    else if (degraded)
        http_problem(req, 503, "not-well", NULL, "%s", degraded);
    else
        http_reply(req, 200, NULL, BYTES_LITERAL("ready\n"));
}

static void append_extra(const struct http_server *s, bool json, struct buf *body)
{
    if (s->config.extra_stats)
        s->config.extra_stats(s->config.ctx, json, body);
}

/* In text the daemon's own lines come first: scripts written for bitly's daemons count lines. */
static void append_stats(const struct http_server *s, bool json, struct buf *body)
{
    if (json) {
        buf_append_char(body, '{');
        stats_print_json_members(s->config.stats, body);
        append_extra(s, json, body);
        buf_append_str(body, "}\n");
    } else {
        append_extra(s, json, body);
        stats_print_text(s->config.stats, body);
    }
}

/* The reply shows the values after the reset. */
static bool reset_stats(struct http_request *req, const struct http_server *s)
{
    if (!s->config.reset_stats)
        return true;
    if (!http_require_admin(req))
        return false;
    s->config.reset_stats(s->config.ctx);
    return true;
}

static void handle_stats(struct http_request *req, void *ctx)
{
    const struct http_server *s = ctx;
    struct bytes format = BYTES_LITERAL("text");
    struct buf body = {0};
    http_param(req, "format", &format);
    bool reset, json = bytes_equal_str(format, "json");
    if (!json && !bytes_equal_str(format, "text")) {
        http_problem(req, 400, "bad-parameter", NULL, "format must be text or json");
        return;
    }
    if (!http_param_bool(req, "reset", false, &reset) || (reset && !reset_stats(req, ctx)))
        return;
    append_stats(s, json, &body);
    if (s->config.stats_headers)
        s->config.stats_headers(s->config.ctx, req);
    http_reply(req, 200, json ? "application/json" : NULL, buf_bytes(&body));
    buf_free(&body);
}

static void handle_metrics(struct http_request *req, void *ctx)
{
    const struct http_server *s = ctx;
    struct buf body = {0};
    stats_print_metrics(s->config.stats, &body);
    http_reply(req, 200, "text/plain; version=0.0.4; charset=utf-8", buf_bytes(&body));
    buf_free(&body);
}

static void handle_list(struct http_request *req, void *ctx)
{
    const struct http_server *s = ctx;
    struct buf body = {0};
    for (size_t i = 0; i < s->n_endpoints; i++) {
        const struct http_route *row = s->endpoints[i].row;
        if (row->help)
            buf_printf(&body, "%-20s %s\n", row->path, row->help);
    }
    http_reply(req, 200, NULL, buf_bytes(&body));
    buf_free(&body);
}

/* OPTIONS * asks about the server itself: HTTP's ping. */
static void handle_server_options(struct http_request *req, void *ctx)
{
    const struct http_server *s = ctx;
    for (size_t i = 0; i < s->n_endpoints; i++)
        req->allowed |= s->endpoints[i].row->methods;
    http_route_add_allow(req);
    http_reply(req, 204, NULL, BYTES_NONE);
}

#define READ_ROUTE(path_, flags_, handler_, help_)                                                           \
    {                                                                                                        \
        .path = (path_), .methods = HTTP_GET_, .flags = (flags_), .handler = (handler_), .help = (help_)     \
    }

const struct http_route http_builtin_routes[] = {
    READ_ROUTE("/ping", HTTP_ROUTE_OPEN, handle_ping, "answers OK"),
    READ_ROUTE("/health", HTTP_ROUTE_OPEN, handle_health, "200 when ready, otherwise 503 with the reason"),
    {.path = "/stats",
        .methods = HTTP_GET_,
        .flags = HTTP_ROUTE_LENIENT,
        .handler = handle_stats,
        .params = "format reset",
        .help = "the daemon's counters; ?format=json"},
    READ_ROUTE("/metrics", 0, handle_metrics, "the same counters for Prometheus"),
    READ_ROUTE("/", 0, handle_list, "this list"),
    {.path = "*", .methods = HTTP_OPTIONS_, .flags = HTTP_ROUTE_OPEN, .handler = handle_server_options},
    {.path = NULL},
};
