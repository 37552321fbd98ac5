#include "api/page/changes.h"

#include <inttypes.h>
#include <stdlib.h>

struct changes {
    struct pipeline *pipeline;
    struct http_request *clients[CHANGES_CLIENTS_MAX];
    size_t n_clients;
};

static void append_event(const struct changes *c, struct buf *out)
{
    const struct pipeline_versions v = pipeline_versions(c->pipeline);
    buf_printf(out,
        "data: {\"counts\":\"%016" PRIx64 "\",\"daemons\":\"%016" PRIx64 "\",\"complete_until\":", v.counts,
        v.daemons);
    if (v.complete_until > 0)
        buf_printf(out, "%" PRIu64 "}\n\n", v.complete_until);
    else
        buf_append_str(out, "null}\n\n");
}

static void on_report(void *arg)
{
    struct changes *c = arg;
    struct buf event = {0};
    if (c->n_clients == 0)
        return;
    pipeline_keep_polling(c->pipeline);
    append_event(c, &event);
    for (size_t i = 0; i < c->n_clients; i++)
        http_stream_write(c->clients[i], buf_bytes(&event));
    buf_free(&event);
}

static void client_gone(struct http_request *req, void *arg)
{
    struct changes *c = arg;
    size_t i = 0;
    while (c->clients[i] != req)
        i++;
    c->clients[i] = c->clients[--c->n_clients];
}

struct changes *changes_new(struct pipeline *pipeline)
{
    struct changes *c = mem_zalloc(sizeof *c);
    c->pipeline = pipeline;
    pipeline_on_report(pipeline, on_report, c);
    return c;
}

void changes_drain(struct changes *c)
{
    while (c->n_clients > 0)
        http_stream_end(c->clients[--c->n_clients]);
}

void changes_free(struct changes **c)
{
    free(*c);
    *c = NULL;
}

void changes_reply(struct changes *c, struct http_request *req)
{
    struct buf event = {0};
    if (c->n_clients == CHANGES_CLIENTS_MAX) {
        http_problem(req, 503, "overloaded", "close a page", "%d clients follow the changes already",
            CHANGES_CLIENTS_MAX);
        return;
    }
    c->clients[c->n_clients++] = req;
    pipeline_keep_polling(c->pipeline);
    append_event(c, &event);
    http_stream_start_endless(req, "text/event-stream");
    http_stream_write(req, buf_bytes(&event));
    buf_free(&event);
    http_on_gone(req, client_gone, c);
    http_set_long_poll(req); /* may call client_gone */
}
