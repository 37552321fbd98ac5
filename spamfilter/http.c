/* http: the endpoints of spamfilter. A request has one URL (url=), or a URL in each line of its body. The answer has a line
 * of JSON for each URL, in order. An error of a line does not affect other lines. */
#include "base/log.h"
#include "spamfilter/mark_line.h"
#include "spamfilter/spamfilter_server.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

#define BODY_MAX ((size_t)1 << 20)
#define LINES_MAX 10000 /* the event loop reads all lines at once */

/* A request in progress. */
struct call {
    struct mark_change change; /* first */
    struct spamfilter *server;
    struct http_request *req; /* NULL: the client has disconnected */
    struct marks *marks;
    enum mark_action action; /* MARK_ACTIONS: a check */
    bool is_single;
    int status;        /* of the last line */
    struct buf errors; /* a byte for each line of an update; URL_OK: the line is in `change` */
    size_t at;         /* next line in `errors` */
    struct buf out;
};

static void append_error(struct call *call, int error)
{
    struct mark_line_error e = mark_line_error(error);
    call->status = e.status;
    buf_printf(&call->out, "{\"status\":%d,\"code\":\"%s\",\"detail\":\"%s\"}\n", e.status, e.code, e.detail);
}

static void append_member(struct buf *out, const char *name, struct bytes text)
{
    buf_printf(out, ",\"%s\":", name);
    buf_append_json(out, text);
}

static void note_shadow(struct spamfilter *server, const struct mark_verdict *v)
{
    stats_add(server->shadowed, 1);
    if (spamfilter_may_log(server))
        log_info("shadow: a link would be marked", LOG_B("match", v->match),
            LOG_B("host", bytes_of(server->form.text.ptr, server->form.host)));
}

static void append_verdict(struct call *call)
{
    struct spamfilter *server = call->server;
    struct mark_verdict v = marks_check(call->marks, &server->form);
    bool is_found = v.match.len > 0, is_marked = is_found && !server->is_shadow;
    stats_add(server->marked, is_marked);
    stats_add(server->exact, v.id > 0);
    stats_add(server->allowed, v.allowed.len > 0);
    buf_append_str(&call->out, is_marked ? "{\"marked\":true" : "{\"marked\":false");
    if (is_found) {
        append_member(&call->out, "match", v.match);
        buf_append_str(&call->out, v.id > 0 ? ",\"exact\":true" : ",\"exact\":false");
    }
    if (v.id > 0)
        buf_printf(&call->out, ",\"id\":%" PRIu64, v.id);
    if (is_found && !is_marked) {
        buf_append_str(&call->out, ",\"shadow\":true");
        note_shadow(server, &v);
    }
    if (v.allowed.len > 0)
        append_member(&call->out, "allowed", v.allowed);
    buf_append_str(&call->out, "}\n");
}

static bool takes_ids(enum mark_action action)
{
    return action == MARK_ADD || action == MARK_REMOVE;
}

/* Answers a check, or adds an update to the change. `error`: of the line, or URL_OK. */
static void take_url(struct call *call, struct bytes url, uint64_t id, int error)
{
    if (call->action < MARK_ACTIONS) {
        if (error == URL_OK)
            error = mark_line_append(
                call->marks, call->action, url, id, &call->server->form, &call->change.lines);
        buf_append_char(&call->errors, (char)error);
        return;
    }
    error = error == URL_OK ? (int)url_normalize(url, &call->server->form) : error;
    stats_add(call->server->checks, 1);
    if (error == URL_OK)
        append_verdict(call);
    else
        append_error(call, error);
}

/* In an add or a removal, a tab and the id may follow the URL; `id` is the id of lines without one. */
static void take_line(struct call *call, struct bytes line, uint64_t id)
{
    int error = URL_OK;
    if (takes_ids(call->action) && !mark_line_cut_id(&line, mark_line_id_max(call->action), &id))
        error = MARK_LINE_BAD_ID;
    else if (bytes_starts_with(line, BYTES_LITERAL("url=")))
        error = MARK_LINE_FORM;
    take_url(call, line, id, error);
}

/* Appends the errors of the lines before the next update. */
static void append_errors(struct call *call)
{
    for (; call->at < call->errors.len && call->errors.ptr[call->at] != URL_OK; call->at++)
        append_error(call, call->errors.ptr[call->at]);
}

static void on_made(struct mark_change *change, const struct mark_update *u, enum mark_result r)
{
    static const char *const made[MARK_ACTIONS] = {"added", "removed", "allowed", "disallowed", "started"};
    struct call *call = (struct call *)change;
    append_errors(call);
    call->at++;
    stats_add(call->server->updates[u->action], r == MARK_DONE);
    int error = mark_line_error_of(r);
    if (error != URL_OK) {
        append_error(call, error);
        return;
    }
    call->status = 200;
    buf_printf(&call->out, "{\"result\":\"%s\"", r == MARK_DONE ? made[u->action] : "repeated");
    append_member(&call->out, u->action == MARK_LOAD ? "file" : "url", u->text);
    if (u->id > 0)
        buf_printf(&call->out, ",\"id\":%" PRIu64, u->id);
    buf_append_str(&call->out, "}\n");
}

static void refuse(struct spamfilter *server, struct http_request *req, enum journal_result r)
{
    const char *failure = mark_store_failure(server->store);
    if (r == JOURNAL_NO_SPACE)
        disk_guard_note_full(server->guard);
    if (req && failure)
        http_problem(
            req, 503, "storage-failed", "restart spamfilter, then repeat the request", "%s", failure);
    else if (req && r == JOURNAL_NO_SPACE)
        http_problem(req, 503, "storage-full", DAEMON_FREE_DISK, "%s", disk_guard_why(server->guard));
    else if (req)
        http_problem(req, 503, "overloaded", "try again", "%s", journal_strerror(r));
}

/* Replies and frees the call. */
static void on_done(struct mark_change *change, enum journal_result r)
{
    struct call *call = (struct call *)change;
    append_errors(call);
    if (r != JOURNAL_OK)
        refuse(call->server, call->req, r);
    else if (call->req && !call->is_single)
        http_reply_buf(call->req, 200, "application/x-ndjson", &call->out);
    else if (call->req)
        http_reply_buf(call->req, call->status,
            call->status == 200 ? "application/json" : "application/problem+json", &call->out);
    buf_free(&call->change.lines);
    buf_free(&call->errors);
    buf_free(&call->out);
    free(call);
}

static void on_gone(struct http_request *req, void *arg)
{
    (void)req;
    ((struct call *)arg)->req = NULL;
}

static void store_change(struct call *call)
{
    http_on_gone(call->req, on_gone, call);
    spamfilter_change(call->server, &call->change);
}

/* Returns the action with the name of the route, or MARK_ACTIONS. */
static enum mark_action action_of(const struct http_request *req)
{
    size_t i = 0;
    while (i < MARK_ACTIONS && strcmp(http_path(req) + 1, mark_actions[i]) != 0)
        i++;
    return (enum mark_action)i;
}

static struct call *new_call(
    struct spamfilter *server, struct http_request *req, enum mark_action action, bool is_single)
{
    struct call *call = mem_zalloc(sizeof *call);
    *call = (struct call){.change = {.made = on_made, .done = on_done},
        .server = server,
        .req = req,
        .marks = mark_store_marks(server->store),
        .action = action,
        .is_single = is_single,
        .status = 200};
    return call;
}

static void load(struct http_request *req, void *ctx)
{
    struct spamfilter *server = ctx;
    char name[NAME_LEN_MAX + 1];
    if (!http_param_name(req, "file", NULL, name))
        return;
    char *path = mark_load_path(&server->marks, name);
    if (mark_store_load(server->store)->state == MARK_LOAD_RUNNING) {
        http_problem(req, 409, "loading", "wait until /stats shows the end of the load", "a load is running");
    } else if (access(path, R_OK) != 0) {
        http_problem(req, 404, "absent", "put the file at this path", "%s: %s", path, strerror(errno));
    } else {
        struct call *call = new_call(server, req, MARK_LOAD, true);
        buf_append_char(&call->errors, URL_OK);
        mark_update_append(&(struct mark_update){MARK_LOAD, 0, bytes_str(name)}, &call->change.lines);
        store_change(call);
    }
    free(path);
}

static void serve_urls(struct http_request *req, void *ctx)
{
    struct spamfilter *server = ctx;
    struct bytes url, line, lines = http_body(req);
    uint64_t id;
    enum mark_action action = action_of(req);
    bool is_single = http_param(req, "url", &url);
    if (is_single == (lines.len > 0)) {
        http_problem(req, 400, is_single ? "two-urls" : "missing-url",
            "give either url=, or a URL in each line of the body", is_single ? "url= and a body" : "no URL");
        return;
    }
    if (bytes_count_lines(lines) > LINES_MAX) {
        http_problem(req, 413, "too-large", "send fewer lines", "more than %d lines", LINES_MAX);
        return;
    }
    if (!http_param_u64(req, "id", 0, 1, mark_line_id_max(action), &id))
        return;
    struct call *call = new_call(server, req, action, is_single);
    if (is_single)
        take_url(call, url, id, URL_OK);
    while (bytes_take_line(&lines, &line))
        take_line(call, bytes_without_line_end(line), id);
    if (call->change.lines.len > 0)
        store_change(call);
    else
        on_done(&call->change, JOURNAL_OK);
}

static void allowed(struct http_request *req, void *ctx)
{
    struct spamfilter *server = ctx;
    struct buf out = {0};
    marks_append_exceptions(mark_store_marks(server->store), &out);
    http_reply_buf(req, 200, NULL, &out);
    buf_free(&out);
}

static void append_load(const struct mark_load *l, struct buf *out)
{
    static const char *const states[] = {"none", "running", "done", "failed"};
    buf_printf(out,
        ",\"load\":{\"state\":\"%s\",\"file\":\"%s\",\"lines\":%" PRIu64 ",\"bad_lines\":%" PRIu64
        ",\"bytes\":%" PRIu64 ",\"file_bytes\":%" PRIu64 ",\"error\":",
        states[l->state], l->name, l->lines, l->bad_lines, l->bytes, l->size);
    buf_append_json(out, bytes_str(l->state == MARK_LOAD_FAILED ? l->error.text : ""));
    buf_append_char(out, '}');
}

void spamfilter_extra_stats(void *ctx, bool json, struct buf *out)
{
    const struct spamfilter *server = ctx;
    if (!server || !json)
        return;
    const struct filter *f = mark_store_marks(server->store)->filter;
    buf_append_str(out, ",\"layer_list\":[");
    for (size_t i = 0, n = filter_stats(f).layers; i < n; i++) {
        struct filter_layer_stats l = filter_layer_stats(f, i);
        buf_printf(out,
            "%s{\"first_id\":%" PRIu64 ",\"elements\":%" PRIu64 ",\"capacity\":%" PRIu64 ",\"bytes\":%" PRIu64
            ",\"false_positive_rate\":%.9f}",
            i > 0 ? "," : "", l.first_id, l.members, l.capacity, l.bytes, l.rate);
    }
    buf_printf(out, "],\"stream_offset\":\"%" PRIu64 "\"", server->stream_offset);
    append_load(mark_store_load(server->store), out);
}

#define URLS_ROUTE(path_, methods_, flags_, params_, help_)                                                  \
    {                                                                                                        \
        .path = (path_), .methods = (methods_), .flags = (flags_) | HTTP_ROUTE_DECODES_BODY,                 \
        .max_body = BODY_MAX, .handler = serve_urls, .params = (params_), .help = (help_)                    \
    }

const struct http_route spamfilter_routes[] = {
    URLS_ROUTE(
        "/check", HTTP_GET_ | HTTP_POST_, 0, "url", "whether url= is marked; POST: each line of the body"),
    URLS_ROUTE("/add", HTTP_POST_, HTTP_ROUTE_WRITES, "url id",
        "mark url=; id= rises with time; or lines URL or URL<TAB>ID in the body"),
    URLS_ROUTE("/remove", HTTP_POST_, HTTP_ROUTE_WRITES, "url id",
        "remove the mark of url= that was added with id=; or lines as for /add"),
    URLS_ROUTE(
        "/allow", HTTP_POST_, HTTP_ROUTE_WRITES, "url", "exempt url= or each line of the body from marks"),
    URLS_ROUTE("/disallow", HTTP_POST_, HTTP_ROUTE_WRITES, "url", "end the exception of url= or each line"),
    HTTP_ROUTE("/load", HTTP_POST_, HTTP_ROUTE_WRITES, load, "file",
        "replace all marks by the lines of a file in the directory `load`; /stats shows the progress"),
    HTTP_ROUTE("/allowed", HTTP_GET_, 0, allowed, "", "the exceptions, one a line"),
    {.path = NULL},
};
