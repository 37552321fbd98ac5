/* ACK, NACK, BURY, TOUCH and RELEASE end or extend leases. KICK makes buried messages ready, and DELETE /dead deletes
 * them. */
#include "simplequeue/queue/id_list.h"
#include "simplequeue/server/http_common.h"

#include <stdlib.h>

#define JSON "application/json"

/* The queue and the parameters lease=L&id=A-B,C of a request. */
struct lease_request {
    struct named_queue *q;
    uint64_t lease;
    struct id_range *ids; /* the handler must free the ranges */
    size_t n;
};

static bool param_lease(struct http_request *req, uint64_t *lease)
{
    struct bytes text;
    if (http_param(req, "lease", &text))
        return http_param_u64(req, "lease", 0, 0, UINT64_MAX, lease);
    http_problem(req, 400, "missing-parameter", NULL, "lease is missing");
    return false;
}

/* Reads the queue, the lease and the ids. The ids are in id= or, because the length of a target is limited, in the
 * body. If a parameter is wrong, replies with the error and returns false. */
static bool parse_lease_request(
    struct queue_server *server, struct http_request *req, struct lease_request *out)
{
    *out = (struct lease_request){0};
    if (!param_existing_queue(server, req, &out->q) || !param_lease(req, &out->lease))
        return false;
    struct bytes text, body = http_body(req);
    bool in_target = http_param(req, "id", &text);
    if (in_target && body.len)
        http_problem(req, 400, "bad-parameter", NULL, "give the ids either as id= or as the body");
    else if (!in_target && !body.len)
        http_problem(
            req, 400, "missing-parameter", "give id=A-B,C or send the list as the body", "id is missing");
    else if (!id_list_parse(in_target ? text : body, &out->ids, &out->n))
        http_problem(
            req, 400, "bad-parameter", "A-B,C", "%s is not a list of ids", in_target ? "id" : "the body");
    else if (!out->q)
        reply_refused(server, req, QUEUE_LEASE_LOST, 0);
    else
        return true;
    free(out->ids);
    return false;
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
    queue_loop_arm(&p->server->loop);
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
    if (!parse_lease_request(ctx, req, &r))
        return;
    struct pending *p = count_pending(ctx, req, r.q, "acked");
    enum queue_result result = named_queue_ack(r.q, r.lease, r.ids, r.n, queue_loop_now(), count_done, p);
    if (result != QUEUE_OK)
        pending_refuse(p, result, 0);
    free(r.ids);
}

/* Calls parse_lease_request for a request that is refused while the queue has a follower. */
static bool parse_change(struct queue_server *server, struct http_request *req, struct lease_request *out)
{
    if (!parse_lease_request(server, req, out))
        return false;
    if (!refuse_followed(req, out->q))
        return true;
    free(out->ids);
    return false;
}

void http_nack(struct http_request *req, void *ctx)
{
    struct lease_request r;
    uint64_t delay, n;
    if (!http_param_u64(req, "delay", 0, 0, DELAY_MAX, &delay) || !parse_change(ctx, req, &r))
        return;
    if (delay) {
        struct pending *p = count_pending(ctx, req, r.q, "nacked");
        enum queue_result result = named_queue_delay(
            r.q, r.lease, r.ids, r.n, (usec_t)delay * USEC_PER_MSEC, queue_loop_now(), count_done, p);
        if (result != QUEUE_OK)
            pending_refuse(p, result, 0);
    } else if ((n = named_queue_return(r.q, r.lease, r.ids, r.n))) {
        reply_count(req, r.q, "nacked", n);
    } else {
        reply_refused(ctx, req, QUEUE_LEASE_LOST, 0);
    }
    free(r.ids);
}

/* Buries the message id= for the follower. */
static void bury_sent(struct queue_server *server, struct http_request *req, struct bytes reason)
{
    struct named_queue *q;
    struct bytes text;
    uint64_t follow, id;
    if (http_param(req, "lease", &text)) {
        http_problem(req, 400, "bad-parameter", NULL, "lease is not allowed with follow");
    } else if (!http_param(req, "id", &text)) {
        http_problem(req, 400, "missing-parameter", NULL, "id is missing");
    } else if (param_existing_queue(server, req, &q) &&
               http_param_u64(req, "follow", 0, 1, UINT64_MAX, &follow) &&
               http_param_u64(req, "id", 0, 1, UINT64_MAX - 1, &id)) {
        if (!is_present_follow(q, follow)) {
            refuse_reader(req, q, QUEUE_FOLLOW_ENDED);
            return;
        }
        struct pending *p = count_pending(server, req, q, "buried");
        enum queue_result r = named_queue_bury_sent(q, id, reason, queue_loop_now(), count_done, p);
        if (r != QUEUE_OK)
            pending_refuse(p, r, 0);
    }
}

void http_bury(struct http_request *req, void *ctx)
{
    struct lease_request r;
    struct bytes reason = BYTES_NONE, follow;
    if (http_param(req, "reason", &reason) && reason.len > REASON_MAX) {
        http_problem(req, 400, "bad-parameter", NULL, "reason exceeds %d bytes", REASON_MAX);
        return;
    }
    if (http_param(req, "follow", &follow)) {
        bury_sent(ctx, req, reason);
        return;
    }
    if (!parse_change(ctx, req, &r))
        return;
    struct pending *p = count_pending(ctx, req, r.q, "buried");
    enum queue_result result =
        named_queue_bury(r.q, r.lease, r.ids, r.n, reason, queue_loop_now(), count_done, p);
    if (result != QUEUE_OK)
        pending_refuse(p, result, 0);
    free(r.ids);
}

void http_touch(struct http_request *req, void *ctx)
{
    struct queue_server *server = ctx;
    struct named_queue *q;
    uint64_t lease, extend;
    if (!param_existing_queue(server, req, &q) || !param_lease(req, &lease) ||
        !http_param_u64(req, "extend", LEASE_DEFAULT, 1, LEASE_MAX, &extend))
        return;
    usec_t deadline = queue_loop_now().monotonic + (usec_t)extend * USEC_PER_MSEC;
    if (!q || !queue_touch(named_queue_core(q), lease, deadline)) {
        if (q)
            add_queue_id(req, q);
        reply_refused(server, req, QUEUE_LEASE_LOST, 0);
        return;
    }
    queue_loop_arm(&server->loop);
    reply_count(req, q, "extended", extend);
}

void http_release(struct http_request *req, void *ctx)
{
    char reader[NAME_LEN_MAX + 1];
    struct named_queue *q;
    if (param_existing_queue(ctx, req, &q) && param_reader(req, reader))
        reply_count(req, q, "released", q ? named_queue_release(q, reader) : 0);
}

/* Without a journal, QUEUE_OK means that count_done has freed `p`. */
static void reply_moved(struct pending *p, enum queue_result r, const char *verb)
{
    if (r == QUEUE_OK)
        return;
    struct http_request *req = p->req;
    if (r != QUEUE_NOTHING) {
        pending_refuse(p, r, 0);
        return;
    }
    http_on_gone(req, NULL, NULL);
    reply_count(req, p->q, verb, 0);
    pending_free(p);
}

/* Reads the queue and id=A-B,C; without id=, all ids. The caller frees the ranges. If a parameter is wrong or the queue
 * does not exist, replies and returns false. */
static bool param_buried(struct queue_server *server, struct http_request *req, const char *verb,
    struct named_queue **q, struct id_range **ids, size_t *n)
{
    struct bytes text = BYTES_LITERAL("1-18446744073709551614");
    *ids = NULL;
    (void)http_param(req, "id", &text);
    if (!param_existing_queue(server, req, q))
        return false;
    if (!id_list_parse(text, ids, n))
        http_problem(req, 400, "bad-parameter", "A-B,C", "id is not a list of ids");
    else if (!*q)
        reply_count(req, NULL, verb, 0);
    else
        return true;
    free(*ids);
    return false;
}

/* Reads the body as a new text for the only message of `ids`. If the body cannot replace this message, replies with the
 * error and returns false. */
static bool takes_body(struct queue_server *server, struct http_request *req, const struct id_range *ids,
    size_t n, struct bytes *body)
{
    size_t lines = 1;
    *body = http_body(req);
    if (body->len == 0)
        return true;
    if (n != 1 || ids->first != ids->last)
        http_problem(req, 400, "bad-parameter", NULL,
            "a body replaces one message: give the id of this message as id=");
    else if (server->lines && !messages_as_lines(body, &lines))
        http_problem(req, 400, "not-a-line", NOT_A_LINE_HINT, NOT_A_LINE);
    else if (lines == 0)
        http_problem(
            req, 400, "missing-data", "DELETE /dead?id= deletes a message", "the new message is empty");
    else if (body->len > server->max_message)
        http_problem(req, 413, "too-large", "raise max_message of [simplequeue]",
            "a message of %zu bytes; the limit is %zu", body->len, server->max_message);
    else
        return true;
    return false;
}

void http_kick(struct http_request *req, void *ctx)
{
    struct queue_server *server = ctx;
    struct queue_kick what = {.as_lines = server->lines};
    struct named_queue *q;
    struct id_range *ids;
    struct bytes id;
    if (!param_items(server, req, http_param(req, "id", &id) ? SIZE_MAX : 1, &what.max_items) ||
        !param_buried(server, req, "kicked", &q, &ids, &what.n))
        return;
    what.ids = ids;
    if (takes_body(server, req, ids, what.n, &what.text)) {
        struct pending *p = count_pending(server, req, q, "kicked");
        reply_moved(p, named_queue_kick(q, &what, queue_loop_now(), count_done, p), "kicked");
    }
    free(ids);
}

void http_discard(struct http_request *req, void *ctx)
{
    struct named_queue *q;
    struct id_range *ids;
    struct bytes id;
    size_t n;
    if (!may_inspect(ctx, req) || !http_require_local(req))
        return;
    if (!http_param(req, "id", &id))
        http_problem(req, 400, "missing-parameter", "id=A-B,C", "id is missing");
    else if (param_buried(ctx, req, "deleted", &q, &ids, &n)) {
        struct pending *p = count_pending(ctx, req, q, "deleted");
        reply_moved(p, named_queue_discard(q, ids, n, queue_loop_now(), count_done, p), "deleted");
        free(ids);
    }
}
