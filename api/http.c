#include "api/http.h"

#include "api/events.h"
#include "api/render.h"
#include <stdlib.h>

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

static void handle_compare(struct http_request *req, void *ctx)
{
    handle_query(req, ctx, QUERY_COMPARE);
}

static void handle_top(struct http_request *req, void *ctx)
{
    handle_query(req, ctx, QUERY_TOP);
}

static void handle_counters(struct http_request *req, void *ctx)
{
    struct buf out = {0};
    render_counters(((struct api *)ctx)->counters, &out);
    http_reply(req, 200, "application/json", buf_bytes(&out));
    buf_free(&out);
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
    {.path = "/v1/compare",
        .methods = HTTP_GET_,
        .handler = handle_compare,
        .help = "a series beside that of the period before, or of against=year"},
    {.path = "/v1/top",
        .methods = HTTP_GET_,
        .handler = handle_top,
        .help = "counter=LABEL: the largest keys of a counter"},
    {.path = "/v1/counters",
        .methods = HTTP_GET_,
        .handler = handle_counters,
        .help = "the configured counters"},
    {.path = "/v1/events",
        .methods = HTTP_POST_ | HTTP_OPTIONS_,
        .flags = HTTP_ROUTE_DECODES_BODY | HTTP_ROUTE_PUBLIC,
        .handler = events_post,
        .help = "put events (lines or an array) onto the local queue"},
    {.path = "/v1/pixel.gif",
        .methods = HTTP_GET_,
        .flags = HTTP_ROUTE_NO_HEAD | HTTP_ROUTE_PUBLIC,
        .handler = events_pixel,
        .help = "put an event with these parameters onto the local queue; replies with an image"},
    {.path = "/v1/incr",
        .methods = HTTP_GET_ | HTTP_POST_,
        .flags = HTTP_ROUTE_NO_HEAD,
        .handler = events_incr,
        .params = "ns key sub n queue",
        .help = "ns=&key=: put n= events (default 1) that count under this key onto the local queue"},
    {.path = NULL},
};
