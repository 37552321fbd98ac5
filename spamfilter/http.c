/* http: the endpoints of spamfilter. A request has one URL (url=), or a URL in each line of its body. The answer has a line
 * of JSON for each URL, in order. An error of a line does not affect other lines. */
#include "base/log.h"
#include "spamfilter/spamfilter_server.h"

#include <inttypes.h>
#include <stdlib.h>

#define BODY_MAX ((size_t)1 << 20) /* the event loop reads the whole body at once */
#define LINES_TYPE "application/x-ndjson"

/* Errors of a line: an enum url_error, or one of these. */
enum { LINE_BAD_ID = URL_PORT + 1, LINE_NO_ID, LINE_ABSENT, LINE_FULL };

static const struct {
    int status;
    const char *code, *detail;
} line_errors[] = {
    [LINE_BAD_ID] = {400, "bad-id", "the id is not a number from 1 to 9007199254740991"},
    [LINE_NO_ID] = {409, "id-required", "the exact table does not have this mark; give the id of its add"},
    [LINE_ABSENT] = {404, "absent", "this mark with this id, or this exception, does not exist"},
    [LINE_FULL] = {409, "full", "the exceptions have 8 MiB; remove exceptions first"},
};

/* Appends the error as a line, and returns its status. */
static int append_error(struct buf *out, int error)
{
    bool is_url = error < LINE_BAD_ID;
    int status = is_url ? 400 : line_errors[error].status;
    buf_printf(out, "{\"status\":%d,\"code\":\"%s\",\"detail\":\"%s\"}\n", status,
        is_url ? "bad-url" : line_errors[error].code,
        is_url ? url_strerror((enum url_error)error) : line_errors[error].detail);
    return status;
}

static void reply_lines(struct http_request *req, bool is_single, int status, struct buf *out)
{
    const char *type = status == 200 ? "application/json" : "application/problem+json";
    http_reply_buf(req, is_single ? status : 200, is_single ? type : LINES_TYPE, out);
}

/* Takes the next line without its line end. */
static bool next_line(struct bytes *text, struct bytes *line)
{
    if (text->len == 0)
        return false;
    const char *end = memchr(text->ptr, '\n', text->len);
    size_t len = end ? (size_t)(end - text->ptr) + 1 : text->len;
    *line = bytes_without_line_end(bytes_of(text->ptr, len));
    *text = bytes_of(text->ptr + len, text->len - len);
    return true;
}

/* Stores url=, or the body, and returns the marks. Replies with the error and returns NULL if the marks are not open yet, or
 * the request has no URL. */
static struct marks *begin_request(
    struct spamfilter *server, struct http_request *req, struct bytes *urls, bool *is_single)
{
    struct marks *m = mark_store_marks(server->store);
    *is_single = http_param(req, "url", urls);
    if (!*is_single)
        *urls = http_body(req);
    if (!m)
        http_problem(req, 503, "not-ready", "try again", "opening the marks");
    else if (!*is_single && urls->len == 0)
        http_problem(req, 400, "missing-url", "give url=, or a URL in each line of the body", "no URL");
    else
        return m;
    return NULL;
}

static void append_member(struct buf *out, const char *name, struct bytes text)
{
    buf_printf(out, ",\"%s\":", name);
    buf_append_json(out, text);
}

static void note_shadow(struct spamfilter *server, const struct mark_verdict *v)
{
    usec_t now = clock_monotonic();
    stats_add(server->shadowed, 1);
    if (rate_limit_when(&server->log_limit, 1, now) > now)
        return;
    rate_limit_spend(&server->log_limit, 1, now);
    log_info("shadow: a link would be marked", LOG_B("match", v->match),
        LOG_B("link", buf_bytes(&server->form.text)));
}

/* Appends the verdict on a URL, and returns the status. */
static int check_url(struct spamfilter *server, const struct marks *m, struct bytes url, struct buf *out)
{
    enum url_error error = url_normalize(url, &server->form);
    stats_add(server->checks, 1);
    if (error != URL_OK)
        return append_error(out, error);
    struct mark_verdict v = marks_check(m, &server->form);
    bool is_found = v.match.len > 0, is_marked = is_found && !server->is_shadow;
    stats_add(server->marked, is_marked);
    stats_add(server->exact, v.is_exact);
    stats_add(server->allowed, v.allowed.len > 0);
    buf_append_str(out, is_marked ? "{\"marked\":true" : "{\"marked\":false");
    if (is_found) {
        append_member(out, "match", v.match);
        buf_append_str(out, v.is_exact ? ",\"exact\":true" : ",\"exact\":false");
    }
    if (is_found && !is_marked) {
        buf_append_str(out, ",\"shadow\":true");
        note_shadow(server, &v);
    }
    if (v.allowed.len > 0)
        append_member(out, "allowed", v.allowed);
    buf_append_str(out, "}\n");
    return 200;
}

static void check(struct http_request *req, void *ctx)
{
    struct spamfilter *server = ctx;
    struct bytes urls, url;
    struct buf out = {0};
    bool is_single;
    int status = 200;
    const struct marks *m = begin_request(server, req, &urls, &is_single);
    if (!m)
        return;
    if (is_single)
        status = check_url(server, m, urls, &out);
    else
        while (next_line(&urls, &url))
            check_url(server, m, url, &out);
    reply_lines(req, is_single, status, &out);
    buf_free(&out);
}

/* A request that updates marks. */
struct update_call {
    struct mark_change change; /* first */
    struct spamfilter *server;
    struct http_request *req; /* NULL: the client has disconnected */
    enum mark_action action;
    bool is_single;
    int status;        /* of the last line */
    struct buf errors; /* a byte for each line; URL_OK: the line is an update of `change` */
    size_t at;         /* next line in `errors` */
    struct buf out;
};

static void free_call(struct update_call *call)
{
    buf_free(&call->change.lines);
    buf_free(&call->errors);
    buf_free(&call->out);
    free(call);
}

/* Appends the errors of the lines before the next update. */
static void append_errors(struct update_call *call)
{
    for (; call->at < call->errors.len && call->errors.ptr[call->at] != URL_OK; call->at++)
        call->status = append_error(&call->out, call->errors.ptr[call->at]);
}

static void on_made(struct mark_change *change, const struct mark_update *u, enum mark_result r)
{
    static const char *const made[MARK_ACTIONS] = {"added", "removed", "allowed", "disallowed"};
    struct update_call *call = (struct update_call *)change;
    append_errors(call);
    call->at++;
    stats_add(call->server->updates[u->action], r == MARK_DONE);
    if (r == MARK_ABSENT) {
        call->status = append_error(&call->out, LINE_ABSENT);
        return;
    }
    call->status = 200;
    buf_printf(&call->out, "{\"result\":\"%s\"", r == MARK_DONE ? made[u->action] : "repeated");
    append_member(&call->out, "mark", u->text);
    if (u->id > 0)
        buf_printf(&call->out, ",\"id\":%" PRIu64, u->id);
    buf_append_str(&call->out, "}\n");
}

static void refuse(struct spamfilter *server, struct http_request *req, enum journal_result r)
{
    const char *failure = mark_store_failure(server->store);
    if (r == JOURNAL_NO_SPACE)
        disk_guard_note_full(server->guard);
    if (failure)
        daemon_set_storage_failed(server->daemon, failure);
    if (req && failure)
        http_problem(
            req, 503, "storage-failed", "restart spamfilter, then repeat the request", "%s", failure);
    else if (req && r == JOURNAL_NO_SPACE)
        http_problem(req, 503, "storage-full", DAEMON_FREE_DISK, "%s", disk_guard_why(server->guard));
    else if (req)
        http_problem(req, 503, "overloaded", "try again", "%s", journal_strerror(r));
}

static void on_done(struct mark_change *change, enum journal_result r)
{
    struct update_call *call = (struct update_call *)change;
    append_errors(call);
    if (r != JOURNAL_OK)
        refuse(call->server, call->req, r);
    else if (call->req)
        reply_lines(call->req, call->is_single, call->status, &call->out);
    free_call(call);
}

static void on_gone(struct http_request *req, void *arg)
{
    (void)req;
    ((struct update_call *)arg)->req = NULL;
}

/* Cuts off and stores the id after the last tab of a line. *id stays 0 without an id. */
static bool take_id(struct bytes *line, uint64_t *id)
{
    size_t tab = line->len;
    while (tab > 0 && line->ptr[tab - 1] != '\t')
        tab--;
    if (tab == 0)
        return true;
    struct bytes text = bytes_of(line->ptr + tab, line->len - tab);
    line->len = tab - 1;
    return bytes_to_u64(text, id) && *id > 0 && *id <= MARK_ID_MAX;
}

/* Appends the update of a URL to the change. Returns URL_OK, or the error of the line. */
static int append_update(struct update_call *call, struct marks *m, struct bytes url, uint64_t id)
{
    struct url_form *form = &call->server->form;
    struct bytes parents[URL_PARENTS_MAX];
    enum url_error error = url_normalize(url, form);
    if (error != URL_OK)
        return error;
    url_parents(form, parents);
    if (call->action == MARK_ADD && id == 0)
        id = marks_new_id(m, (uint64_t)clock_wall());
    if (call->action == MARK_REMOVE && id == 0 && (id = marks_recent_id(m, parents[0])) == 0)
        return LINE_NO_ID;
    if (call->action == MARK_ALLOW && m->exceptions.bytes >= MARKS_EXCEPTIONS_MAX)
        return LINE_FULL;
    mark_update_append(&(struct mark_update){call->action, id, parents[0]}, &call->change.lines);
    return URL_OK;
}

static void append_updates(struct update_call *call, struct marks *m, struct bytes urls)
{
    struct bytes line;
    bool has_ids = call->action == MARK_ADD || call->action == MARK_REMOVE;
    while (next_line(&urls, &line)) {
        uint64_t id = 0;
        bool is_good = !has_ids || take_id(&line, &id);
        buf_append_char(&call->errors, (char)(is_good ? append_update(call, m, line, id) : LINE_BAD_ID));
    }
}

static void update(struct http_request *req, struct spamfilter *server, enum mark_action action)
{
    struct bytes urls;
    bool is_single;
    uint64_t id = 0;
    struct marks *m = begin_request(server, req, &urls, &is_single);
    if (!m || !http_param_u64(req, "id", 0, 1, MARK_ID_MAX, &id))
        return;
    struct update_call *call = mem_zalloc(sizeof *call);
    *call = (struct update_call){.change = {.made = on_made, .done = on_done},
        .server = server,
        .req = req,
        .action = action,
        .is_single = is_single};
    if (is_single)
        buf_append_char(&call->errors, (char)append_update(call, m, urls, id));
    else
        append_updates(call, m, urls);
    enum journal_result r = JOURNAL_OK;
    if (call->change.lines.len == 0) {
        on_done(&call->change, r);
        return;
    }
    http_on_gone(req, on_gone, call);
    r = disk_guard_refuses(server->guard) ? JOURNAL_NO_SPACE
                                          : mark_store_change(server->store, &call->change, clock_wall());
    if (r != JOURNAL_OK)
        on_done(&call->change, r);
}

static void add(struct http_request *req, void *ctx)
{
    update(req, ctx, MARK_ADD);
}

static void remove_mark(struct http_request *req, void *ctx)
{
    update(req, ctx, MARK_REMOVE);
}

static void allow(struct http_request *req, void *ctx)
{
    struct spamfilter *server = ctx;
    update(req, server, http_method(req) == HTTP_POST_ ? MARK_ALLOW : MARK_DISALLOW);
}

static void allowed(struct http_request *req, void *ctx)
{
    struct spamfilter *server = ctx;
    const struct marks *m = mark_store_marks(server->store);
    struct buf out = {0};
    if (m)
        marks_append_exceptions(m, &out);
    http_reply_buf(req, 200, NULL, &out);
    buf_free(&out);
}

void spamfilter_extra_stats(void *ctx, bool json, struct buf *out)
{
    const struct spamfilter *server = ctx;
    const struct marks *m = server ? mark_store_marks(server->store) : NULL;
    if (!m || !json)
        return;
    buf_append_str(out, ",\"layer_list\":[");
    for (size_t i = 0; i < filter_stats(m->filter).layers; i++) {
        struct filter_layer_stats l = filter_layer_stats(m->filter, i);
        buf_printf(out,
            "%s{\"first_id\":%" PRIu64 ",\"elements\":%" PRIu64 ",\"capacity\":%" PRIu64 ",\"bytes\":%" PRIu64
            ",\"false_positive_rate\":%.9f}",
            i > 0 ? "," : "", l.first_id, l.members, l.capacity, l.bytes, l.rate);
    }
    buf_append_char(out, ']');
}

#define LINES_ROUTE(path_, methods_, flags_, handler_, params_, help_)                                       \
    {                                                                                                        \
        .path = (path_), .methods = (methods_), .flags = (flags_) | HTTP_ROUTE_DECODES_BODY,                 \
        .max_body = BODY_MAX, .handler = (handler_), .params = (params_), .help = (help_)                    \
    }

const struct http_route spamfilter_routes[] = {
    LINES_ROUTE("/check", HTTP_GET_ | HTTP_POST_, 0, check, "url",
        "whether url= is marked; POST: each line of the body"),
    LINES_ROUTE("/add", HTTP_POST_, HTTP_ROUTE_WRITES, add, "url id",
        "mark url=; id= rises with time; or lines URL or URL<TAB>ID in the body"),
    LINES_ROUTE("/remove", HTTP_POST_, HTTP_ROUTE_WRITES, remove_mark, "url id",
        "remove the mark of url= that was added with id=; or lines as for /add"),
    LINES_ROUTE("/allow", HTTP_POST_ | HTTP_DELETE_, HTTP_ROUTE_WRITES, allow, "url",
        "exempt url= or each line of the body from marks; DELETE ends exceptions"),
    HTTP_ROUTE("/allowed", HTTP_GET_, 0, allowed, "", "the exceptions, one a line"),
    {.path = NULL},
};
