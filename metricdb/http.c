/* http: the endpoints of metricdb, which are those of Prometheus' HTTP API. Questions are parsed in the loop's thread and answered
 * by the threads of the pool. */
#include "metricdb/metricdb_server.h"

#include <stdlib.h>

#define FORM_MAX ((size_t)1 << 20) /* bytes of the parameters of a POST */

struct question {
    struct query_job job;     /* first */
    struct http_request *req; /* NULL: the client has disconnected */
    struct metricdb *server;
    struct metric_query *query;
    usec_t deadline; /* monotonic */
    struct metric_answer answer;
};

static void reply(struct http_request *req, struct metric_answer *answer)
{
    enum http_hold held = http_hold(req, answer->body.len);
    if (held != HTTP_HOLD_OK)
        http_refuse_hold(req, held, "ask for fewer series or steps");
    else
        http_reply_buf(req, answer->status, "application/json", &answer->body);
    buf_free(&answer->body);
}

static bool must_stop(void *arg)
{
    struct question *q = arg;
    return atomic_load(&q->job.is_cancelled) || atomic_load(&q->server->is_stopping) ||
           clock_monotonic() > q->deadline;
}

static void run(struct query_job *job)
{
    struct question *q = (struct question *)job;
    const struct metric_source source = sample_store_source(q->server->store);
    metric_query_answer(q->query, &source, q->server->cache, must_stop, q, &q->answer);
}

static void on_done(struct query_job *job)
{
    struct question *q = (struct question *)job;
    stats_add(q->server->timeouts, q->req && q->answer.status == 503);
    stats_add(q->server->reused, q->answer.reused);
    if (q->req)
        reply(q->req, &q->answer);
    buf_free(&q->answer.body);
    metric_query_free(&q->query);
    free(q);
}

static void on_gone(struct http_request *req, void *arg)
{
    struct question *q = arg;
    (void)req;
    q->req = NULL;
    query_pool_cancel(q->server->pool, &q->job);
}

static void ask(
    struct http_request *req, struct metricdb *server, enum metric_query_kind kind, struct bytes label)
{
    struct metric_answer refusal = {0};
    if (!http_take_form(req))
        return;
    struct metric_query *query = metric_query_parse(
        kind, http_query(req), label, clock_wall() / USEC_PER_MSEC, &server->limits, &refusal);
    if (!query) {
        reply(req, &refusal);
        return;
    }
    struct question *q = mem_zalloc(sizeof *q);
    *q = (struct question){.job = {.run = run, .done = on_done},
        .req = req,
        .server = server,
        .query = query,
        .deadline = clock_monotonic() + metric_query_timeout(query) * USEC_PER_MSEC};
    if (query_pool_start(server->pool, &q->job)) {
        http_on_gone(req, on_gone, q);
        http_set_long_poll(req);
        return;
    }
    metric_answer_error(&q->answer, "unavailable", "too many queries wait");
    on_done(&q->job);
}

static void handle_query(struct http_request *req, void *ctx)
{
    ask(req, ctx, METRIC_INSTANT, BYTES_NONE);
}

static void handle_query_range(struct http_request *req, void *ctx)
{
    ask(req, ctx, METRIC_RANGE, BYTES_NONE);
}

static void handle_series(struct http_request *req, void *ctx)
{
    ask(req, ctx, METRIC_SERIES, BYTES_NONE);
}

static void handle_labels(struct http_request *req, void *ctx)
{
    ask(req, ctx, METRIC_LABELS, BYTES_NONE);
}

static void handle_values(struct http_request *req, void *ctx)
{
    const char *label = http_path(req) + strlen("/api/v1/label/");
    ask(req, ctx, METRIC_VALUES, bytes_of(label, (size_t)(strrchr(label, '/') - label)));
}

/* Answers that depend on nothing. Clients such as Grafana choose their requests by the version of Prometheus. */
static void handle_constant(struct http_request *req, void *ctx)
{
    static const char *const data[][2] = {
        {"buildinfo", "{\"version\":\"2.42.0\",\"application\":\"millrace " MILLRACE_VERSION "\"}"},
        {"metadata", "{}"}, {"query_exemplars", "[]"}, {"rules", "{\"groups\":[]}"},
        {"alerts", "{\"alerts\":[]}"}};
    const char *name = strrchr(http_path(req), '/') + 1;
    size_t i = 0;
    (void)ctx;
    if (!http_take_form(req))
        return;
    while (strcmp(data[i][0], name) != 0)
        i++;
    http_replyf(req, 200, "application/json", "{\"status\":\"success\",\"data\":%s}\n", data[i][1]);
}

#define QUESTION(PATH, HANDLER, HELP)                                                                        \
    {                                                                                                        \
        .path = (PATH), .methods = HTTP_GET_ | HTTP_POST_, .flags = HTTP_ROUTE_WHEN_READY,                   \
        .max_body = FORM_MAX, .handler = (HANDLER), .help = (HELP)                                           \
    }

const struct http_route metricdb_routes[] = {
    QUESTION("/api/v1/query", handle_query, "query=&time=&timeout=: the value of an expression at a time"),
    QUESTION("/api/v1/query_range", handle_query_range,
        "query=&start=&end=&step=&timeout=: the values of an expression in a range of times"),
    QUESTION("/api/v1/series", handle_series, "match[]=&start=&end=: the labels of series"),
    QUESTION("/api/v1/labels", handle_labels, "match[]=&start=&end=: the names of labels"),
    QUESTION("/api/v1/label/*/values", handle_values, "match[]=&start=&end=: the values of a label"),
    QUESTION("/api/v1/status/buildinfo", handle_constant, "the version of Prometheus whose API this is"),
    QUESTION("/api/v1/metadata", handle_constant, "empty: the scraper answers with types and help texts"),
    QUESTION("/api/v1/query_exemplars", handle_constant, "empty: exemplars are not stored"),
    QUESTION("/api/v1/rules", handle_constant, "empty: the ruler answers with its rules"),
    QUESTION("/api/v1/alerts", handle_constant, "empty: the ruler answers with its alerts"),
    {.path = NULL},
};
