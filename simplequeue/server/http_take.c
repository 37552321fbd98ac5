#include "simplequeue/server/queue_server.h"

#include <stdlib.h>

#define OCTETS "application/octet-stream"

static void take_done(const struct queue_outcome *outcome, void *arg)
{
    struct pending *p = arg;
    if (outcome->result == QUEUE_OK)
        queue_count_given(named_queue_core(p->q), outcome->count);
    if (p->req && outcome->result != QUEUE_OK) {
        reply_refused(p->server, p->req, outcome->result, 0);
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
    struct queue_server *server;
    struct named_queue *q;
    size_t items;           /* asked for */
    size_t most;            /* so many at once: separators are no more than a reply's bytes either */
    struct bytes separator; /* the request's; in `kept` while it waits */
    struct buf kept;
};

/* The messages are set aside, and gone when the client's reply is written: at most once. */
static void take_ready(struct take *t, struct http_request *req)
{
    struct id_ranges ids = {0};
    queue_take(named_queue_core(t->q), t->most, REPLY_BYTES_MAX, &ids);
    if (ids.count == 0) {
        add_queue_id(req, t->q);
        http_reply(req, 200, OCTETS, BYTES_NONE);
        return;
    }
    struct pending *p = pending_new(t->server, req, t->q);
    join(named_queue_core(t->q), &ids, t->items, t->separator, &p->body);
    http_set_held_bytes(req, p->body.len);
    enum queue_result r = named_queue_remove(t->q, &ids, server_now_of(req), take_done, p);
    if (r == QUEUE_OK)
        return;
    http_on_gone(req, NULL, NULL);
    pending_free(p);
    add_queue_id(req, t->q);
    reply_refused(t->server, req, r, 0);
}

/* QUEUE_LOADING: not answered yet. */
static enum queue_result try_take(struct take *t, struct http_request *req)
{
    enum queue_result r = named_queue_prepare(t->q, t->most, REPLY_BYTES_MAX);
    if (r == QUEUE_OK)
        take_ready(t, req);
    else if (r != QUEUE_LOADING)
        reply_refused(t->server, req, r, 0);
    return r;
}

static void take_on(struct http_request *req, void *arg)
{
    struct take *t = arg;
    if (req && try_take(t, req) == QUEUE_LOADING) {
        load_wait_add(&served_of(t->q)->loads, t->server, req, take_on, t);
        return;
    }
    buf_free(&t->kept);
    free(t);
}

static void take(struct queue_server *server, struct http_request *req, size_t items, struct bytes separator)
{
    char name[NAME_LEN_MAX + 1];
    if (!param_queue(req, name))
        return;
    struct take t = {
        .server = server, .q = queues_find(server->queues, name), .items = items, .separator = separator};
    size_t most = REPLY_BYTES_MAX / (separator.len + 1);
    t.most = items < most ? items : most;
    if (!t.q) {
        http_reply(req, 200, OCTETS, BYTES_NONE);
        return;
    }
    if (try_take(&t, req) != QUEUE_LOADING)
        return;
    struct take *waits = mem_alloc(sizeof *waits);
    buf_append_bytes(&t.kept, separator);
    t.separator = buf_bytes(&t.kept);
    *waits = t;
    load_wait_add(&served_of(t.q)->loads, server, req, take_on, waits);
}

void http_get(struct http_request *req, void *ctx)
{
    take(ctx, req, 1, BYTES_NONE);
}

void http_mget(struct http_request *req, void *ctx)
{
    struct queue_server *server = ctx;
    struct bytes separator;
    size_t items;
    if (param_items(server, req, 1, &items) && param_separator(req, server->mget_separator, &separator))
        take(server, req, items, separator);
}
