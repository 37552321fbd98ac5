#include "simplequeue/server/queue_server.h"

#include <stdio.h>
#include <stdlib.h>

static void put_done(const struct queue_outcome *outcome, void *arg)
{
    struct pending *p = arg;
    struct http_request *req = p->req;
    struct queue_server *server = p->server;
    if (outcome->duplicate)
        stats_add(server->duplicates, 1);
    if (req && outcome->result != QUEUE_OK) {
        reply_refused(server, req, outcome->result, 0);
    } else if (req) {
        unsigned long long first = outcome->first_id, last = first + outcome->count - 1;
        add_queue_id(req, p->q);
        if (outcome->duplicate)
            http_add_header(req, "X-Millrace-Duplicate", "1");
        else if (p->verb)
            http_add_header_u64(req, p->verb, first);
        else if (outcome->count)
            http_add_header(req, "X-Millrace-Ids", "%llu-%llu", first, last);
        http_reply(req, 200, NULL, BYTES_NONE);
        server_arm(server);
    }
    pending_free(p);
}

static bool param_marks(struct http_request *req, struct queue_put *put)
{
    const char *fault = put_request_marks_fault(http_query(req), put);
    if (!fault)
        return true;
    http_problem(req, 400, "bad-parameter", PUT_MARKS_HINT, "%s", fault);
    return false;
}

static bool param_delay(struct http_request *req, usec_t *delay)
{
    uint64_t ms;
    if (!http_param_u64(req, "delay", 0, 0, DELAY_MAX, &ms))
        return false;
    *delay = (usec_t)ms * USEC_PER_MSEC;
    return true;
}

static struct bytes message_data(struct http_request *req)
{
    struct bytes data;
    return http_param(req, "data", &data) ? data : http_body(req);
}

static bool fits(struct queue_server *server, struct http_request *req, size_t len)
{
    if (len <= server->max_message)
        return true;
    http_problem(req, 413, "too-large", "raise --max-message", "a message of %zu bytes; the limit is %zu",
        len, server->max_message);
    return false;
}

static void reply_unmade(
    struct queue_server *server, struct http_request *req, enum queue_result result, const char *error)
{
    const struct refusal *r = refusal_of(result);
    if (!error[0]) {
        reply_refused(server, req, result, 0);
        return;
    }
    stats_add(server->refused, 1);
    http_problem(req, r->status, r->code, NULL, "%s", error);
}

/* They stay as they are, and are handled again from their beginning when what they wait for is there. */
static struct pending *wait_before(
    struct queue_server *server, struct http_request *req, http_handler *handler)
{
    struct pending *p = pending_new(server, req, NULL);
    p->handler = handler;
    return p;
}

/* NULL when its client is gone. */
static struct http_request *wait_is_over(const struct pending *p)
{
    if (p->req)
        http_on_gone(p->req, NULL, NULL);
    return p->req;
}

struct unmade {
    struct queue_wish wish;
    struct pending *p;
};

static void queue_told(struct queue_wish *wish, enum queue_result result, const char *error)
{
    struct unmade *u = wish->arg;
    struct pending *p = u->p;
    struct http_request *req = wait_is_over(p);
    free(u);
    if (req && result == QUEUE_OK)
        p->handler(req, p->server);
    else if (req)
        reply_unmade(p->server, req, result, error);
    pending_free(p);
}

struct named_queue *obtain_queue(struct queue_server *server, struct http_request *req, const char *name,
    const struct first_put *first, http_handler *handler)
{
    enum queue_result r;
    struct named_queue *q = queue_creation_find(server, name, first, &r);
    if (!q && r != QUEUE_OK) {
        reply_refused(server, req, r, 0);
    } else if (!q) {
        struct unmade *u = mem_zalloc(sizeof *u);
        u->p = wait_before(server, req, handler);
        u->wish.told = queue_told;
        u->wish.arg = u;
        u->wish.put = *first;
        snprintf(u->wish.name, sizeof u->wish.name, "%s", name);
        queue_creation_ask(server, &u->wish);
    }
    return q;
}

static void room_told(struct room_ask *ask, enum queue_result result)
{
    struct pending *p = ask->arg;
    struct http_request *req = wait_is_over(p);
    if (req && result == QUEUE_OK) {
        p->handler(req, p->server);
    } else if (req) {
        served_queue_count_refused(p->q, result);
        add_queue_id(req, p->q);
        reply_refused(p->server, req, result, 0);
    }
    pending_free(p);
}

/* How one of the endpoints puts. */
struct put_way {
    const char *id_header; /* for one id; NULL: a range */
    http_handler *handler;
};

static void put(
    struct queue_server *server, struct http_request *req, struct queue_put *what, const struct put_way *way)
{
    char name[NAME_LEN_MAX + 1];
    uint64_t mark = 0;
    if (!param_queue(req, name) || !param_marks(req, what) || !param_delay(req, &what->delay))
        return;
    if (what->n == 0 && what->producer.len == 0 && message_data(req).len == 0) {
        http_problem(req, 400, "missing-data", NULL, "missing data");
        return;
    }
    struct first_put first = first_put_of(what);
    struct named_queue *q = obtain_queue(server, req, name, &first, way->handler);
    if (!q)
        return;
    struct pending *p = pending_new(server, req, q);
    p->verb = way->id_header;
    p->handler = way->handler;
    p->ask.told = room_told;
    p->ask.arg = p;
    enum queue_result r = overflow_put(server, q, what, server_now_of(req), put_done, &p->ask, &mark);
    if (r == QUEUE_OK)
        return;
    http_on_gone(req, NULL, NULL);
    pending_free(p);
    served_queue_count_refused(q, r);
    add_queue_id(req, q);
    reply_refused(server, req, r, mark);
}

void http_put(struct http_request *req, void *ctx)
{
    static const struct put_way way = {"X-Millrace-Id", http_put};
    struct queue_server *server = ctx;
    struct bytes data = message_data(req);
    struct queue_put what = {.messages = &data, .n = 1};
    if (data.len == 0)
        http_problem(req, 400, "missing-data", "give ?data= or a body", "missing data");
    else if (fits(server, req, data.len))
        put(server, req, &what, &way);
}

void http_mput(struct http_request *req, void *ctx)
{
    static const struct put_way way = {NULL, http_mput};
    struct queue_server *server = ctx;
    struct bytes separator;
    if (!param_separator(req, server->mput_separator, &separator))
        return;
    records_split(&server->records, message_data(req), separator);
    struct queue_put what = {.messages = server->records.at, .n = server->records.n};
    if (fits(server, req, records_longest(&server->records)))
        put(server, req, &what, &way);
}

/* Of a queue that was never put to nobody has got anywhere. */
void http_producer(struct http_request *req, void *ctx)
{
    struct queue_server *server = ctx;
    char name[NAME_LEN_MAX + 1], producer[NAME_LEN_MAX + 1];
    bool known = false;
    if (!server_may_inspect(server, req) || !param_queue(req, name) ||
        !http_param_name(req, "producer", NULL, producer))
        return;
    struct named_queue *q = queues_find(server->queues, name);
    uint64_t mark = q ? named_queue_mark(q, producer, &known) : 0;
    if (q)
        add_queue_id(req, q);
    http_replyf(req, 200, "application/json",
        "{\"queue\":\"%s\",\"producer\":\"%s\",\"mark\":\"%llu\",\"known\":%s}\n", name, producer,
        (unsigned long long)mark, known ? "true" : "false");
}
