/* http: the endpoints of the ruler. Rules and alerts have the form of Prometheus, silences that of Alertmanager. */
#include "ruler/ruler_server.h"

#include <stdlib.h>

#define SILENCE_MAX ((size_t)64 * 1024)

static void reply_data(
    struct http_request *req, struct ruler *r, void (*print)(const struct rule_book *b, struct buf *out))
{
    struct buf out = {0};
    buf_append_str(&out, "{\"status\":\"success\",\"data\":");
    print(r->book, &out);
    buf_append_str(&out, "}\n");
    http_reply_buf(req, 200, "application/json", &out);
    buf_free(&out);
}

static void on_rules(struct http_request *req, void *ctx)
{
    reply_data(req, ctx, rule_book_print_rules);
}

static void on_alerts(struct http_request *req, void *ctx)
{
    reply_data(req, ctx, rule_book_print_alerts);
}

/* Stores a change of the silences before the reply. */
static void reply_saved(struct http_request *req, struct ruler *r, const char *id)
{
    if (ruler_save(r) != 0)
        http_problem(req, 503, "storage-failed", NULL,
            "the silence is in force, but the state file cannot be written");
    else
        http_replyf(req, 200, "application/json", "{\"silenceID\":\"%s\"}\n", id);
}

static void add_silence(struct http_request *req, struct ruler *r)
{
    struct error error;
    const char *id = NULL;
    struct json_doc *d = json_doc_parse(http_body(req));
    int rc = d ? silences_add(&r->silences, d, ruler_now(r), &id, &error)
               : error_set(&error, -1, "the body is not JSON");
    json_doc_free(&d);
    if (rc == 0)
        reply_saved(req, r, id);
    else
        http_problem(req, 400, "bad-silence", NULL, "%s", error.text);
}

static void remove_silence(struct http_request *req, struct ruler *r)
{
    struct bytes id = BYTES_NONE;
    if (!http_param(req, "id", &id)) {
        http_problem(req, 400, "missing-parameter", NULL, "id is required");
        return;
    }
    char *text = bytes_dup(id);
    if (silences_remove(&r->silences, id))
        reply_saved(req, r, text);
    else
        http_problem(req, 404, "unknown-silence", NULL, "no silence has this id; it may have ended");
    free(text);
}

static void on_silences(struct http_request *req, void *ctx)
{
    struct ruler *r = ctx;
    struct buf out = {0};
    if (http_method(req) == HTTP_GET_) {
        silences_update(&r->silences, ruler_now(r));
        silences_print(&r->silences, &out);
        buf_append_char(&out, '\n');
        http_reply_buf(req, 200, "application/json", &out);
        buf_free(&out);
    } else if (!http_require_local(req)) {
        return;
    } else if (http_method(req) == HTTP_POST_) {
        add_silence(req, r);
    } else {
        remove_silence(req, r);
    }
}

const struct http_route ruler_routes[] = {
    HTTP_ROUTE("/api/v1/rules", HTTP_GET_ | HTTP_POST_, HTTP_ROUTE_LENIENT, on_rules, "",
        "the rules and their alerts, as Prometheus gives them"),
    HTTP_ROUTE("/api/v1/alerts", HTTP_GET_ | HTTP_POST_, HTTP_ROUTE_LENIENT, on_alerts, "",
        "pending and firing alerts, as Prometheus gives them"),
    {.path = "/silences",
        .methods = HTTP_GET_ | HTTP_POST_ | HTTP_DELETE_,
        .max_body = SILENCE_MAX,
        .handler = on_silences,
        .params = "id",
        .help = "GET: the silences; POST: add one, as Alertmanager's; DELETE ?id=: end one"},
    {.path = NULL},
};
