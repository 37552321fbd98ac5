/* http: the endpoint of the scraper. */
#include "scraper/scraper_server.h"

static void on_targets(struct http_request *req, void *ctx)
{
    const struct scraper *scraper = ctx;
    struct buf out = {0};
    scrape_loop_print(scraper->loop, &out);
    http_reply_buf(req, 200, "application/json", &out);
    buf_free(&out);
}

const struct http_route scraper_routes[] = {
    HTTP_ROUTE("/targets", HTTP_GET_, 0, on_targets, "", "the targets and their last scrapes, as JSON"),
    {.path = NULL},
};
