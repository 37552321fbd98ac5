#include "api/page/changes.h"

#include "base/clock.h"

#include <inttypes.h>
#include <stdlib.h>

struct changes {
    struct pipeline *pipeline;
    struct changes_client {
        struct http_request *req;
        bool sees_numbers;
    } clients[CHANGES_CLIENTS_MAX];
    size_t n_clients;
};

static void append_event(const struct pipeline_versions *v, bool sees_numbers, struct buf *out)
{
    buf_printf(out,
        "data: {\"counts\":\"%016" PRIx64 "\",\"daemons\":\"%016" PRIx64 "\",\"complete_until\":", v->counts,
        v->daemons);
    if (v->complete_until > 0)
        buf_printf(out, "%" PRIu64, v->complete_until);
    else
        buf_append_str(out, "null");
    if (sees_numbers)
        buf_printf(out, ",\"time\":%.3f,\"published\":", (double)clock_wall() / USEC_PER_SEC);
    if (sees_numbers && v->knows_published)
        buf_printf(out, "%" PRIu64, v->published);
    else if (sees_numbers)
        buf_append_str(out, "null");
    buf_append_str(out, "}\n\n");
}

static void on_report(void *arg)
{
    struct changes *c = arg;
    struct buf events[2] = {0}; /* without numbers, and with them */
    if (c->n_clients == 0)
        return;
    pipeline_keep_polling(c->pipeline);
    const struct pipeline_versions v = pipeline_versions(c->pipeline);
    append_event(&v, false, &events[0]);
    append_event(&v, true, &events[1]);
    for (size_t i = 0; i < c->n_clients; i++)
        http_stream_write(c->clients[i].req, buf_bytes(&events[c->clients[i].sees_numbers]));
    buf_free(&events[0]);
    buf_free(&events[1]);
}

static void client_gone(struct http_request *req, void *arg)
{
    struct changes *c = arg;
    size_t i = 0;
    while (c->clients[i].req != req)
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
        http_stream_end(c->clients[--c->n_clients].req);
}

void changes_free(struct changes **c)
{
    free(*c);
    *c = NULL;
}

void changes_reply(struct changes *c, struct http_request *req)
{
    struct buf event = {0};
    bool sees_numbers = http_may_see_all(req, HTTP_VIEW_OVERVIEW | HTTP_VIEW_LIVE);
    if (c->n_clients == CHANGES_CLIENTS_MAX) {
        http_add_header(req, "Retry-After", "%d", CHANGES_RETRY_AFTER);
        http_problem(req, 503, "overloaded", "close a page", "%d clients follow the changes already",
            CHANGES_CLIENTS_MAX);
        return;
    }
    c->clients[c->n_clients++] = (struct changes_client){.req = req, .sees_numbers = sees_numbers};
    pipeline_keep_polling(c->pipeline);
    const struct pipeline_versions v = pipeline_versions(c->pipeline);
    append_event(&v, sees_numbers, &event);
    http_stream_start_endless(req, "text/event-stream");
    http_stream_write(req, buf_bytes(&event));
    buf_free(&event);
    http_on_gone(req, client_gone, c);
    http_set_long_poll(req); /* may call client_gone */
}
