#include "api/archive_reload.h"

#include <inttypes.h>
#include <stdlib.h>

struct reload_call {
    struct api *api;
    struct http_request *req;
    struct archive_wait *wait;
};

static void on_gone(struct http_request *req, void *arg)
{
    struct reload_call *call = arg;
    (void)req;
    archive_wait_cancel(&call->wait);
    free(call);
}

static void on_refreshed(void *arg)
{
    struct reload_call *call = arg;
    struct generation *g = local_archive_generation(call->api->archive);
    const char *error = local_archive_error(call->api->archive);
    if (*error || !g) {
        http_problem(
            call->req, 503, "reload-failed", g ? "the former generation stays in use" : NULL, "%s", error);
    } else {
        struct generation_info info = generation_info(g);
        http_replyf(call->req, 200, "application/json",
            "{\"generation\":%" PRIu64 ",\"through\":%" PRIu64 ",\"content\":\"%" PRIu64 "\"}\n", info.number,
            info.through, info.content);
    }
    free(call);
}

void archive_reload(struct http_request *req, void *ctx)
{
    struct api *api = ctx;
    struct bytes format;
    if (!api->archive) {
        http_problem(req, 404, "no-archive", "set [api] archive, or ask sortdb",
            "the api does not read an archive itself");
        return;
    }
    if (http_param(req, "format", &format) && !bytes_equal_str(format, "json")) {
        http_problem(req, 400, "bad-parameter", NULL, "format must be json");
        return;
    }
    struct reload_call *call = mem_zalloc(sizeof *call);
    *call = (struct reload_call){.api = api, .req = req};
    http_on_gone(req, on_gone, call);
    call->wait = local_archive_refresh(api->archive, on_refreshed, call);
}
