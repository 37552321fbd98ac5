/* Acts that stop or drop: their routes ask for the token, or --allow-exit. */
#include "simplequeue/server/queue_server.h"

#define JSON "application/json"

/* A queue may be paused before its first put. */
void http_pause(struct http_request *req, void *ctx)
{
    char name[NAME_LEN_MAX + 1];
    struct bytes text;
    uint64_t ms = 0;
    bool open = !http_param(req, "for", &text);
    if (!param_queue(req, name) || !http_param_u64(req, "for", 0, 0, PAUSE_MAX, &ms))
        return;
    struct named_queue *q = obtain_queue(ctx, req, name, &(struct first_put){0}, http_pause);
    if (!q)
        return;
    named_queue_pause(q, open ? QUEUE_PAUSE_OPEN : (usec_t)ms * USEC_PER_MSEC, server_now());
    server_arm(ctx);
    add_queue_id(req, q);
    http_replyf(req, 200, JSON, "{\"paused\":%s}\n", open || ms ? "true" : "false");
}

static void empty_done(const struct queue_outcome *outcome, void *arg);

/* Drops the next of them; false when there is none left and nothing was begun. */
static bool empty_more(struct pending *p, enum queue_result *result)
{
    struct id_ranges ids = {0};
    queue_evict(named_queue_core(p->q), EMPTY_ITEMS_MAX, p->before, true, &ids);
    if (ids.count == 0)
        return false;
    *result = named_queue_remove(p->q, &ids, server_now(), empty_done, p);
    return *result == QUEUE_OK;
}

static void empty_reply(struct pending *p, enum queue_result result)
{
    struct http_request *req = p->req;
    if (req) {
        http_on_gone(req, NULL, NULL);
        add_queue_id(req, p->q);
        if (result == QUEUE_OK)
            http_replyf(req, 200, JSON, "{\"dropped\":%llu}\n", (unsigned long long)p->count);
        else
            reply_refused(p->server, req, result, 0);
    }
    pending_free(p);
}

/* Runs inside the commit of a part, or, without a journal, inside the call that began it: so the next part is begun
 * from the loop. */
static void empty_go_on(void *arg)
{
    struct pending *p = arg;
    enum queue_result result = QUEUE_OK;
    if (!empty_more(p, &result))
        empty_reply(p, result);
}

static void empty_done(const struct queue_outcome *outcome, void *arg)
{
    struct pending *p = arg;
    p->count += outcome->result == QUEUE_OK ? outcome->count : 0;
    if (outcome->result == QUEUE_OK)
        daemon_post(p->server->daemon, empty_go_on, p);
    else
        empty_reply(p, outcome->result);
}

/* What is ready now goes; what becomes ready meanwhile stays. */
void http_empty(struct http_request *req, void *ctx)
{
    char name[NAME_LEN_MAX + 1];
    struct queue_server *server = ctx;
    if (!param_queue(req, name))
        return;
    struct named_queue *q = queues_find(server->queues, name);
    if (!q) {
        http_reply(req, 200, JSON, BYTES_LITERAL("{\"dropped\":0}\n"));
        return;
    }
    struct pending *p = pending_new(server, req, q);
    p->before = queue_state(named_queue_core(q))->next_id;
    empty_go_on(p);
}

void http_exit(struct http_request *req, void *ctx)
{
    const struct queue_server *server = ctx;
    http_reply(req, 200, NULL, BYTES_LITERAL("stopping\n"));
    daemon_begin_stop(server->daemon);
}
