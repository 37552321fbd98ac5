/* The endpoints of every daemon. The ctx of these routes is the server. */
#include "http/server/http_internal.h"

static void handle_ping(struct http_request *req, void *ctx)
{
    (void)ctx;
    http_reply(req, 200, NULL, BYTES_LITERAL("OK"));
}

void http_reply_health(struct http_request *req)
{
    const struct http_server_config *config = &req->conn->server->config;
    if (config->reply_health)
        config->reply_health(req, config->not_ready_arg);
    else if (!http_refuse_not_ready(req))
        http_reply(req, 200, NULL, BYTES_LITERAL("ready\n"));
}

static void handle_health(struct http_request *req, void *ctx)
{
    const struct http_server *s = ctx;
    if (!s->config.check_health || !s->config.check_health(req, s->config.ctx))
        http_reply_health(req);
}

static void handle_stats(struct http_request *req, void *ctx)
{
    const struct http_server *s = ctx;
    const struct http_server_config *config = &s->config;
    struct bytes format = BYTES_LITERAL("text");
    struct buf body = {0};
    http_param(req, "format", &format);
    bool reset, json = bytes_equal_str(format, "json");
    if (!json && !bytes_equal_str(format, "text")) {
        http_problem(req, 400, "bad-parameter", NULL, "format must be text or json");
        return;
    }
    if (!http_param_bool(req, "reset", false, &reset))
        return;
    if (reset && config->reset_stats) { /* the reply shows the values after the reset */
        if (!http_require_admin(req))
            return;
        config->reset_stats(config->ctx);
    }
    if (json) {
        buf_append_char(&body, '{');
        stats_print_json_members(config->stats, &body);
        if (config->print_health) {
            buf_append_str(&body, ",\"health\":");
            config->print_health(config->not_ready_arg, &body);
        }
    }
    if (config->extra_stats) /* in text, extra_stats come first, as scripts for bitly's daemons expect */
        config->extra_stats(config->ctx, json, &body);
    if (json)
        buf_append_str(&body, "}\n");
    else
        stats_print_text(config->stats, &body);
    if (config->stats_headers)
        config->stats_headers(config->ctx, req);
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

void http_reply_endpoints(struct http_request *req)
{
    const struct http_server *s = req->conn->server;
    struct buf body = {0};
    for (size_t i = 0; i < s->n_endpoints; i++) {
        const struct http_route *row = s->endpoints[i].row;
        if (row->help)
            buf_printf(&body, "%-20s %s\n", row->path, row->help);
    }
    http_reply(req, 200, NULL, buf_bytes(&body));
    buf_free(&body);
}

static void handle_list(struct http_request *req, void *ctx)
{
    (void)ctx;
    http_reply_endpoints(req);
}

/* Answers OPTIONS *, a question about the methods of the whole server. */
static void handle_server_options(struct http_request *req, void *ctx)
{
    const struct http_server *s = ctx;
    for (size_t i = 0; i < s->n_endpoints; i++)
        req->allowed |= s->endpoints[i].row->methods;
    http_route_add_allow(req);
    http_reply(req, 204, NULL, BYTES_NONE);
}

/* Answers the OPTIONS request that a browser sends before a web page's request with unusual headers. The check of the page's origin has
 * already passed. Any header is allowed, because tracing tools in a page add headers to every request. */
static void handle_preflight(struct http_request *req, void *ctx)
{
    (void)ctx;
    struct bytes headers = http_header(req, "Access-Control-Request-Headers");
    if (!headers.len)
        headers = BYTES_LITERAL("Authorization, Content-Encoding, Content-Type, If-None-Match");
    req->allowed |= HTTP_OPTIONS_;
    http_route_add_allow(req);
    http_route_add_methods(req, "Access-Control-Allow-Methods");
    http_add_header(req, "Access-Control-Allow-Headers", "%.*s", (int)headers.len, headers.ptr);
    http_add_header_text(req, "Access-Control-Max-Age", "86400");
    http_reply(req, 204, NULL, BYTES_NONE);
}

const struct http_route http_preflight_route = {
    .path = "(preflight)", .methods = HTTP_OPTIONS_, .handler = handle_preflight};

const struct http_route http_builtin_routes[] = {
    {"/ping", HTTP_GET_, HTTP_ROUTE_OPEN, .handler = handle_ping, .help = "answers OK"},
    {"/health", HTTP_GET_, HTTP_ROUTE_OPEN | HTTP_ROUTE_LENIENT, .handler = handle_health, .params = "format",
        .help =
            "200 with warnings and remedies when ready; 503 with the reason and the remedy; ?format=json"},
    {"/stats", HTTP_GET_ | HTTP_POST_, HTTP_ROUTE_LENIENT, .handler = handle_stats, .params = "format reset",
        .help = "the daemon's counters; ?format=json"},
    {"/metrics", HTTP_GET_, .handler = handle_metrics, .help = "the daemon's counters for Prometheus"},
    {"/", HTTP_GET_, .handler = handle_list, .help = "this list"},
    {"*", HTTP_OPTIONS_, HTTP_ROUTE_OPEN, .handler = handle_server_options},
    {.path = NULL},
};
