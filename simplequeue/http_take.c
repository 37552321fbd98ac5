#include "app.h"

#include <stdlib.h>

#define OCTETS "application/octet-stream"

static void take_done(const struct queue_outcome *outcome, void *arg)
{
    struct pending *p = arg;
    if (outcome->result == QUEUE_OK)
        queue_count_given(named_queue_core(p->q), outcome->count);
    if (p->req && outcome->result != QUEUE_OK) {
        reply_refused(p->app, p->req, outcome->result, 0);
    } else if (p->req) {
        add_queue_id(p->req, p->q);
        http_reply_buf(p->req, 200, OCTETS, &p->body);
    }
    pending_free(p);
}

/* Each message followed by the separator, but for the last when as many as asked for are there. */
static void join(
    struct queue *core, const struct id_ranges *ids, size_t items, struct bytes separator, struct buf *out)
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

struct take {
    struct app *app;
    struct named_queue *q;
    size_t items;
    struct buf separator;
};

static void take_free(struct take *t)
{
    buf_free(&t->separator);
    free(t);
}

/* The messages are set aside, and gone when the client's reply is written: at most once. */
static void take_ready(struct take *t, struct http_request *req)
{
    struct id_ranges ids = {0};
    queue_take(named_queue_core(t->q), t->items, APP_REPLY_BYTES, &ids);
    if (ids.count == 0) {
        add_queue_id(req, t->q);
        http_reply(req, 200, OCTETS, BYTES_NONE);
        return;
    }
    struct pending *p = pending_new(t->app, req, t->q);
    join(named_queue_core(t->q), &ids, t->items, buf_bytes(&t->separator), &p->body);
    http_set_aside(req, p->body.len);
    enum queue_result r = named_queue_remove(t->q, &ids, app_now(), take_done, p);
    if (r == QUEUE_OK)
        return;
    http_on_gone(req, NULL, NULL);
    pending_free(p);
    add_queue_id(req, t->q);
    reply_refused(t->app, req, r, 0);
}

static void take_on(struct http_request *req, void *arg)
{
    struct take *t = arg;
    enum queue_result r = req ? named_queue_prepare(t->q, t->items, APP_REPLY_BYTES) : QUEUE_CLOSED;
    if (r == QUEUE_LOADING) {
        parked_add(&front_of(t->q)->parked, t->app, req, take_on, t);
        return;
    }
    if (r == QUEUE_OK)
        take_ready(t, req);
    else if (req)
        reply_refused(t->app, req, r, 0);
    take_free(t);
}

static void take(struct app *app, struct http_request *req, size_t items, struct bytes separator)
{
    char name[NAME_MAX_BYTES + 1];
    if (refuse_head(req) || !param_queue(req, name))
        return;
    struct named_queue *q = queues_find(app->queues, name);
    if (!q) {
        http_reply(req, 200, OCTETS, BYTES_NONE);
        return;
    }
    struct take *t = mem_zalloc(sizeof *t);
    *t = (struct take){.app = app, .q = q, .items = items};
    buf_append_bytes(&t->separator, separator);
    take_on(req, t);
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
