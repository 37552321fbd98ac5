/* PAUSE, EMPTY and EXIT. PAUSE, EMPTY and EXIT require the token or --allow-exit. */
#include "simplequeue/server/http_common.h"

#define JSON "application/json"

/* A queue can be paused before its first put. */
void http_pause(struct http_request *req, void *ctx)
{
    char name[NAME_LEN_MAX + 1];
    struct bytes text;
    uint64_t ms = 0;
    struct queue_server *server = ctx;
    bool open = !http_param(req, "for", &text);
    if (!param_queue(req, name) || !http_param_u64(req, "for", 0, 0, PAUSE_MAX, &ms))
        return;
    struct named_queue *q = queues_find(server->queues, name);
    if (!q) {
        await_queue(server, req, name, &(struct first_put){0}, http_pause);
        return;
    }
    named_queue_pause(q, open ? QUEUE_PAUSE_OPEN : (usec_t)ms * USEC_PER_MSEC, queue_loop_now());
    queue_loop_arm(&server->loop);
    add_queue_id(req, q);
    http_replyf(req, 200, JSON, "{\"paused\":%s}\n", open || ms ? "true" : "false");
}

static void empty_done(const struct queue_outcome *outcome, void *arg);

/* Deletes the next part of the messages, or replies if no message is left. empty_done posts empty_more to the loop,
 * because without a journal named_queue_remove calls empty_done before it returns. */
static void empty_more(void *arg)
{
    struct pending *p = arg;
    struct id_ranges ids = {0};
    enum queue_result result = QUEUE_OK;
    queue_evict(named_queue_core(p->q), EMPTY_ITEMS_MAX, p->before, true, &ids);
    if (ids.count) {
        result = named_queue_remove(p->q, &ids, queue_loop_now(), empty_done, p);
        if (result == QUEUE_OK)
            return;
    }
    empty_done(&(struct queue_outcome){.result = result}, p);
}

/* Called when a part of the messages is deleted. If no message was deleted, the request is done. */
static void empty_done(const struct queue_outcome *outcome, void *arg)
{
    struct pending *p = arg;
    struct http_request *req = p->req;
    if (outcome->result == QUEUE_OK && outcome->count) {
        p->count += outcome->count;
        daemon_post(p->server->loop.daemon, empty_more, p);
        return;
    }
    if (req) {
        http_on_gone(req, NULL, NULL);
        add_queue_id(req, p->q);
    }
    if (req && outcome->result == QUEUE_OK)
        http_replyf(req, 200, JSON, "{\"dropped\":%llu}\n", (unsigned long long)p->count);
    else if (req)
        reply_refused(p->server, req, outcome->result, 0);
    pending_free(p);
}

/* Deletes the messages that are ready when the request arrives, in parts. Later messages are not deleted. */
void http_empty(struct http_request *req, void *ctx)
{
    struct named_queue *q;
    if (!param_existing_queue(ctx, req, &q) || refuse_followed(req, q))
        return;
    if (!q) {
        http_reply(req, 200, JSON, BYTES_LITERAL("{\"dropped\":0}\n"));
        return;
    }
    struct pending *p = pending_new(ctx, req, q);
    p->before = queue_state(named_queue_core(q))->next_id;
    empty_more(p);
}

void http_exit(struct http_request *req, void *ctx)
{
    const struct queue_server *server = ctx;
    http_reply(req, 200, NULL, BYTES_LITERAL("stopping\n"));
    daemon_begin_stop(server->loop.daemon);
}
