/* ACK, NACK, BURY, TOUCH, RELEASE and KICK: end or extend leases, and make buried messages ready. */
#include "journal/opening_list.h"
#include "simplequeue/queue/id_list.h"
#include "simplequeue/server/http_common.h"

#include <stdio.h>
#include <stdlib.h>

#define JSON "application/json"

/* The queue and the parameters lease=L&id=A-B,C of a request. */
struct lease_request {
    struct named_queue *q;
    uint64_t lease;
    struct id_range *ids; /* the handler frees them */
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

/* Reads the ids from id=. Because the length of a target is limited, the ids may be in the body instead. If a
 * parameter is wrong, replies with the error and returns false. */
static bool parse_lease_request(
    struct queue_server *server, struct http_request *req, struct lease_request *out)
{
    *out = (struct lease_request){0};
    if (!param_existing_queue(server, req, &out->q) || !param_lease(req, &out->lease))
        return false;
    struct bytes text, body = http_body(req);
    bool in_target = http_param(req, "id", &text);
    if (in_target && body.len)
        http_problem(req, 400, "bad-parameter", NULL, "ids are given twice: as id= and as the body");
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
    struct bytes destination;
    if (!param_destination(req, &destination)) {
        free(r.ids);
        return;
    }
    struct pending *p = count_pending(ctx, req, r.q, "acked");
    enum queue_result result =
        named_queue_ack(r.q, r.lease, r.ids, r.n, destination, queue_loop_now(), count_done, p);
    if (result != QUEUE_OK)
        pending_refuse(p, result, 0);
    free(r.ids);
}

void http_nack(struct http_request *req, void *ctx)
{
    struct lease_request r;
    uint64_t delay, n;
    if (!http_param_u64(req, "delay", 0, 0, DELAY_MAX, &delay) || !parse_lease_request(ctx, req, &r))
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

void http_bury(struct http_request *req, void *ctx)
{
    struct lease_request r;
    struct bytes reason = BYTES_NONE;
    if (http_param(req, "reason", &reason) && reason.len > REASON_MAX) {
        http_problem(req, 400, "bad-parameter", NULL, "reason exceeds %d bytes", REASON_MAX);
        return;
    }
    if (!parse_lease_request(ctx, req, &r))
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

/* Creates the queue if needed: a reader calls /release before its first /reserve, and it needs the queue's id for its
 * name as a producer. */
void http_release(struct http_request *req, void *ctx)
{
    const struct queue_server *server = ctx;
    char name[NAME_LEN_MAX + 1], reader[NAME_LEN_MAX + 1];
    struct bytes destination;
    if (!param_queue(req, name) || !param_reader(req, reader) || !param_destination(req, &destination))
        return;
    struct named_queue *q = obtain_queue(ctx, req, name, &(struct first_put){0}, http_release);
    if (!q)
        return;
    uint64_t epoch;
    unsigned long long n = named_queue_release(q, reader, &epoch);
    unsigned long long next_id = queue_state(named_queue_core(q))->next_id;
    wait_wake_all(&served_of(q)->reserves, WAIT_RECHECK); /* refuses those with an older epoch */
    add_queue_id(req, q);
    struct buf out = {0};
    buf_printf(&out,
        "{\"released\":%llu,\"queue_id\":\"%s\",\"host\":\"%s\",\"next_id\":\"%llu\",\"epoch\":\"%llu\","
        "\"openings\":\"",
        n, named_queue_id(q), server->name, next_id, (unsigned long long)epoch);
    if (named_queue_openings(q))
        openings_append_text(named_queue_openings(q), 0, &out);
    snprintf(name, sizeof name, "%.*s", (int)destination.len, destination.len ? destination.ptr : "");
    if (destination.len)
        buf_printf(&out, "\",\"acked_below\":\"%llu", (unsigned long long)named_queue_mark(q, name, NULL));
    buf_append_str(&out, "\"}\n");
    http_reply_buf(req, 200, JSON, &out);
    buf_free(&out);
}

void http_kick(struct http_request *req, void *ctx)
{
    struct named_queue *q;
    size_t items;
    if (!param_existing_queue(ctx, req, &q) || !param_items(ctx, req, 1, &items))
        return;
    struct pending *p = q ? count_pending(ctx, req, q, "kicked") : NULL;
    enum queue_result r = p ? named_queue_kick(q, items, queue_loop_now(), count_done, p) : QUEUE_NOTHING;
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
