/* GET and MGET: messages leave the queue before their reply is written, so each is delivered at most once. */
#include "simplequeue/server/http_common.h"
#include "simplequeue/server/http_handlers.h"

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

/* Joins messages. The separator ends the reply too when it has fewer than `items`, as in bitly's simplequeue. */
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
    struct http_request *req;
    struct named_queue *q;
    size_t items;           /* asked for */
    size_t most;            /* at once: separators count as bytes of the reply */
    struct bytes separator; /* the request's, or in `kept` while it waits */
    struct buf kept;
};

static void take_ready(struct take *t)
{
    struct id_ranges ids = {0};
    queue_take(named_queue_core(t->q), t->most, REPLY_BYTES_MAX, &ids);
    if (ids.count == 0) {
        add_queue_id(t->req, t->q);
        http_reply(t->req, 200, OCTETS, BYTES_NONE);
        return;
    }
    struct pending *p = pending_new(t->server, t->req, t->q);
    join(named_queue_core(t->q), &ids, t->items, t->separator, &p->body);
    http_set_held_bytes(t->req, p->body.len);
    enum queue_result r = named_queue_remove(t->q, &ids, queue_loop_now_at(http_now(t->req)), take_done, p);
    if (r != QUEUE_OK)
        pending_refuse(p, r, 0);
}

/* False while the messages are being loaded. Leaves the wait, if any, before it answers. */
static bool try_take(struct take *t, struct wait *w)
{
    enum queue_result r = named_queue_prepare(t->q, t->most, REPLY_BYTES_MAX);
    if (r == QUEUE_LOADING)
        return false;
    if (w)
        wait_leave(w);
    if (r == QUEUE_OK)
        take_ready(t);
    else
        reply_refused(t->server, t->req, r, 0);
    return true;
}

static bool retry_take(struct wait *w, enum wait_event event)
{
    struct take *t = w->arg;
    if (event == WAIT_GONE)
        wait_leave(w);
    else if (!try_take(t, w))
        return false;
    buf_free(&t->kept);
    free(t);
    return true;
}

static void take(struct queue_server *server, struct http_request *req, size_t items, struct bytes separator)
{
    struct take t = {.server = server, .req = req, .items = items, .separator = separator};
    size_t most = REPLY_BYTES_MAX / (separator.len + 1);
    t.most = items < most ? items : most;
    if (!param_existing_queue(server, req, &t.q))
        return;
    if (!t.q) {
        http_reply(req, 200, OCTETS, BYTES_NONE);
        return;
    }
    if (try_take(&t, NULL))
        return;
    struct take *waits = mem_alloc(sizeof *waits);
    buf_append_bytes(&t.kept, separator);
    t.separator = buf_bytes(&t.kept);
    *waits = t;
    wait_add(&server->loop, &served_of(t.q)->loads, req, retry_take, waits);
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
