/* http: the endpoints of lists. */
#include "lists/edge_lines.h"
#include "lists/lists_server.h"

#include <inttypes.h>
#include <stdlib.h>

#define EDGES_MAX_BODY ((size_t)1 << 20)
#define EDGES_LINES_MAX 10000
#define REPLY_MAX ((size_t)4 << 20) /* bytes, after which a page ends; the last item may exceed it */
#define PAGE_MAX 1000
#define TOO_LARGE_HINT "send fewer keys, or a smaller item"

/* A request in progress that changes lists. */
struct call {
    struct lists_change change; /* first */
    struct lists_server *server;
    struct http_request *req; /* NULL: the client has disconnected */
    const char *result;
    struct bytes id; /* of the request; BYTES_NONE: no item */
    usec_t time;     /* of an added item; -1: none */
    uint64_t lines;  /* of a request without an item */
};

static void refuse(struct lists_server *server, struct http_request *req, enum journal_result r)
{
    const char *failure = lists_failure(server->lists);
    if (failure)
        http_problem(req, 503, "storage-failed", "restart lists, then repeat the request", "%s", failure);
    else if (r == JOURNAL_TOO_LARGE)
        http_problem(req, 413, "too-large", TOO_LARGE_HINT, "%s", journal_strerror(r));
    else if (r == JOURNAL_NO_SPACE)
        http_problem(req, 503, "storage-full", DAEMON_FREE_DISK, "%s", disk_guard_why(server->guard));
    else
        http_problem(req, 503, "overloaded", "try again", "%s", journal_strerror(r));
}

static void reply_done(struct call *call)
{
    struct buf out = {0};
    buf_printf(&out, "{\"result\":\"%s\"", call->result);
    if (call->id.len > 0) {
        buf_append_str(&out, ",\"id\":");
        buf_append_json(&out, call->id);
    } else {
        buf_printf(&out, ",\"edges\":%" PRIu64, call->lines);
    }
    if (call->time >= 0) {
        buf_append_str(&out, ",\"time\":");
        lists_append_time(&out, call->time);
    }
    buf_append_str(&out, "}\n");
    http_reply_buf(call->req, 200, "application/json", &out);
    buf_free(&out);
}

/* Replies and frees the call. */
static void on_done(struct lists_change *change, enum journal_result r)
{
    struct call *call = (struct call *)change;
    if (call->req && r == JOURNAL_OK)
        reply_done(call);
    else if (call->req)
        refuse(call->server, call->req, r);
    buf_free(&call->change.ops);
    free(call);
}

static void on_gone(struct http_request *req, void *arg)
{
    (void)req;
    ((struct call *)arg)->req = NULL;
}

/* Changes the lists by the operations, whose memory the call takes. */
static void change(struct http_request *req, struct call values, struct buf *ops)
{
    struct call *call = mem_alloc(sizeof *call);
    *call = values;
    call->req = req;
    call->change = (struct lists_change){.ops = *ops, .done = on_done};
    *ops = (struct buf){0};
    http_on_gone(req, on_gone, call);
    lists_server_change(call->server, &call->change);
}

#define NOT_A_NAME "is not UTF-8 of 1 to %d bytes"

/* Gets a required parameter. Replies 400 and returns false if it is not a name. */
static bool take_name(struct http_request *req, const char *name, struct bytes *out)
{
    if (!http_param(req, name, out) || out->len == 0)
        http_problem(req, 400, "missing-parameter", NULL, "the parameter %s is missing", name);
    else if (!list_name_is_valid(*out))
        http_problem(req, 400, "bad-parameter", NULL, "%s " NOT_A_NAME, name, LIST_NAME_MAX);
    else
        return true;
    return false;
}

/* Appends all values of key= to `names`. Replies 400 and returns false if one is not a name. */
static bool take_keys(struct http_request *req, struct buf *names)
{
    const struct url_query *q = http_query(req);
    for (size_t i = 0; i < q->n; i++) {
        struct bytes key = q->params[i].value;
        if (!bytes_equal_str(q->params[i].name, "key"))
            continue;
        if (!list_name_is_valid(key)) {
            http_problem(req, 400, "bad-parameter", NULL, "a key= " NOT_A_NAME, LIST_NAME_MAX);
            return false;
        }
        list_name_append(names, key);
    }
    return true;
}

/* Gets time=, Unix seconds. Replies 400 and returns false if it is not valid. */
static bool take_time(struct lists_server *server, struct http_request *req, usec_t *out)
{
    struct bytes text;
    if (!http_param(req, "time", &text)) {
        *out = lists_stamp(server->lists, clock_wall());
        return true;
    }
    if (bytes_to_usec(text, out) && *out >= 0 && *out <= LIST_TIME_MAX)
        return true;
    http_problem(req, 400, "bad-time", "give Unix seconds, such as 1700000000.25", "time= is not a time");
    return false;
}

/* Gets the data of an item: data=, or the body. */
static bool take_data(struct http_request *req, struct bytes *out)
{
    struct bytes body = http_body(req);
    bool has_data = http_param(req, "data", out);
    if (!has_data)
        *out = body;
    if (has_data && body.len > 0)
        http_problem(
            req, 400, "two-items", "give the item either in data= or as the body", "data= and a body");
    else
        return true;
    return false;
}

/* Appends the operation, or replies 400 with its error. */
static bool append_op(struct http_request *req, const struct list_op *op, struct buf *ops)
{
    const char *why = list_op_error(op);
    if (why)
        http_problem(req, 400, "bad-request", NULL, "%s", why);
    else
        list_op_append(ops, op);
    return !why;
}

static void add(struct http_request *req, void *ctx)
{
    struct lists_server *server = ctx;
    struct list_op op = {.type = LIST_ADD};
    struct bytes author;
    struct buf names = {0}, ops = {0};
    bool is_valid = take_name(req, "id", &op.id) && take_keys(req, &names);
    if (is_valid && http_param(req, "author", &author) == (names.len > 0)) {
        http_problem(req, 400, names.len > 0 ? "two-targets" : "missing-parameter",
            "give key= for each list, or author= for the lists of all followers",
            names.len > 0 ? "key= and author=" : "no key= and no author=");
        is_valid = false;
    }
    if (is_valid && names.len == 0) {
        op.type = LIST_ADD_BY_AUTHOR;
        is_valid = take_name(req, "author", &author);
        if (is_valid)
            list_name_append(&names, author);
    }
    op.names = buf_bytes(&names);
    if (is_valid && take_data(req, &op.data) && take_time(server, req, &op.time) && append_op(req, &op, &ops))
        change(req, (struct call){.server = server, .result = "added", .id = op.id, .time = op.time}, &ops);
    buf_free(&names);
    buf_free(&ops);
}

static void remove_item(struct http_request *req, void *ctx)
{
    struct lists_server *server = ctx;
    struct list_op op = {0};
    struct buf names = {0}, ops = {0};
    if (take_name(req, "id", &op.id) && take_keys(req, &names)) {
        op.type = names.len > 0 ? LIST_REMOVE_FROM : LIST_REMOVE;
        op.names = buf_bytes(&names);
        if (append_op(req, &op, &ops))
            change(req, (struct call){.server = server, .result = "removed", .id = op.id, .time = -1}, &ops);
    }
    buf_free(&names);
    buf_free(&ops);
}

/* Adds or removes the edges in the lines of the body: all of them, or none if a line is not valid. */
static void edges(struct http_request *req, void *ctx)
{
    struct bytes lines = http_body(req), line;
    struct edge_lines e = {0};
    struct buf ops = {0};
    const char *why = lines.len == 0 ? "the body is empty" : NULL;
    uint64_t n = 0;
    bool removes;
    if (!http_param_bool(req, "remove", false, &removes))
        return;
    e.type = removes ? LIST_UNFOLLOW : LIST_FOLLOW;
    bool is_large = bytes_count_lines(lines) > EDGES_LINES_MAX;
    while (!why && !is_large && bytes_take_line(&lines, &line)) {
        n++;
        why = edge_lines_take(&e, line, &ops);
    }
    edge_lines_end(&e, &ops);
    if (is_large)
        http_problem(req, 413, "too-large", "send fewer lines", "more than %d lines", EDGES_LINES_MAX);
    else if (why)
        http_problem(req, 400, "bad-line", "a line is FOLLOWER<TAB>AUTHOR; no line was used",
            "line %" PRIu64 ": %s", n, why);
    else
        change(req,
            (struct call){.server = ctx, .result = removes ? "removed" : "added", .time = -1, .lines = n},
            &ops);
    edge_lines_free(&e);
    buf_free(&ops);
}

/* A page in progress. */
struct page {
    struct buf out;
    uint64_t limit, n;
    bool is_text, is_cut; /* is_cut: another page follows */
    usec_t time;          /* of the last item */
    struct buf last;      /* the last id or name, then the `before` or `after` of the next page */
};

static bool is_full(struct page *page)
{
    page->is_cut = page->is_cut || page->n == page->limit || page->out.len >= REPLY_MAX;
    return page->is_cut;
}

static void begin_element(struct page *page)
{
    if (page->n++ > 0 && !page->is_text)
        buf_append_char(&page->out, ',');
}

/* Gets format=. Replies 400 and returns false if it is unknown. */
static bool take_format(struct http_request *req, bool *is_text)
{
    struct bytes format = BYTES_LITERAL("json");
    (void)http_param(req, "format", &format);
    *is_text = bytes_equal_str(format, "text");
    if (*is_text || bytes_equal_str(format, "json"))
        return true;
    http_problem(req, 400, "bad-format", NULL, "format= is neither json nor text");
    return false;
}

/* Replies with the page, and frees it. */
static void reply_page(
    struct http_request *req, struct page *page, enum lists_result r, const struct error *error)
{
    if (r != LISTS_OK) {
        http_problem(req, 503, "storage-failed", DAEMON_REPAIR_DISK, "%s", error->text);
    } else if (page->is_text) {
        http_reply_buf(req, 200, NULL, &page->out);
    } else {
        buf_append_str(&page->out, "],\"next\":");
        if (page->is_cut)
            buf_append_json(&page->out, buf_bytes(&page->last));
        else
            buf_append_str(&page->out, "null");
        buf_append_str(&page->out, "}\n");
        http_reply_buf(req, 200, "application/json", &page->out);
    }
    buf_free(&page->out);
    buf_free(&page->last);
}

static void append_item(const struct lists_shown *item, void *arg)
{
    struct page *page = arg;
    struct buf *out = &page->out;
    if (is_full(page))
        return;
    begin_element(page);
    page->time = item->time;
    buf_clear(&page->last);
    buf_append_bytes(&page->last, item->id);
    if (page->is_text) {
        lists_append_time(out, item->time);
        buf_append_char(out, '\t');
        buf_append_printable(out, item->id);
        buf_append_char(out, '\t');
        buf_append_printable(out, item->data);
        buf_append_char(out, '\n');
        return;
    }
    buf_append_str(out, "{\"id\":");
    buf_append_json(out, item->id);
    buf_append_str(out, ",\"time\":");
    lists_append_time(out, item->time);
    buf_append_str(out, ",\"data\":");
    buf_append_json(out, item->data);
    buf_append_char(out, '}');
}

/* Gets before=, TIME or TIME:ID. Replies 400 and returns false if it is not a place. */
static bool take_place(struct http_request *req, struct lists_place *place, bool *has_place)
{
    struct bytes text;
    *has_place = http_param(req, "before", &text);
    if (!*has_place)
        return true;
    const char *colon = memchr(text.ptr, ':', text.len);
    struct bytes time = bytes_of(text.ptr, colon ? (size_t)(colon - text.ptr) : text.len);
    place->id = colon ? bytes_of(colon + 1, text.len - time.len - 1) : bytes_of("", 0);
    if (bytes_to_usec(time, &place->time) && place->time >= 0 && place->id.len <= LIST_NAME_MAX)
        return true;
    http_problem(
        req, 400, "bad-place", "give the `next` of an answer, or Unix seconds", "before= is not a place");
    return false;
}

static void get(struct http_request *req, void *ctx)
{
    struct lists_server *server = ctx;
    struct page page = {0};
    struct lists_place place = {0};
    struct bytes key;
    struct error error;
    bool has_place;
    if (!take_name(req, "key", &key) || !http_param_u64(req, "limit", 100, 1, LISTS_KEEP_MAX, &page.limit) ||
        !take_place(req, &place, &has_place) || !take_format(req, &page.is_text))
        return;
    if (!page.is_text) {
        buf_append_str(&page.out, "{\"key\":");
        buf_append_json(&page.out, key);
        buf_append_str(&page.out, ",\"items\":[");
    }
    enum lists_result r =
        lists_get(server->lists, key, page.limit + 1, has_place ? &place : NULL, append_item, &page, &error);
    if (page.is_cut) {
        struct buf next = {0};
        lists_append_time(&next, page.time);
        buf_append_char(&next, ':');
        buf_append_bytes(&next, buf_bytes(&page.last));
        buf_free(&page.last);
        page.last = next;
    }
    stats_add(server->reads, 1);
    stats_add(server->shown, page.n);
    reply_page(req, &page, r, &error);
}

static void append_name(struct bytes name, void *arg)
{
    struct page *page = arg;
    if (is_full(page))
        return;
    begin_element(page);
    buf_clear(&page->last);
    buf_append_bytes(&page->last, name);
    if (page->is_text) {
        buf_append_printable(&page->out, name);
        buf_append_char(&page->out, '\n');
    } else {
        buf_append_json(&page->out, name);
    }
}

/* Replies with the followers of an author, or all keys (NULL), after after=. */
static void reply_names(struct http_request *req, struct lists_server *server, const struct bytes *author)
{
    struct page page = {0};
    struct bytes after = bytes_of("", 0);
    struct error error;
    enum lists_result r;
    if (!http_param_u64(req, "limit", PAGE_MAX, 1, PAGE_MAX, &page.limit) || !take_format(req, &page.is_text))
        return;
    (void)http_param(req, "after", &after);
    if (author && !page.is_text) {
        buf_append_str(&page.out, "{\"author\":");
        buf_append_json(&page.out, *author);
        buf_append_str(&page.out, ",\"followers\":[");
    } else if (!page.is_text)
        buf_append_str(&page.out, "{\"keys\":[");
    if (author)
        r = lists_followers(server->lists, *author, after, page.limit + 1, append_name, &page, &error);
    else
        r = lists_keys(server->lists, after, page.limit + 1, append_name, &page, &error);
    reply_page(req, &page, r, &error);
}

static void followers(struct http_request *req, void *ctx)
{
    struct bytes author;
    if (take_name(req, "author", &author))
        reply_names(req, ctx, &author);
}

static void keys(struct http_request *req, void *ctx)
{
    reply_names(req, ctx, NULL);
}

const struct http_route lists_routes[] = {
    {.path = "/add",
        .methods = HTTP_GET_ | HTTP_POST_,
        .flags = HTTP_ROUTE_WRITES | HTTP_ROUTE_REPEATS | HTTP_ROUTE_NO_HEAD | HTTP_ROUTE_DECODES_BODY,
        .max_body = LIST_DATA_MAX,
        .handler = add,
        .params = "id key author time data",
        .help = "add the item id= to the lists of key=, or of the followers of author=; its data is data= or "
                "the body"},
    HTTP_ROUTE("/remove", HTTP_POST_, HTTP_ROUTE_WRITES | HTTP_ROUTE_REPEATS, remove_item, "id key",
        "remove the item id= from the lists of key=, or from all lists"),
    HTTP_ROUTE("/get", HTTP_GET_, 0, get, "key limit before format",
        "the latest items of key=; before=: those after the `next` of an answer; format=json|text"),
    {.path = "/edges",
        .methods = HTTP_POST_,
        .flags = HTTP_ROUTE_WRITES | HTTP_ROUTE_DECODES_BODY,
        .max_body = EDGES_MAX_BODY,
        .handler = edges,
        .params = "remove",
        .help = "add the edges FOLLOWER<TAB>AUTHOR in the lines of the body; remove=1: remove them"},
    HTTP_ROUTE("/followers", HTTP_GET_, 0, followers, "author limit after format",
        "the saved followers of author=, in byte order; after=: those after the `next` of an answer"),
    HTTP_ROUTE("/keys", HTTP_GET_, 0, keys, "limit after format",
        "the keys with a saved list, in byte order; after=: those after the `next` of an answer"),
    {.path = NULL},
};
