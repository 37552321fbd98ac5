/* http: the endpoints of the scraper. */
#include "scraper/scraper_server.h"

#define FORM_MAX ((size_t)1 << 20) /* bytes of the parameters of a POST */

static void on_targets(struct http_request *req, void *ctx)
{
    const struct scraper *scraper = ctx;
    struct buf out = {0};
    scrape_loop_print(scraper->loop, &out);
    http_reply_buf(req, 200, "application/json", &out);
    buf_free(&out);
}

static void on_metadata(struct http_request *req, void *ctx)
{
    const struct scraper *scraper = ctx;
    struct bytes metric = BYTES_NONE;
    uint64_t limit;
    struct buf out = {0};
    if (!http_take_form(req) || !http_param_u64(req, "limit", UINT64_MAX, 0, UINT64_MAX, &limit))
        return;
    http_param(req, "metric", &metric);
    scrape_loop_print_metadata(scraper->loop, metric, limit, &out);
    http_reply_buf(req, 200, "application/json", &out);
    buf_free(&out);
}

const struct http_route scraper_routes[] = {
    HTTP_ROUTE("/targets", HTTP_GET_, 0, on_targets, "", "the targets and their last scrapes, as JSON"),
    {.path = "/api/v1/metadata",
        .methods = HTTP_GET_ | HTTP_POST_,
        .max_body = FORM_MAX,
        .handler = on_metadata,
        .help = "metric=&limit=: types, help texts and units of metrics, as Prometheus answers"},
    {.path = NULL},
};
