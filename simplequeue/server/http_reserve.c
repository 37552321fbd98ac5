/* RESERVE leases messages, or sends messages to the follower.
 *
 * 1. If no message is ready, the request waits in the queue's line. Requests are answered in order.
 * 2. The reply contains messages. The reply is empty if the deadline passes or the daemon stops.
 * 3. The reply is a 409 if another reader has leases or follows the queue, or if the follow has ended.
 * 4. While ready messages are being read from disk, the request waits even beyond its deadline.
 * 5. Messages are leased or sent when the reply is written, so each lease has a reply. */
#include "base/rfc3339.h"
#include "simplequeue/queue/id_list.h"
#include "simplequeue/server/http_common.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define OCTETS "application/octet-stream"
#define OPENINGS_TOLD 16 /* number of latest openings that a refusal contains */

struct reserve {
    struct queue_server *server;
    struct http_request *req;
    struct wait *wait; /* NULL: the request does not wait */
    char queue[NAME_LEN_MAX + 1], reader[NAME_LEN_MAX + 1];
    size_t items;
    usec_t lease, timeout;
    uint64_t follow; /* number of the follow; 0: the request is not from the follower */
    uint64_t from;   /* follower only: the first id that the follower does not have */
    bool acks;       /* the request has the parameter ack */
    uint64_t acked;  /* number of messages that the parameter ack has deleted */
};

/* The follower's destination has the messages before id `below`. The id below - 1 was assigned in `opening` (a run of
 * the daemon). */
struct settled {
    uint64_t below;
    uint64_t
        mark;   /* the destination has the messages before `mark`, but may still lose those from `below` on */
    bool skips; /* do not send the messages before `mark` */
    struct bytes opening, destination; /* borrowed from the request */
};

/* Adds two headers for a relay that sends `until` (docs/guide/protocol.md). While messages are delayed, the reply has
 * neither header, because a delayed message later gets a new id that does not show its age. Messages of a put in
 * progress count as accepted later. */
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

/* Frees the reserve and returns its request, which the caller must answer. */
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

/* Refuses the request and returns true if its follow has ended or another reader follows the queue. `q` is NULL if the
 * queue does not exist. */
static bool answer_refused(struct reserve *r, const struct named_queue *q)
{
    bool has_follower = q && queue_state(named_queue_core(q))->follower[0];
    enum queue_result why = r->follow ? QUEUE_FOLLOW_ENDED : QUEUE_FOLLOWED;
    if (r->follow ? is_present_follow(q, r->follow) : !has_follower)
        return false;
    refuse_reader(end(r, NULL), q, why);
    return true;
}

/* Reads only messages of one opening (a run of the daemon), so that each mark between these messages names this
 * opening. */
static void follow_read(struct reserve *r, const struct named_queue *q, struct id_ranges *ids)
{
    struct queue *core = named_queue_core(q);
    const struct queue_openings *openings = named_queue_openings(q);
    uint64_t id;
    if (!queue_follow_next(core, &id))
        return;
    const struct queue_opening *of = queue_openings_of(openings, id);
    queue_follow_read(core, r->items, REPLY_BYTES_MAX, queue_openings_end(openings, of), ids);
    if (ids->count > 0 && of)
        http_add_header(r->req, "X-Millrace-Opening", "%s", of->opening);
}

static enum queue_result prepare(const struct reserve *r, struct named_queue *q)
{
    if (r->follow)
        queue_follow_rewind(named_queue_core(q), r->from);
    return named_queue_prepare(q, r->items, REPLY_BYTES_MAX);
}

/* Answers the request if messages are ready. Returns true if the request was answered. */
static bool try_answer(struct reserve *r, struct named_queue *q)
{
    struct queue *core = named_queue_core(q);
    if (answer_refused(r, q))
        return true;
    if (!r->follow && !queue_admits(core, r->reader)) {
        refuse_reader(end(r, NULL), q, QUEUE_HELD);
        return true;
    }
    enum queue_result result = prepare(r, q);
    if (result == QUEUE_LOADING)
        return false;
    struct queue_server *server = r->server;
    if (result != QUEUE_OK) {
        reply_refused(server, end(r, q), result, 0);
        return true;
    }
    struct id_ranges ids = {0};
    usec_t deadline = queue_loop_now().monotonic + r->lease;
    uint64_t lease = 0;
    if (r->follow)
        follow_read(r, q, &ids);
    else
        lease = queue_reserve(core, r->reader, r->items, REPLY_BYTES_MAX, deadline, &ids);
    if (ids.count == 0) /* no message is ready */
        return false;
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
    if (lease)
        http_add_header_u64(req, "X-Millrace-Lease", lease);
    http_reply_buf(req, 200, OCTETS, &server->frames);
    queue_loop_arm(&server->loop);
    return true;
}

static bool is_loading(const struct reserve *r, struct named_queue *q)
{
    return q && prepare(r, q) == QUEUE_LOADING;
}

static bool retry_reserve(struct wait *w, enum wait_event event)
{
    struct reserve *r = w->arg;
    struct named_queue *q = queues_find(r->server->queues, r->queue);
    switch (event) {
    case WAIT_RETRY:
        return try_answer(r, q);
    case WAIT_RECHECK:
        return answer_refused(r, q);
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
    if (answer_refused(r, q))
        return;
    if (r->follow) /* a follower sends one request at a time, so the reply to an earlier request is lost */
        wait_wake_all(line, WAIT_STOPPED);
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

/* Acknowledges messages before the reserve. The parameter is ack=L:A-B,C, or ack=L with the ids in the body. */
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
        enum queue_result result = named_queue_ack(q, lease, ids, n, queue_loop_now(), ack_done, p);
        if (result != QUEUE_OK) {
            free(r);
            pending_refuse(p, result, 0);
        }
    }
    free(ids);
}

static const char *began(const struct queue_opening *o, char out[RFC3339_TEXT])
{
    return o && o->opening[0] ? rfc3339_write(opening_time(o->opening) / USEC_PER_SEC, out) : "-";
}

/* Refuses the request because the destination has messages of another copy of the queue. */
static void refuse_history(struct http_request *req, const struct named_queue *q,
    const struct queue_difference *differs, uint64_t acked)
{
    const struct queue_openings *o = named_queue_openings(q);
    size_t first = o->n > OPENINGS_TOLD ? o->n - OPENINGS_TOLD : 0;
    struct buf members = {0};
    char time[RFC3339_TEXT];
    buf_printf(&members,
        "\"differs_from\":\"%" PRIu64 "\",\"is_certain\":%s,\"acked_below\":\"%" PRIu64 "\",\"openings\":[",
        differs->from, differs->is_certain ? "true" : "false", acked);
    for (size_t i = first; i < o->n; i++)
        buf_printf(&members, "%s{\"first\":\"%" PRIu64 "\",\"opening\":\"%s\",\"began\":\"%s\"}",
            i > first ? "," : "", o->at[i].first, o->at[i].opening, began(&o->at[i], time));
    buf_append(&members, "]", sizeof "]");
    http_problem_with(req, 409, "other-history", members.ptr,
        "from message %" PRIu64
        " on, this copy of the queue differs from the messages that the destination has; the "
        "opening of this message began at %s",
        differs->from, began(queue_openings_of(o, differs->from), time));
    buf_free(&members);
}

/* Settles the messages below s->below. Refuses the request if the destination has messages of another copy of the
 * queue, or if the destination has lost settled messages. */
static void settle_then_reserve(struct reserve *r, struct named_queue *q, const struct settled *s)
{
    char members[48];
    uint64_t acked = settled_below(q, s->destination);
    struct queue_difference differs;
    if (!queue_openings_is_past(named_queue_openings(q), queue_state(named_queue_core(q))->next_id, s->mark,
            s->opening, &differs)) {
        refuse_history(end(r, q), q, &differs, acked);
        return;
    }
    if (acked > s->mark) {
        snprintf(members, sizeof members, "\"acked_below\":\"%llu\"", (unsigned long long)acked);
        http_problem_with(end(r, q), 409, "destination-behind", members,
            "the destination has lost messages below id %llu that were settled for it",
            (unsigned long long)acked);
        return;
    }
    if (s->skips)
        queue_follow_skip(named_queue_core(q), s->mark);
    struct pending *p = pending_new(r->server, r->req, q);
    p->reserve = r;
    enum queue_result result = named_queue_settle(q, s->below, s->destination, queue_loop_now(), ack_done, p);
    if (result == QUEUE_NOTHING) {
        ack_done(&(struct queue_outcome){.result = QUEUE_OK}, p);
    } else if (result != QUEUE_OK) {
        free(r);
        pending_refuse(p, result, 0);
    }
}

/* Reads the parameters of the follower. Refuses parameters that only the follower, or only other readers, may give. */
static bool param_follow(struct reserve *r, struct settled *s)
{
    static const char *const of_follower[] = {"from", "settle", "mark", "opening", "destination", NULL};
    static const char *const of_others[] = {"lease", "reader", "ack", NULL};
    struct http_request *req = r->req;
    struct bytes text;
    bool follows = http_param(req, "follow", &text);
    for (const char *const *name = follows ? of_others : of_follower; *name; name++)
        if (http_param(req, *name, &text)) {
            http_problem(req, 400, "bad-parameter", NULL, "%s is %s follow", *name,
                follows ? "not allowed with" : "only allowed with");
            return false;
        }
    http_param(req, "opening", &s->opening);
    s->skips = http_param(req, "mark", &text);
    if (follows && !http_param(req, "from", &text)) {
        http_problem(req, 400, "missing-parameter", NULL, "from is missing");
        return false;
    }
    return http_param_u64(req, "follow", 0, 1, UINT64_MAX, &r->follow) &&
           http_param_u64(req, "from", 0, 0, UINT64_MAX, &r->from) &&
           http_param_u64(req, "settle", 0, 0, UINT64_MAX, &s->below) &&
           http_param_u64(req, "mark", s->below, s->below, UINT64_MAX, &s->mark) &&
           param_destination(req, &s->destination);
}

void http_reserve(struct http_request *req, void *ctx)
{
    struct queue_server *server = ctx;
    struct bytes ack;
    struct settled settled = {0};
    struct reserve *r = mem_zalloc(sizeof *r);
    uint64_t lease, timeout;
    r->server = server;
    r->req = req;
    if (!param_queue(req, r->queue) || !param_items(server, req, 1, &r->items) ||
        !param_reader(req, r->reader) || !http_param_u64(req, "lease", LEASE_DEFAULT, 1, LEASE_MAX, &lease) ||
        !http_param_u64(req, "wait", 0, 0, WAIT_MAX, &timeout) || !param_follow(r, &settled)) {
        free(r);
        return;
    }
    r->items = r->items < RESERVE_ITEMS_MAX ? r->items : RESERVE_ITEMS_MAX;
    r->lease = (usec_t)lease * USEC_PER_MSEC;
    r->timeout = (usec_t)timeout * USEC_PER_MSEC;
    struct named_queue *q = queues_find(server->queues, r->queue);
    if (answer_refused(r, q))
        return;
    r->acks = http_param(req, "ack", &ack);
    if (r->acks)
        ack_then_reserve(r, q, ack);
    else if (r->follow)
        settle_then_reserve(r, q, &settled);
    else
        reserve(r, queue_loop_now().monotonic);
}
