/* PUT and MPUT. docs/internals/put.md follows a put to its reply. */
#include "simplequeue/server/http_common.h"

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
        queue_loop_arm(&server->loop);
    }
    pending_free(p);
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
    http_problem(req, 413, "too-large", "raise max_message of [simplequeue]",
        "a message of %zu bytes; the limit is %zu", len, server->max_message);
    return false;
}

static bool as_lines(struct queue_server *server, struct http_request *req, struct bytes *messages, size_t *n)
{
    if (!server->lines || messages_as_lines(messages, n))
        return true;
    http_problem(req, 400, "not-a-line", NOT_A_LINE_HINT, NOT_A_LINE);
    return false;
}

static void put(struct queue_server *server, struct http_request *req, struct queue_put *what,
    const char *id_header, http_handler *handler)
{
    char name[NAME_LEN_MAX + 1];
    uint64_t mark = 0, delay;
    if (!param_queue(req, name))
        return;
    const char *fault = put_request_marks(http_query(req), what);
    if (fault) {
        http_problem(req, 400, "bad-parameter", PUT_MARKS_HINT, "%s", fault);
        return;
    }
    if (!http_param_u64(req, "delay", 0, 0, DELAY_MAX, &delay))
        return;
    what->delay = (usec_t)delay * USEC_PER_MSEC;
    if (what->n == 0 && what->producer.len == 0 && message_data(req).len == 0) {
        http_problem(req, 400, "missing-data", NULL, "missing data");
        return;
    }
    struct first_put first = first_put_of(what);
    struct named_queue *q = queues_find(server->queues, name);
    if (!q) {
        await_queue(server, req, name, &first, handler);
        return;
    }
    struct pending *p = pending_new(server, req, q);
    p->verb = id_header;
    enum queue_result r = QUEUE_FULL;
    if (what->n && disk_guard_refuses(server->guard))
        r = QUEUE_NO_SPACE;
    else if (!what->n || !served_queue_puts_wait(q))
        r = named_queue_put(q, what, queue_loop_now(), put_done, p, &mark);
    if (r == QUEUE_OK)
        return;
    if (queue_is_full(r) && overflow_wait(server->overflow, q, &first, req, retry_request, server)) {
        served_of(q)->puts.last->handler = handler;
        pending_free(p);
        return;
    }
    served_queue_count_refused(q, r);
    pending_refuse(p, r, mark);
}

void http_put(struct http_request *req, void *ctx)
{
    struct queue_server *server = ctx;
    struct bytes data = message_data(req);
    struct queue_put what = {.messages = &data, .n = 1};
    if (!as_lines(server, req, &data, &what.n))
        return;
    if (what.n == 0 || data.len == 0)
        http_problem(req, 400, "missing-data", "give ?data= or a body", "missing data");
    else if (fits(server, req, data.len))
        put(server, req, &what, "X-Millrace-Id", http_put);
}

void http_mput(struct http_request *req, void *ctx)
{
    struct queue_server *server = ctx;
    struct bytes separator;
    if (!param_separator(req, server->mput_separator, false, &separator))
        return;
    if (!records_split(&server->records, message_data(req), separator)) {
        http_problem(req, 413, "too-large", "put fewer messages at once", TOO_MANY_MESSAGES);
        return;
    }
    if (!as_lines(server, req, server->records.at, &server->records.n))
        return;
    struct queue_put what = {.messages = server->records.at, .n = server->records.n};
    if (fits(server, req, records_longest(&server->records)))
        put(server, req, &what, NULL, http_mput);
}
