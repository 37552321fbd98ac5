/* RESERVE leases messages. If no message is ready, the request waits in the queue's line, and requests are answered
 * in order. The reply contains messages, or is empty if the deadline passes or the daemon stops. It is 409 if a
 * reader with another name has leases or if the epoch is not the latest. While ready messages are being read from
 * disk, the request waits even beyond its deadline. Messages are leased at the moment when the reply is written, so
 * there is no lease without a reply. */
#include "simplequeue/queue/id_list.h"
#include "simplequeue/server/http_common.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define OCTETS "application/octet-stream"

struct reserve {
    struct queue_server *server;
    struct http_request *req;
    struct wait *wait; /* NULL: the request does not wait */
    char queue[NAME_LEN_MAX + 1], reader[NAME_LEN_MAX + 1];
    size_t items;
    usec_t lease, timeout;
    uint64_t epoch;           /* 0: none given */
    struct bytes destination; /* of the request */
    uint64_t mark;            /* the destination has the messages below this id */
    bool acks;                /* the request has the parameter ack */
    uint64_t acked;           /* number of messages that the ack has deleted */
};

/* For a relay that states `until` (docs/guide/protocol.md). A delayed message gets a new id later, so the ids do not show how
 * long the message has waited. The reply then has neither header. A message that is being put counts as accepted later. */
static void add_accepted(struct reserve *r, const struct named_queue *q)
{
    struct http_request *req = r->req;
    const struct queue_state *s = queue_state(named_queue_core(q));
    usec_t now = daemon_trusted_time(r->server->loop.daemon);
    if (s->to_move > 0 || now <= 0)
        return;
    bool is_empty = s->n[MESSAGE_READY] + s->n[MESSAGE_LEASED] + s->n[MESSAGE_BUSY] == 0;
    http_add_header(
        req, "X-Millrace-Accepted-Before", "%" PRId64 ".%06" PRId64, now / USEC_PER_SEC, now % USEC_PER_SEC);
    http_add_header_u64(req, "X-Millrace-Accepted-Last", is_empty ? 0 : s->next_id - 1);
}

/* Frees `r` and returns the request. The caller must answer the request. */
static struct http_request *end(struct reserve *r, const struct named_queue *q)
{
    struct http_request *req = r->req;
    if (r->wait)
        wait_leave(r->wait);
    if (q)
        add_queue_id(req, q);
    if (r->acks)
        http_add_header_u64(req, "X-Millrace-Acked", r->acked);
    free(r);
    return req;
}

static void answer_nothing(struct reserve *r)
{
    const struct named_queue *q = queues_find(r->server->queues, r->queue);
    if (q)
        add_accepted(r, q);
    http_reply(end(r, q), 200, OCTETS, BYTES_NONE);
}

/* If the epoch of the request is not the latest of the reader's name, refuses the request and returns true. `q` is
 * NULL if the queue does not exist. */
static bool answer_stale(struct reserve *r, const struct named_queue *q)
{
    char members[48] = "";
    uint64_t latest = q ? queue_epoch(named_queue_core(q), r->reader) : 0;
    if (!r->epoch || r->epoch == latest)
        return false;
    if (latest)
        snprintf(members, sizeof members, "\"epoch\":\"%llu\"", (unsigned long long)latest);
    http_problem_with(end(r, q), 409, "stale-epoch", members,
        "this is not the latest epoch of the reader's name: another client took over, or the daemon started "
        "again");
    return true;
}

/* If messages that the destination does not have were acknowledged for it, refuses the request and returns true. */
static bool answer_behind(struct reserve *r, const struct named_queue *q)
{
    char name[NAME_LEN_MAX + 1], members[48];
    snprintf(
        name, sizeof name, "%.*s", (int)r->destination.len, r->destination.len ? r->destination.ptr : "");
    uint64_t acked = q && name[0] ? named_queue_mark(q, name, NULL) : 0;
    if (acked <= r->mark)
        return false;
    snprintf(members, sizeof members, "\"acked_below\":\"%llu\"", (unsigned long long)acked);
    http_problem_with(end(r, q), 409, "destination-behind", members,
        "the destination lacks messages below id %llu that were acknowledged for it",
        (unsigned long long)acked);
    return true;
}

/* True if the request was answered. */
static bool try_answer(struct reserve *r, struct named_queue *q)
{
    struct queue *core = named_queue_core(q);
    if (answer_stale(r, q))
        return true;
    if (!queue_admits(core, r->reader)) {
        struct buf members = {0};
        const char *holder = queue_state(core)->reader;
        buf_append_str(&members, "\"reader\":");
        buf_append_json(&members, bytes_str(holder));
        buf_append_str(&members, ",\"hint\":\"its leases expire, or end at once with /release?reader=\"");
        buf_append_char(&members, '\0');
        http_problem_with(end(r, q), 409, "queue-held", members.ptr, "reader \"%s\" holds leases of queue %s",
            holder, named_queue_name(q));
        buf_free(&members);
        return true;
    }
    enum queue_result result = named_queue_prepare(q, r->items, REPLY_BYTES_MAX);
    if (result == QUEUE_LOADING)
        return false;
    struct queue_server *server = r->server;
    if (result != QUEUE_OK) {
        reply_refused(server, end(r, q), result, 0);
        return true;
    }
    struct id_ranges ids = {0};
    usec_t deadline = queue_loop_now().monotonic + r->lease;
    uint64_t lease = queue_reserve(core, r->reader, r->items, REPLY_BYTES_MAX, deadline, &ids);
    if (!lease) /* nothing is ready */
        return false;
    if (!r->epoch) /* a reader of this name that has an epoch would pass over these messages */
        queue_end_epoch(core, r->reader);
    for (struct id_walk w = {.ids = &ids}; id_walk_next(&w);) {
        struct buf *out = &server->frames;
        uint32_t tries;
        struct bytes text = queue_message(core, w.id, &tries);
        buf_append_u64(out, w.id);
        buf_append_char(out, ' ');
        buf_append_u64(out, tries);
        buf_append_char(out, ' ');
        buf_append_u64(out, text.len);
        buf_append_char(out, '\n');
        buf_append_bytes(out, text);
        buf_append_char(out, '\n');
    }
    id_ranges_free(&ids);
    add_accepted(r, q);
    struct http_request *req = end(r, q);
    http_add_header_u64(req, "X-Millrace-Lease", lease);
    http_reply_buf(req, 200, OCTETS, &server->frames);
    queue_loop_arm(&server->loop);
    return true;
}

static bool is_loading(const struct reserve *r, struct named_queue *q)
{
    return q && named_queue_prepare(q, r->items, REPLY_BYTES_MAX) == QUEUE_LOADING;
}

static bool retry_reserve(struct wait *w, enum wait_event event)
{
    struct reserve *r = w->arg;
    struct named_queue *q = queues_find(r->server->queues, r->queue);
    switch (event) {
    case WAIT_RETRY:
        return try_answer(r, q);
    case WAIT_RECHECK:
        return answer_stale(r, q);
    case WAIT_GONE:
        wait_leave(w);
        free(r);
        return true;
    case WAIT_EXPIRED:
        if (is_loading(r, q))
            return false;
        break;
    case WAIT_STOPPED:
    case WAIT_REFUSED:
        break;
    }
    answer_nothing(r);
    return true;
}

/* Answers the request, or makes it wait. */
static void reserve(struct reserve *r, usec_t now)
{
    struct queue_server *server = r->server;
    struct named_queue *q = queues_find(server->queues, r->queue);
    struct wait_line *line = q ? &served_of(q)->reserves : &server->strays;
    if (answer_stale(r, q))
        return;
    if (q && !line->first && try_answer(r, q))
        return;
    if ((r->timeout == 0 || daemon_is_draining(server->loop.daemon)) && !is_loading(r, q)) {
        answer_nothing(r);
        return;
    }
    r->wait = wait_add(&server->loop, line, r->req, retry_reserve, r);
    wait_set_deadline(r->wait, now + r->timeout);
    http_set_long_poll(r->req);
}

void reserve_serve(struct named_queue *q)
{
    const struct wait_line *line = &served_of(q)->reserves;
    while (line->first && queue_state(named_queue_core(q))->n[MESSAGE_READY] > 0)
        if (!wait_wake(line->first, WAIT_RETRY))
            return;
}

void reserve_queue_opened(struct queue_server *server, struct named_queue *q)
{
    struct wait *after;
    for (struct wait *w = server->strays.first; w; w = after) {
        const struct reserve *r = w->arg;
        after = w->after;
        if (strcmp(r->queue, named_queue_name(q)) == 0)
            wait_move(w, &served_of(q)->reserves);
    }
}

static void ack_done(const struct queue_outcome *outcome, void *arg)
{
    struct pending *p = arg;
    struct reserve *r = p->reserve;
    if (p->req && outcome->result == QUEUE_OK) {
        http_on_gone(p->req, NULL, NULL);
        r->acked = outcome->count;
        reserve(r, queue_loop_now().monotonic);
    } else {
        free(r);
        if (p->req)
            reply_refused(p->server, p->req, outcome->result, 0);
    }
    pending_free(p);
}

/* The parameter is ack=L:A-B,C, or ack=L with the ids in the body. */
static void ack_then_reserve(struct reserve *r, struct named_queue *q, struct bytes ack)
{
    struct queue_server *server = r->server;
    struct http_request *req = r->req;
    struct bytes body = http_body(req);
    const char *colon = ack.len ? memchr(ack.ptr, ':', ack.len) : NULL;
    size_t n, digits = colon ? (size_t)(colon - ack.ptr) : ack.len;
    struct id_range *ids = NULL;
    uint64_t lease;
    if ((colon && body.len > 0) || !bytes_to_u64(bytes_of(ack.ptr, digits), &lease) ||
        !id_list_parse(colon ? bytes_of(colon + 1, ack.len - digits - 1) : body, &ids, &n)) {
        free(r);
        http_problem(req, 400, "bad-parameter", "ack=LEASE:A-B,C, or ack=LEASE and A-B,C as the body",
            "ack is not a lease and a list of ids");
        return;
    }
    if (!q) {
        free(r);
        reply_refused(server, req, QUEUE_LEASE_LOST, 0);
    } else {
        struct pending *p = pending_new(server, req, q);
        p->reserve = r;
        enum queue_result result =
            named_queue_ack(q, lease, ids, n, r->destination, queue_loop_now(), ack_done, p);
        if (result != QUEUE_OK) {
            free(r);
            pending_refuse(p, result, 0);
        }
    }
    free(ids);
}

void http_reserve(struct http_request *req, void *ctx)
{
    struct queue_server *server = ctx;
    struct bytes ack;
    struct reserve *r = mem_zalloc(sizeof *r);
    uint64_t lease, timeout;
    r->server = server;
    r->req = req;
    if (!param_queue(req, r->queue) || !param_items(server, req, 1, &r->items) ||
        !param_reader(req, r->reader) || !http_param_u64(req, "lease", LEASE_DEFAULT, 1, LEASE_MAX, &lease) ||
        !http_param_u64(req, "wait", 0, 0, WAIT_MAX, &timeout) ||
        !http_param_u64(req, "epoch", 0, 1, UINT64_MAX, &r->epoch) ||
        !http_param_u64(req, "mark", UINT64_MAX, 0, UINT64_MAX, &r->mark) ||
        !param_destination(req, &r->destination)) {
        free(r);
        return;
    }
    r->items = r->items < RESERVE_ITEMS_MAX ? r->items : RESERVE_ITEMS_MAX;
    r->lease = (usec_t)lease * USEC_PER_MSEC;
    r->timeout = (usec_t)timeout * USEC_PER_MSEC;
    struct named_queue *q = queues_find(server->queues, r->queue);
    if (answer_stale(r, q) || answer_behind(r, q))
        return;
    r->acks = http_param(req, "ack", &ack);
    if (r->acks)
        ack_then_reserve(r, q, ack);
    else
        reserve(r, queue_loop_now().monotonic);
}
