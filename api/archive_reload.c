#include "api/archive_reload.h"

#include <inttypes.h>
#include <stdlib.h>

struct reload_call;

/* The wait for the archive of one cell. */
struct part {
    struct reload_call *call;
    const struct cell *cell;
    struct archive_wait *wait; /* NULL: has ended */
};

struct reload_call {
    struct http_request *req;
    size_t n, n_open;
    struct part parts[CELLS_MAX];
};

static void on_gone(struct http_request *req, void *arg)
{
    struct reload_call *call = arg;
    (void)req;
    for (size_t i = 0; i < call->n; i++)
        archive_wait_cancel(&call->parts[i].wait);
    free(call);
}

static bool is_loaded(const struct local_archive *a)
{
    return local_archive_generation(a) && !*local_archive_error(a);
}

static void append_generation(struct buf *out, const struct local_archive *a)
{
    struct generation_info info = generation_info(local_archive_generation(a));
    buf_printf(out, "\"generation\":%" PRIu64 ",\"through\":%" PRIu64 ",\"content\":\"%" PRIu64 "\"}",
        info.number, info.through, info.content);
}

static void append_archives(struct buf *out, const struct reload_call *call)
{
    for (size_t i = 0; i < call->n; i++) {
        const struct cell *c = call->parts[i].cell;
        buf_printf(out, "%s{\"cell\":\"%s\",", i == 0 ? "{\"archives\":[" : ",", c->name);
        if (is_loaded(c->archive)) {
            append_generation(out, c->archive);
        } else {
            buf_printf(out, "\"error\":");
            buf_append_json(out, bytes_str(local_archive_error(c->archive)));
            buf_append_char(out, '}');
        }
    }
    buf_printf(out, "]}");
}

static void reply(const struct reload_call *call)
{
    const struct local_archive *first = call->parts[0].cell->archive;
    struct buf body = {0};
    size_t n_loaded = 0;
    for (size_t i = 0; i < call->n; i++)
        n_loaded += is_loaded(call->parts[i].cell->archive);
    if (n_loaded == 0) {
        http_problem(call->req, 503, "reload-failed",
            local_archive_generation(first) ? "the former generation stays in use" : NULL, "%s",
            local_archive_error(first));
        return;
    }
    if (call->n == 1) {
        buf_append_char(&body, '{');
        append_generation(&body, first);
    } else {
        append_archives(&body, call);
    }
    buf_append_char(&body, '\n');
    http_reply_buf(call->req, 200, "application/json", &body);
    buf_free(&body);
}

static void on_refreshed(void *arg)
{
    struct part *p = arg;
    struct reload_call *call = p->call;
    p->wait = NULL;
    if (--call->n_open > 0)
        return;
    reply(call);
    free(call);
}

void archive_reload(struct http_request *req, void *ctx)
{
    const struct api *api = ctx;
    struct bytes format;
    struct reload_call *call = mem_zalloc(sizeof *call);
    for (size_t i = 0; i < api->cells.n; i++)
        if (api->cells.list[i].archive)
            call->parts[call->n++] = (struct part){.call = call, .cell = &api->cells.list[i]};
    bool is_valid = !http_param(req, "format", &format) || bytes_equal_str(format, "json");
    if (call->n == 0 || !is_valid) {
        if (call->n == 0)
            http_problem(req, 404, "no-archive", "set [api] archive, or send the request to sortdb",
                "the api does not read an archive itself");
        else
            http_problem(req, 400, "bad-parameter", NULL, "format must be json");
        free(call);
        return;
    }
    call->req = req;
    call->n_open = call->n;
    http_on_gone(req, on_gone, call);
    for (size_t i = 0; i < call->n; i++)
        call->parts[i].wait =
            local_archive_refresh(call->parts[i].cell->archive, on_refreshed, &call->parts[i]);
}
