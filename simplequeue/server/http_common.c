#include "simplequeue/server/http_common.h"

#include "simplequeue/server/refusals.h"

#include <stdio.h>
#include <stdlib.h>

bool param_queue(struct http_request *req, char name[NAME_LEN_MAX + 1])
{
    return http_param_name(req, "queue", QUEUES_DEFAULT, name);
}

bool param_existing_queue(struct queue_server *server, struct http_request *req, struct named_queue **q)
{
    char name[NAME_LEN_MAX + 1];
    if (!param_queue(req, name))
        return false;
    *q = queues_find(server->queues, name);
    return true;
}

bool param_reader(struct http_request *req, char reader[NAME_LEN_MAX + 1])
{
    struct bytes text;
    reader[0] = '\0';
    return !http_param(req, "reader", &text) || http_param_name(req, "reader", NULL, reader);
}

bool param_destination(struct http_request *req, struct bytes *destination)
{
    *destination = BYTES_NONE;
    if (!http_param(req, "destination", destination) ||
        (bytes_is_name(*destination) && destination->len <= QUEUE_DESTINATION_MAX))
        return true;
    http_problem(req, 400, "bad-parameter", NULL, "destination is not a name of at most %d bytes",
        QUEUE_DESTINATION_MAX);
    return false;
}

bool param_items(struct queue_server *server, struct http_request *req, size_t fallback, size_t *items)
{
    uint64_t n;
    if (!http_param_u64(req, "items", fallback, 1, UINT64_MAX, &n))
        return false;
    *items = n < server->max_items ? n : server->max_items;
    return true;
}

bool param_separator(struct http_request *req, struct bytes fallback, bool may_be_empty, struct bytes *out)
{
    *out = fallback;
    if (!http_param(req, "separator", out) || out->len > 0 || may_be_empty)
        return true;
    http_problem(req, 400, "bad-parameter", NULL, "separator is empty");
    return false;
}

void await_queue(struct queue_server *server, struct http_request *req, const char *name,
    const struct first_put *put, http_handler *handler)
{
    enum queue_result r = queue_creation_wait(&server->creation, name, put, req, retry_request, server);
    if (r != QUEUE_OK)
        reply_refused(server, req, r, 0);
    else
        server->creation.line.last->handler = handler;
}

bool retry_request(struct wait *w, enum wait_event event)
{
    struct queue_server *server = w->arg;
    struct http_request *req = wait_leave(w);
    if (event == WAIT_RETRY) {
        w->handler(req, server);
    } else if (event == WAIT_REFUSED && w->error) {
        const struct refusal *r = refusal_of(w->result);
        stats_add(server->refused, 1);
        http_problem(req, r->status, r->code, NULL, "%s", w->error);
    } else if (event == WAIT_REFUSED) {
        if (w->q) {
            served_queue_count_refused(w->q, w->result);
            add_queue_id(req, w->q);
        }
        reply_refused(server, req, w->result, 0);
    }
    return true;
}

bool may_inspect(const struct queue_server *server, struct http_request *req)
{
    bool stopping = daemon_is_draining(server->loop.daemon);
    if (server->recovered && !stopping)
        return true;
    http_problem(req, 503, "not-ready", NULL, "%s", stopping ? "stopping" : "recovering");
    return false;
}

void add_queue_id(struct http_request *req, const struct named_queue *q)
{
    const struct served_queue *served = served_of(q);
    http_add_header_line(req, bytes_of(served->id_line, served->id_line_len));
}

void reply_refused(
    struct queue_server *server, struct http_request *req, enum queue_result result, uint64_t mark)
{
    const struct refusal *r = refusal_of(result);
    stats_add(server->refused, 1);
    if (result != QUEUE_CONFLICT) {
        http_problem(req, r->status, r->code, r->hint, "%s", queue_strerror(result));
        return;
    }
    struct buf members = {0};
    buf_printf(&members,
        "\"mark\":\"%llu\",\"hint\":\"messages below the mark are stored: continue from the mark\"",
        (unsigned long long)mark);
    buf_append_char(&members, '\0');
    http_problem_with(req, r->status, r->code, members.ptr, "%s", queue_strerror(result));
    buf_free(&members);
}

void refuse_reader(struct http_request *req, const struct named_queue *q, enum queue_result why)
{
    const struct refusal *r = refusal_of(why);
    const struct queue_state *s = q ? queue_state(named_queue_core(q)) : NULL;
    const char *reader = !s ? "" : why == QUEUE_HELD ? s->reader : s->follower;
    struct buf members = {0};
    buf_printf(&members, "\"reader\":\"%s\",\"hint\":\"%s\"", reader, r->hint);
    if (why == QUEUE_FOLLOW_ENDED && s && s->follow)
        buf_printf(&members, ",\"number\":\"%llu\"", (unsigned long long)s->follow);
    buf_append_char(&members, '\0');
    if (q)
        add_queue_id(req, q);
    if (reader[0] || why == QUEUE_HELD)
        http_problem_with(
            req, r->status, r->code, members.ptr, "%s: reader \"%s\"", queue_strerror(why), reader);
    else
        http_problem_with(req, r->status, r->code, members.ptr, "the queue is not followed");
    buf_free(&members);
}

bool refuse_followed(struct http_request *req, const struct named_queue *q)
{
    bool is_followed = q && queue_state(named_queue_core(q))->follower[0];
    if (is_followed)
        refuse_reader(req, q, QUEUE_FOLLOWED);
    return is_followed;
}

uint64_t settled_below(const struct named_queue *q, struct bytes destination)
{
    char name[QUEUE_DESTINATION_MAX + 1];
    if (!destination.len)
        return 0;
    snprintf(name, sizeof name, "%.*s", (int)destination.len, destination.ptr);
    return named_queue_mark(q, name, NULL);
}

bool is_present_follow(const struct named_queue *q, uint64_t follow)
{
    return q && queue_state(named_queue_core(q))->follow == follow;
}

static void on_gone(struct http_request *req, void *arg)
{
    struct pending *p = arg;
    (void)req;
    p->req = NULL;
}

struct pending *pending_new(struct queue_server *server, struct http_request *req, struct named_queue *q)
{
    struct pending *p = mem_alloc(sizeof *p);
    *p = (struct pending){.server = server, .req = req, .q = q};
    queue_loop_begin(&server->loop);
    http_on_gone(req, on_gone, p);
    return p;
}

void pending_free(struct pending *p)
{
    struct queue_server *server = p->server;
    buf_free(&p->body);
    free(p);
    queue_loop_end(&server->loop);
}

void pending_refuse(struct pending *p, enum queue_result result, uint64_t mark)
{
    http_on_gone(p->req, NULL, NULL);
    add_queue_id(p->req, p->q);
    reply_refused(p->server, p->req, result, mark);
    pending_free(p);
}
