/* GET and MGET remove messages from the queue before the reply is written, so each message is delivered at most
 * once. */
#include "simplequeue/server/http_common.h"

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

/* Takes up to `items` messages. If messages must be loaded from disk, the request waits, and later `handler` is called
 * again. A reply with fewer messages than `items` ends with the separator, as in bitly's simplequeue. */
static void take(struct queue_server *server, struct http_request *req, size_t items, struct bytes separator,
    http_handler *handler)
{
    struct named_queue *q;
    size_t most = REPLY_BYTES_MAX / (separator.len + 1), n = 0; /* separators count towards REPLY_BYTES_MAX */
    struct id_ranges ids = {0};
    most = items < most ? items : most;
    if (!param_existing_queue(server, req, &q) || refuse_followed(req, q))
        return;
    enum queue_result r = q ? named_queue_prepare(q, most, REPLY_BYTES_MAX) : QUEUE_OK;
    if (r == QUEUE_LOADING) {
        wait_add(&server->loop, &served_of(q)->loads, req, retry_request, server)->handler = handler;
        return;
    }
    if (r != QUEUE_OK) {
        reply_refused(server, req, r, 0);
        return;
    }
    if (q) {
        queue_take(named_queue_core(q), most, REPLY_BYTES_MAX, &ids);
        if (ids.count == 0)
            add_queue_id(req, q);
    }
    if (ids.count == 0) {
        http_reply(req, 200, OCTETS, BYTES_NONE);
        return;
    }
    struct pending *p = pending_new(server, req, q);
    for (struct id_walk w = {.ids = &ids}; id_walk_next(&w);) {
        buf_append_bytes(&p->body, queue_message(named_queue_core(q), w.id, NULL));
        if (++n < items)
            buf_append_bytes(&p->body, separator);
    }
    http_set_held_bytes(req, p->body.len);
    r = named_queue_remove(q, &ids, queue_loop_now(), take_done, p);
    if (r != QUEUE_OK)
        pending_refuse(p, r, 0);
}

void http_get(struct http_request *req, void *ctx)
{
    take(ctx, req, 1, BYTES_NONE, http_get);
}

void http_mget(struct http_request *req, void *ctx)
{
    struct queue_server *server = ctx;
    struct bytes separator;
    size_t items;
    if (param_items(server, req, 1, &items) && param_separator(req, server->mget_separator, true, &separator))
        take(server, req, items, separator, http_mget);
}
