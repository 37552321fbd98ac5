#include "app.h"

#include <event2/buffer.h>
#include <stdlib.h>

#define OCTETS "application/octet-stream"

static void take_done(const struct queue_outcome *outcome, void *arg)
{
    struct pending *p = arg;
    if (p->req && outcome->result != QUEUE_OK) {
        reply_refused(p->app, p->req, outcome->result, 0);
    } else if (p->req) {
        add_queue_id(p->req, p->q);
        http_reply_buf(p->req, 200, OCTETS, &p->body);
    }
    pending_free(p);
}

/* Each message followed by the separator, but for the last when as many as asked for are there. */
static void join(const struct queue *core, const struct id_ranges *ids, size_t items, struct bytes separator,
    struct buf *out)
{
    size_t n = 0;
    for (size_t r = 0; r < ids->n; r++)
        for (uint64_t id = ids->at[r].first; id <= ids->at[r].last; id++) {
            struct bytes text = queue_message(core, id, NULL);
            buf_append_bytes(out, text);
            if (++n < items)
                buf_append_bytes(out, separator);
        }
}

/* The messages are set aside, and gone when the client's reply is written: at most once. */
static void take(struct app *app, struct http_request *req, size_t items, struct bytes separator)
{
    char name[NAME_MAX_BYTES + 1];
    struct id_ranges ids = {0};
    if (refuse_head(req) || !param_queue(req, name))
        return;
    struct named_queue *q = queues_find(app->queues, name);
    if (q)
        queue_take(named_queue_core(q), items, APP_REPLY_BYTES, &ids);
    if (ids.count == 0) {
        if (q)
            add_queue_id(req, q);
        http_reply(req, 200, OCTETS, BYTES_NONE);
        return;
    }
    struct pending *p = pending_new(app, req, q);
    join(named_queue_core(q), &ids, items, separator, &p->body);
    enum queue_result r = named_queue_remove(q, &ids, app_now(), take_done, p);
    if (r == QUEUE_OK)
        return;
    http_on_gone(req, NULL, NULL);
    pending_free(p);
    add_queue_id(req, q);
    reply_refused(app, req, r, 0);
}

void http_get(struct http_request *req, void *ctx)
{
    take(ctx, req, 1, BYTES_NONE);
}

void http_mget(struct http_request *req, void *ctx)
{
    struct app *app = ctx;
    struct bytes separator;
    size_t items;
    if (param_items(app, req, 1, &items) && param_separator(req, app->mget_separator, &separator))
        take(app, req, items, separator);
}

void http_dump(struct http_request *req, void *ctx)
{
    struct app *app = ctx;
    char name[NAME_MAX_BYTES + 1];
    uint64_t from, id;
    if (!param_queue(req, name) || !http_param_u64(req, "from", 1, 1, UINT64_MAX - 1, &from))
        return;
    struct named_queue *q = queues_find(app->queues, name);
    struct evbuffer *body = evbuffer_new();
    for (; q && queue_next_ready(named_queue_core(q), from, &id); from = id + 1) {
        struct bytes text = queue_message(named_queue_core(q), id, NULL);
        if (evbuffer_get_length(body) && evbuffer_get_length(body) + text.len > APP_REPLY_BYTES) {
            http_add_header(req, "X-Millrace-Next", "%llu", (unsigned long long)id);
            break;
        }
        evbuffer_add(body, text.ptr, text.len);
        evbuffer_add(body, "\n", 1);
    }
    if (q)
        add_queue_id(req, q);
    http_reply_evbuffer(req, 200, OCTETS, body);
    evbuffer_free(body);
}
