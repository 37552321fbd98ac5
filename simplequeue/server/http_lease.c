#include "simplequeue/server/queue_server.h"
#include "simplequeue/queue/id_list.h"

#include <stdlib.h>

#define JSON "application/json"

/* lease=L&id=A-B,C of an existing queue. */
struct lease_request {
    struct named_queue *q;
    uint64_t lease;
    struct id_range *ids; /* the handler frees them */
    size_t n;
};

/* False when the problem was answered. */
static bool find_queue(struct queue_server *server, struct http_request *req, struct named_queue **q)
{
    char name[NAME_LEN_MAX + 1];
    if (!param_queue(req, name))
        return false;
    *q = queues_find(server->queues, name);
    return true;
}

static bool param_lease(struct http_request *req, uint64_t *lease)
{
    struct bytes text;
    if (http_param(req, "lease", &text))
        return http_param_u64(req, "lease", 0, 0, UINT64_MAX, lease);
    http_problem(req, 400, "missing-parameter", NULL, "lease is missing");
    return false;
}

/* id=A-B,C, or the same as the body: a target holds only so many. */
static bool param_ids(struct http_request *req, struct lease_request *out)
{
    struct bytes text, body = http_body(req);
    bool in_target = http_param(req, "id", &text);
    if (in_target && body.len) {
        http_problem(req, 400, "bad-parameter", NULL, "ids are given twice: as id= and as the body");
        return false;
    }
    if (!in_target && !body.len) {
        http_problem(req, 400, "missing-parameter", "id=A-B,C, or that as the body", "id is missing");
        return false;
    }
    if (id_list_parse(in_target ? text : body, &out->ids, &out->n))
        return true;
    http_problem(
        req, 400, "bad-parameter", "A-B,C", "%s is not a list of ids", in_target ? "id" : "the body");
    return false;
}

static bool lease_request(struct queue_server *server, struct http_request *req, struct lease_request *out)
{
    *out = (struct lease_request){0};
    if (!find_queue(server, req, &out->q) || !param_lease(req, &out->lease) || !param_ids(req, out))
        return false;
    if (out->q)
        return true;
    free(out->ids);
    reply_refused(server, req, QUEUE_LEASE_LOST, 0);
    return false;
}

/* Those that give no name share the empty one. */
static bool param_reader(struct http_request *req, char reader[NAME_LEN_MAX + 1])
{
    struct bytes text;
    reader[0] = '\0';
    return !http_param(req, "reader", &text) || http_param_name(req, "reader", NULL, reader);
}

static void reply_count(struct http_request *req, const struct named_queue *q, const char *verb, uint64_t n)
{
    if (q)
        add_queue_id(req, q);
    http_replyf(req, 200, JSON, "{\"%s\":%llu}\n", verb, (unsigned long long)n);
}

static void count_done(const struct queue_outcome *outcome, void *arg)
{
    struct pending *p = arg;
    if (p->req && outcome->result != QUEUE_OK)
        reply_refused(p->server, p->req, outcome->result, 0);
    else if (p->req)
        reply_count(p->req, p->q, p->verb, outcome->count);
    server_arm(p->server);
    pending_free(p);
}

/* After the operation was asked for: what it refused is answered now. */
static void settle(struct pending *p, struct http_request *req, enum queue_result r)
{
    if (r == QUEUE_OK)
        return;
    http_on_gone(req, NULL, NULL);
    add_queue_id(req, p->q);
    reply_refused(p->server, req, r, 0);
    pending_free(p);
}

static struct pending *count_pending(
    struct queue_server *server, struct http_request *req, struct named_queue *q, const char *verb)
{
    struct pending *p = pending_new(server, req, q);
    p->verb = verb;
    return p;
}

void http_ack(struct http_request *req, void *ctx)
{
    struct lease_request r;
    if (!lease_request(ctx, req, &r))
        return;
    struct pending *p = count_pending(ctx, req, r.q, "acked");
    settle(p, req, named_queue_ack(r.q, r.lease, r.ids, r.n, server_now(), count_done, p));
    free(r.ids);
}

static void nack_now(struct queue_server *server, struct http_request *req, const struct lease_request *r)
{
    uint64_t n = named_queue_return(r->q, r->lease, r->ids, r->n);
    if (n)
        reply_count(req, r->q, "nacked", n);
    else
        reply_refused(server, req, QUEUE_LEASE_LOST, 0);
}

static void nack_later(
    struct queue_server *server, struct http_request *req, const struct lease_request *r, usec_t delay)
{
    struct pending *p = count_pending(server, req, r->q, "nacked");
    settle(p, req, named_queue_delay(r->q, r->lease, r->ids, r->n, delay, server_now(), count_done, p));
}

void http_nack(struct http_request *req, void *ctx)
{
    struct lease_request r;
    uint64_t delay;
    if (!http_param_u64(req, "delay", 0, 0, DELAY_MAX, &delay) || !lease_request(ctx, req, &r))
        return;
    if (delay)
        nack_later(ctx, req, &r, (usec_t)delay * USEC_PER_MSEC);
    else
        nack_now(ctx, req, &r);
    free(r.ids);
}

void http_bury(struct http_request *req, void *ctx)
{
    struct lease_request r;
    struct bytes reason = BYTES_NONE;
    if (http_param(req, "reason", &reason) && reason.len > REASON_MAX) {
        http_problem(req, 400, "bad-parameter", NULL, "reason is over %d bytes", REASON_MAX);
        return;
    }
    if (!lease_request(ctx, req, &r))
        return;
    struct pending *p = count_pending(ctx, req, r.q, "buried");
    settle(p, req, named_queue_bury(r.q, r.lease, r.ids, r.n, reason, server_now(), count_done, p));
    free(r.ids);
}

void http_touch(struct http_request *req, void *ctx)
{
    struct queue_server *server = ctx;
    struct named_queue *q;
    uint64_t lease, extend;
    if (!find_queue(server, req, &q) || !param_lease(req, &lease) ||
        !http_param_u64(req, "extend", LEASE_DEFAULT, 1, LEASE_MAX, &extend))
        return;
    usec_t deadline = server_now().monotonic + (usec_t)extend * USEC_PER_MSEC;
    if (!q || !queue_touch(named_queue_core(q), lease, deadline)) {
        if (q)
            add_queue_id(req, q);
        reply_refused(server, req, QUEUE_LEASE_LOST, 0);
        return;
    }
    server_arm(server);
    reply_count(req, q, "extended", extend);
}

/* A reader releases before it reserves, so this makes the queue: its id is the reader's name as a producer. */
void http_release(struct http_request *req, void *ctx)
{
    char name[NAME_LEN_MAX + 1], reader[NAME_LEN_MAX + 1];
    if (!param_queue(req, name) || !param_reader(req, reader))
        return;
    struct named_queue *q = obtain_queue(ctx, req, name, &(struct first_put){0}, http_release);
    if (!q)
        return;
    uint64_t epoch;
    unsigned long long n = named_queue_release(q, reader, &epoch);
    unsigned long long next_id = queue_state(named_queue_core(q))->next_id;
    long_poll_refuse_stale(q);
    add_queue_id(req, q);
    http_replyf(req, 200, JSON,
        "{\"released\":%llu,\"queue_id\":\"%s\",\"next_id\":\"%llu\",\"epoch\":\"%llu\"}\n", n,
        named_queue_id(q), next_id, (unsigned long long)epoch);
}

static struct waiter *new_waiter(struct queue_server *server, struct http_request *req)
{
    struct waiter *w = mem_zalloc(sizeof *w);
    uint64_t lease, wait, epoch;
    heap_node_init(&w->deadline);
    w->server = server;
    w->req = req;
    if (!param_queue(req, w->queue) || !param_items(server, req, 1, &w->items) ||
        !param_reader(req, w->reader) || !http_param_u64(req, "lease", LEASE_DEFAULT, 1, LEASE_MAX, &lease) ||
        !http_param_u64(req, "wait", 0, 0, WAIT_MAX, &wait) ||
        !http_param_u64(req, "epoch", 0, 1, UINT64_MAX, &epoch)) {
        free(w);
        return NULL;
    }
    w->items = w->items < RESERVE_ITEMS_MAX ? w->items : RESERVE_ITEMS_MAX;
    w->lease = (usec_t)lease * USEC_PER_MSEC;
    w->wait = (usec_t)wait * USEC_PER_MSEC;
    w->epoch = epoch;
    return w;
}

static void ride_done(const struct queue_outcome *outcome, void *arg)
{
    struct pending *p = arg;
    struct waiter *w = p->waiter;
    if (!p->req || outcome->result != QUEUE_OK) {
        long_poll_free(w);
        if (p->req)
            reply_refused(p->server, p->req, outcome->result, 0);
    } else {
        w->acked = outcome->count;
        long_poll_reserve(w, server_now());
    }
    pending_free(p);
}

/* ack=L:A-B,C, or ack=L and the ids as the body. */
static bool parse_ack(struct bytes text, struct bytes body, struct lease_request *out)
{
    const char *colon = text.len ? memchr(text.ptr, ':', text.len) : NULL;
    size_t lease = colon ? (size_t)(colon - text.ptr) : text.len;
    struct bytes ids = colon ? bytes_of(colon + 1, text.len - lease - 1) : body;
    return (!colon || body.len == 0) && bytes_to_u64(bytes_of(text.ptr, lease), &out->lease) &&
           id_list_parse(ids, &out->ids, &out->n);
}

static void ack_then_reserve(struct waiter *w, struct bytes ack)
{
    struct queue_server *server = w->server;
    struct http_request *req = w->req;
    struct lease_request r = {.q = queues_find(server->queues, w->queue)};
    if (!parse_ack(ack, http_body(req), &r)) {
        long_poll_free(w);
        http_problem(req, 400, "bad-parameter", "ack=LEASE:A-B,C, or ack=LEASE and A-B,C as the body",
            "ack is not a lease and a list of ids");
        return;
    }
    struct pending *p = r.q ? pending_new(server, req, r.q) : NULL;
    if (p)
        p->waiter = w;
    enum queue_result result =
        p ? named_queue_ack(r.q, r.lease, r.ids, r.n, server_now(), ride_done, p) : QUEUE_LEASE_LOST;
    free(r.ids);
    if (result == QUEUE_OK)
        return;
    long_poll_free(w);
    if (p)
        settle(p, req, result);
    else
        reply_refused(server, req, result, 0);
}

void http_reserve(struct http_request *req, void *ctx)
{
    struct queue_server *server = ctx;
    struct bytes ack;
    struct waiter *w = new_waiter(server, req);
    if (!w || long_poll_answer_stale(w, queues_find(server->queues, w->queue)))
        return;
    if (!http_param(req, "ack", &ack)) {
        long_poll_reserve(w, server_now());
        return;
    }
    w->acks = true;
    ack_then_reserve(w, ack);
}

void http_kick(struct http_request *req, void *ctx)
{
    struct named_queue *q;
    size_t items;
    if (!find_queue(ctx, req, &q) || !param_items(ctx, req, 1, &items))
        return;
    struct pending *p = q ? count_pending(ctx, req, q, "kicked") : NULL;
    enum queue_result r = p ? named_queue_kick(q, items, server_now(), count_done, p) : QUEUE_NOTHING;
    if (r == QUEUE_OK)
        return;
    if (p) {
        http_on_gone(req, NULL, NULL);
        pending_free(p);
    }
    if (r == QUEUE_NOTHING)
        reply_count(req, q, "kicked", 0);
    else
        reply_refused(ctx, req, r, 0);
}
