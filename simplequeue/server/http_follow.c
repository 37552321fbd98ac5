/* FOLLOW and UNFOLLOW: begin and end the follow of a queue. */
#include "simplequeue/server/http_common.h"

#include <stdio.h>

#define JSON "application/json"

/* Wakes the waiting requests, so that requests of other readers and of an ended follow are refused. */
static void recheck_waits(const struct named_queue *q)
{
    wait_wake_all(&served_of(q)->reserves, WAIT_RECHECK);
}

static void log_change(const char *what, const struct named_queue *q, const char *reader)
{
    log_info(what, LOG_S("queue", named_queue_name(q)), LOG_S("reader", reader));
}

static void reply_follow(struct pending *p, const struct queue_outcome *outcome)
{
    const struct named_queue *q = p->q;
    uint64_t next_id = queue_state(named_queue_core(q))->next_id;
    const struct queue_opening *last = queue_openings_of(named_queue_openings(q), next_id - 1);
    struct buf out = {0};
    buf_printf(&out,
        "{\"queue_id\":\"%s\",\"host\":\"%s\",\"follow\":\"%llu\",\"takeover\":%s,\"next_id\":\"%llu\","
        "\"opening\":\"%s\"}\n",
        named_queue_id(q), p->server->name, (unsigned long long)outcome->follow,
        outcome->takes_over ? "true" : "false", (unsigned long long)next_id, last ? last->opening : "");
    add_queue_id(p->req, q);
    http_reply_buf(p->req, 200, JSON, &out);
    buf_free(&out);
}

static void follow_done(const struct queue_outcome *outcome, void *arg)
{
    struct pending *p = arg;
    bool follows = outcome->result == QUEUE_OK;
    if (follows && p->follow)
        log_change("the queue is followed", p->q, queue_state(named_queue_core(p->q))->follower);
    if (p->req && follows)
        reply_follow(p, outcome);
    else if (p->req)
        reply_refused(p->server, p->req, outcome->result, 0);
    recheck_waits(p->q);
    pending_free(p);
}

/* Creates the queue if needed, because a reader may follow before the first put, and needs the queue's id as its
 * producer name. */
void http_follow(struct http_request *req, void *ctx)
{
    struct queue_server *server = ctx;
    char name[NAME_LEN_MAX + 1], reader[NAME_LEN_MAX + 1];
    if (!param_queue(req, name) || !http_param_name(req, "reader", NULL, reader))
        return;
    struct named_queue *q = queues_find(server->queues, name);
    if (!q) {
        await_queue(server, req, name, &(struct first_put){0}, http_follow);
        return;
    }
    struct pending *p = pending_new(server, req, q);
    p->follow = !queue_state(named_queue_core(q))->follower[0];
    enum queue_result r = named_queue_follow(q, reader, queue_loop_now(), follow_done, p);
    if (r == QUEUE_OK)
        return;
    if (r == QUEUE_HELD || r == QUEUE_FOLLOWED) {
        http_on_gone(req, NULL, NULL);
        refuse_reader(req, q, r);
        pending_free(p);
    } else {
        pending_refuse(p, r, 0);
    }
}

static void unfollow_done(const struct queue_outcome *outcome, void *arg)
{
    struct pending *p = arg;
    if (p->req)
        add_queue_id(p->req, p->q);
    if (p->req && outcome->result == QUEUE_OK)
        http_reply_buf(p->req, 200, JSON, &p->body);
    else if (p->req)
        reply_refused(p->server, p->req, outcome->result, 0);
    pending_free(p);
}

static void settled(const struct queue_outcome *outcome, void *arg);

/* Removes the next messages that an unfollow settles. Returns QUEUE_NOTHING if all are removed. */
static enum queue_result settle_more(struct pending *p)
{
    return named_queue_settle(
        p->q, p->follow ? p->settle : 0, bytes_str(p->destination), queue_loop_now(), settled, p);
}

/* Called once messages that an unfollow settles are removed. The follow may have ended in the meantime. */
static void settled(const struct queue_outcome *outcome, void *arg)
{
    struct pending *p = arg;
    struct named_queue *q = p->q;
    char reader[NAME_LEN_MAX + 1];
    enum queue_result r = outcome->result;
    if (r == QUEUE_OK && p->follow && !is_present_follow(q, p->follow)) {
        if (p->req)
            refuse_reader(p->req, q, QUEUE_FOLLOW_ENDED);
        pending_free(p);
        return;
    }
    if (r == QUEUE_OK)
        r = settle_more(p);
    if (r == QUEUE_OK)
        return;
    r = r == QUEUE_NOTHING ? QUEUE_OK : r;
    snprintf(reader, sizeof reader, "%s", queue_state(named_queue_core(q))->follower);
    buf_printf(&p->body, "{\"unfollowed\":%s,\"reader\":\"%s\"}\n", reader[0] ? "true" : "false", reader);
    if (r == QUEUE_OK)
        r = named_queue_unfollow(q, queue_loop_now(), unfollow_done, p);
    if (r == QUEUE_OK) {
        log_change("the queue is no longer followed", q, reader);
        recheck_waits(q);
    } else {
        unfollow_done(&(struct queue_outcome){.result = r == QUEUE_NOTHING ? QUEUE_OK : r}, p);
    }
}

void http_unfollow(struct http_request *req, void *ctx)
{
    struct named_queue *q;
    struct bytes text, destination;
    uint64_t follow, settle;
    if (!param_existing_queue(ctx, req, &q) || !http_param_u64(req, "follow", 0, 1, UINT64_MAX, &follow) ||
        !http_param_u64(req, "settle", 0, 0, UINT64_MAX, &settle) || !param_destination(req, &destination))
        return;
    if (!follow && (destination.len || http_param(req, "settle", &text))) {
        http_problem(req, 400, "missing-parameter", NULL, "settle and destination need follow");
    } else if (follow && !is_present_follow(q, follow)) {
        refuse_reader(req, q, QUEUE_FOLLOW_ENDED);
    } else if (!q) {
        http_reply(req, 200, JSON, BYTES_LITERAL("{\"unfollowed\":false,\"reader\":\"\"}\n"));
    } else {
        struct pending *p = pending_new(ctx, req, q);
        p->follow = follow;
        p->settle = settle;
        snprintf(p->destination, sizeof p->destination, "%.*s", (int)destination.len,
            destination.len ? destination.ptr : "");
        settled(&(struct queue_outcome){.result = QUEUE_OK}, p);
    }
}
