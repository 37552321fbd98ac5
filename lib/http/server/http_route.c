/* Which row of the table answers, and who may ask. */
#include "http/server/http_internal.h"
#include "http/server/http_origin.h"
#include "base/log.h"
#include "base/suggest.h"

#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

#define LOGGED_TARGET_MAX 1000   /* bytes of it in a line of the log */
#define PARAM_NAME_SHOWN_MAX 64  /* bytes of a parameter's name in a refusal */
#define PARAM_LIST_SHOWN_MAX 256 /* of all that a row has */

static const struct http_route unknown_row = {.path = "other"};

static void add_rows(struct http_server *s, const struct http_route *rows, void *ctx)
{
    for (; rows && rows->path; rows++) {
        struct http_endpoint *e = &s->endpoints[s->n_endpoints++];
        *e = (struct http_endpoint){.row = rows, .path_len = strlen(rows->path), .ctx = ctx};
    }
}

static size_t count_rows(const struct http_route *rows)
{
    size_t n = 0;
    while (rows && rows[n].path)
        n++;
    return n;
}

static void label(const struct http_endpoint *e, struct buf *out)
{
    buf_printf(out, "endpoint=\"%s\"", e->row->path);
}

static void add_histogram(struct http_server *s, struct http_endpoint *e)
{
    struct buf labels = {0};
    label(e, &labels);
    buf_append_char(&labels, '\0');
    e->seconds = stats_histogram(
        s->config.stats, "request_seconds", labels.ptr, "From a request's first byte to its reply's headers");
    buf_free(&labels);
}

static struct stats_counter *counter_of(struct http_server *s, struct http_endpoint *e, int status)
{
    size_t slot = status > 0 && status < 600 ? (size_t)status : 0;
    if (!e->by_status[slot]) {
        struct buf labels = {0};
        label(e, &labels);
        buf_printf(&labels, ",status=\"%d\"", status);
        buf_append_char(&labels, '\0');
        e->by_status[slot] =
            stats_counter(s->config.stats, "requests_total", labels.ptr, "Replies, by status");
        buf_free(&labels);
    }
    return e->by_status[slot];
}

/* What enable_logging promises. What could not be parsed has no method and no target. */
static void log_request(const struct http_request *req, int status, usec_t now)
{
    struct bytes target = http_request_target(req);
    size_t method = req->target > 0 ? req->target - 1 : 0;
    if (target.len > LOGGED_TARGET_MAX)
        target.len = LOGGED_TARGET_MAX;
    log_debug("request", LOG_B("method", bytes_of(req->text.ptr, method)), LOG_B("target", target),
        LOG_U("body_bytes", req->body_bytes), LOG_U("status", (uint64_t)status),
        LOG_F("ms", (double)(now - req->began) / 1000));
}

void http_route_count(struct http_request *req, int status, usec_t now)
{
    if (log_wants(LOG_LEVEL_DEBUG))
        log_request(req, status, now);
    struct http_server *s = req->conn->server;
    struct http_endpoint *e = req->endpoint ? req->endpoint : s->unknown;
    stats_observe(e->seconds, now - req->began);
    stats_add(counter_of(s, e, status), 1);
}

size_t http_route_max_body(const struct http_request *req)
{
    size_t own = req->endpoint->row->max_body;
    return own ? own : req->conn->server->config.max_body;
}

/* FNV-1a. */
static size_t path_hash(struct bytes path)
{
    uint32_t h = 2166136261u;
    for (size_t i = 0; i < path.len; i++)
        h = (h ^ (unsigned char)path.ptr[i]) * 16777619u;
    return h ^ (h >> 16);
}

static bool has_path(const struct http_endpoint *e, struct bytes path)
{
    return path.len == e->path_len && memcmp(path.ptr, e->row->path, e->path_len) == 0;
}

/* The first row of the path that is none of a prefix, or where it belongs. */
static struct http_endpoint **slot_of(struct http_server *s, struct bytes path)
{
    size_t at = path_hash(path) & s->slots_mask;
    while (s->slots[at] && !has_path(s->slots[at], path))
        at = (at + 1) & s->slots_mask;
    return &s->slots[at];
}

/* Rows of one path are chained, each for other methods. A daemon's own come first and are not mixed with built-in ones,
 * whose ctx is another. */
static void chain_row(struct http_endpoint **at, struct http_endpoint *e)
{
    while (*at && (*at)->ctx == e->ctx)
        at = &(*at)->same_path;
    if (!*at)
        *at = e;
}

static struct http_endpoint **prefix_slot(struct http_server *s, const struct http_endpoint *e)
{
    struct http_endpoint **at = &s->prefixes;
    while (*at && !has_path(*at, bytes_of(e->row->path, e->path_len)))
        at = &(*at)->next_prefix;
    return at;
}

static void index_rows(struct http_server *s)
{
    size_t n = 8;
    while (n < 4 * s->n_endpoints)
        n *= 2;
    s->slots = mem_zalloc(n * sizeof *s->slots);
    s->slots_mask = n - 1;
    for (struct http_endpoint *e = s->endpoints; e < s->endpoints + s->n_endpoints; e++) {
        bool prefix = e->row->flags & HTTP_ROUTE_PREFIX;
        chain_row(prefix ? prefix_slot(s, e) : slot_of(s, bytes_of(e->row->path, e->path_len)), e);
    }
}

void http_route_init(struct http_server *s)
{
    size_t n = count_rows(s->config.routes) + count_rows(http_builtin_routes) + 1;
    s->endpoints = mem_zalloc(n * sizeof *s->endpoints);
    add_rows(s, s->config.routes, s->config.ctx);
    add_rows(s, http_builtin_routes, s);
    s->unknown = &s->endpoints[s->n_endpoints];
    *s->unknown = (struct http_endpoint){.row = &unknown_row};
    for (size_t i = 0; i < n; i++)
        add_histogram(s, &s->endpoints[i]);
    index_rows(s);
}

void http_route_free(struct http_server *s)
{
    free(s->endpoints);
    free(s->slots);
}

/* The row of the longest prefix. */
static struct http_endpoint *find_prefix(struct http_server *s, struct bytes path)
{
    struct http_endpoint *best = NULL;
    for (struct http_endpoint *e = s->prefixes; e; e = e->next_prefix)
        if (bytes_starts_with(path, bytes_of(e->row->path, e->path_len)) &&
            (!best || e->path_len > best->path_len))
            best = e;
    return best;
}

/* The row for the path; of several rows for one path the one that has the method. */
static struct http_endpoint *find_row(struct http_server *s, struct bytes path, struct http_request *req)
{
    struct http_endpoint *first = *slot_of(s, path), *found = NULL;
    if (!first)
        first = find_prefix(s, path);
    for (struct http_endpoint *e = first; e; e = e->same_path) {
        req->allowed |= e->row->methods;
        if (!found && (e->row->methods & req->method))
            found = e;
    }
    return found ? found : first;
}

/* "http://host/path", as proxies send it, means "/path". */
static struct bytes without_authority(struct bytes target)
{
    if (!bytes_starts_with(target, BYTES_LITERAL("http://")))
        return target;
    const char *slash = memchr(target.ptr + 7, '/', target.len - 7);
    return slash ? bytes_of(slash, target.len - (size_t)(slash - target.ptr)) : BYTES_LITERAL("/");
}

static bool split_target(struct http_request *req)
{
    struct bytes path = without_authority(http_request_target(req)), query = BYTES_NONE;
    const char *mark = memchr(path.ptr, '?', path.len);
    if (mark) {
        size_t at = (size_t)(mark - path.ptr);
        query = bytes_of(mark + 1, path.len - at - 1);
        path.len = at;
    }
    if (url_decode(path, &req->path) < 0 || (req->path.len && memchr(req->path.ptr, '\0', req->path.len)))
        return false;
    buf_append_char(&req->path, '\0');
    return url_query_parse(query, &req->query) == 0;
}

/* Takes as long for a wrong byte early as for one late. */
static bool equal_in_constant_time(struct bytes a, struct bytes b)
{
    unsigned char differ = a.len != b.len;
    for (size_t i = 0; i < a.len; i++)
        differ |= (unsigned char)(a.ptr[i] ^ b.ptr[b.len ? i % b.len : 0]);
    return differ == 0;
}

static bool has_token(const struct http_request *req)
{
    struct bytes given = http_header(req, "Authorization"), scheme = BYTES_LITERAL("Bearer ");
    struct bytes token = bytes_str(req->conn->server->auth_token);
    if (given.len < scheme.len || strncasecmp(given.ptr, scheme.ptr, scheme.len) != 0 || token.len == 0)
        return false;
    return equal_in_constant_time(bytes_of(given.ptr + scheme.len, given.len - scheme.len), token);
}

/* A browser does not reach a Unix socket. */
static enum http_refusal judge_origin(const struct http_request *req)
{
    const struct http_server *s = req->conn->server;
    if (!s->allowed_hosts || strcmp(req->conn->peer, "unix") == 0)
        return HTTP_REFUSED_NOT;
    switch (http_origin_judge(http_header(req, "Host"), http_header(req, "Origin"),
        http_header(req, "Sec-Fetch-Site"), s->allowed_hosts)) {
    case HTTP_ORIGIN_FOREIGN_HOST:
        return HTTP_REFUSED_FOREIGN_HOST;
    case HTTP_ORIGIN_FOREIGN_PAGE:
        return HTTP_REFUSED_FOREIGN_PAGE;
    default:
        return HTTP_REFUSED_NOT;
    }
}

/* Browsers ask OPTIONS before they show a token, so it goes without one. */
static enum http_refusal judge_access(const struct http_request *req)
{
    const struct http_server *s = req->conn->server;
    unsigned flags = req->endpoint->row->flags;
    if (s->auth_token) {
        bool open = (flags & HTTP_ROUTE_OPEN) || req->method == HTTP_OPTIONS_;
        return open || has_token(req) ? HTTP_REFUSED_NOT : HTTP_REFUSED_TOKEN;
    }
    return (flags & HTTP_ROUTE_NEEDS_TOKEN) && !s->config.allow_admin ? HTTP_REFUSED_FORBIDDEN
                                                                      : HTTP_REFUSED_NOT;
}

/* With a token the route has asked for it already. */
bool http_require_admin(struct http_request *req)
{
    const struct http_server *s = req->conn->server;
    if (s->auth_token || s->config.allow_admin)
        return true;
    req->refusal = HTTP_REFUSED_FORBIDDEN;
    http_route_refuse(req);
    return false;
}

bool http_require_same_origin(struct http_request *req)
{
    enum http_refusal refusal = judge_origin(req);
    if (refusal == HTTP_REFUSED_NOT)
        return true;
    req->refusal = refusal;
    http_route_refuse(req);
    return false;
}

static const char *why_not_ready(const struct http_server *s)
{
    return s->config.not_ready ? s->config.not_ready(s->config.not_ready_arg) : NULL;
}

static bool has_name(const char *names, struct bytes name)
{
    struct bytes one;
    while (bytes_next_word(&names, " ", &one))
        if (bytes_equal(one, name))
            return true;
    return false;
}

static bool is_doubled(const struct url_query *q, size_t i)
{
    for (size_t before = 0; before < i; before++)
        if (bytes_equal(q->params[before].name, q->params[i].name))
            return true;
    return false;
}

/* A name that the row does not have: as it is shown, and which of the row's may have been meant. */
struct stranger {
    char written[PARAM_NAME_SHOWN_MAX + 1], known[PARAM_LIST_SHOWN_MAX];
    const char *meant; /* in `known`; NULL: none is near */
};

static void look_at(struct stranger *s, const char *names, struct bytes name)
{
    int len = (int)(name.len < PARAM_NAME_SHOWN_MAX ? name.len : PARAM_NAME_SHOWN_MAX);
    snprintf(s->written, sizeof s->written, "%.*s", len, name.ptr);
    snprintf(s->known, sizeof s->known, "%s", names);
    struct suggest spelling = suggest_for(s->written);
    for (char *rest = s->known, *one; (one = strsep(&rest, " "));)
        suggest_try(&spelling, one);
    s->meant = spelling.nearest;
}

static bool is_slip(const char *names, struct bytes name)
{
    struct stranger s;
    look_at(&s, names, name);
    return s.meant != NULL;
}

static bool is_strange(const struct http_request *req, size_t i)
{
    const struct http_route *row = req->endpoint->row;
    struct bytes name = req->query.params[i].name;
    bool lenient = row->flags & HTTP_ROUTE_LENIENT;
    if (has_name(row->params, name))
        return !lenient && is_doubled(&req->query, i);
    return !lenient || is_slip(row->params, name);
}

/* The first that is refused. NULL: none. */
static const struct url_param *strange_param(const struct http_request *req)
{
    for (size_t i = 0; req->endpoint->row->params && i < req->query.n; i++)
        if (is_strange(req, i))
            return &req->query.params[i];
    return NULL;
}

static bool takes_method(const struct http_request *req)
{
    const struct http_route *row = req->endpoint->row;
    return (row->methods & req->method) && !(req->is_head && (row->flags & HTTP_ROUTE_NO_HEAD));
}

static enum http_refusal judge_line(struct http_request *req)
{
    if (!split_target(req))
        return HTTP_REFUSED_PARAMETER;
    req->endpoint = find_row(req->conn->server, bytes_of(req->path.ptr, req->path.len - 1), req);
    if (!req->endpoint)
        return HTTP_REFUSED_UNKNOWN;
    return takes_method(req) ? HTTP_REFUSED_NOT : HTTP_REFUSED_METHOD;
}

/* A line that is known again has its row, and was not refused. */
static enum http_refusal judge(struct http_request *req)
{
    bool known = req->known_endpoint != NULL;
    req->endpoint = req->known_endpoint;
    enum http_refusal refusal = known ? HTTP_REFUSED_NOT : judge_line(req);
    if (refusal == HTTP_REFUSED_NOT && req->conn->over_limit)
        refusal = HTTP_REFUSED_CONNECTIONS;
    if (refusal == HTTP_REFUSED_NOT)
        refusal = (req->endpoint->row->flags & HTTP_ROUTE_PUBLIC) ? HTTP_REFUSED_NOT : judge_origin(req);
    if (refusal == HTTP_REFUSED_NOT)
        refusal = judge_access(req);
    if (refusal == HTTP_REFUSED_NOT && (req->endpoint->row->flags & HTTP_ROUTE_WHEN_READY) &&
        why_not_ready(req->conn->server))
        refusal = HTTP_REFUSED_NOT_READY;
    bool strange = refusal == HTTP_REFUSED_NOT && !known && strange_param(req);
    return strange ? HTTP_REFUSED_UNKNOWN_PARAMETER : refusal;
}

void http_route_find(struct http_request *req)
{
    req->refusal = judge(req);
}

static const struct {
    int status;
    const char *code, *detail, *hint;
} refusals[] = {
    [HTTP_REFUSED_MALFORMED] = {400, "bad-request", "the request is not well-formed HTTP/1.1", NULL},
    [HTTP_REFUSED_NO_HOST] = {400, "bad-request", "an HTTP/1.1 request has a Host header", NULL},
    [HTTP_REFUSED_TARGET_TOO_LONG] = {414, "too-large", "the request target is too long",
        "send long values in the body"},
    [HTTP_REFUSED_HEADERS_TOO_LARGE] = {431, "too-large", "the headers are too large", NULL},
    [HTTP_REFUSED_BODY_TOO_LARGE] = {413, "too-large", "the body is too large", NULL},
    [HTTP_REFUSED_ENCODING] = {400, "bad-request", "the only Transfer-Encoding taken is chunked, in HTTP/1.1",
        NULL},
    [HTTP_REFUSED_EXPECTATION] = {417, "bad-request", "the only Expect taken is 100-continue", NULL},
    [HTTP_REFUSED_CONTENT_ENCODING] = {415, "unsupported-encoding",
        "the endpoint takes bodies with no Content-Encoding but identity", "send the body uncompressed"},
    [HTTP_REFUSED_PARAMETER] = {400, "bad-parameter", "a bad %-escape, or too many parameters, in the target",
        "write a percent sign as %25"},
    [HTTP_REFUSED_UNKNOWN] = {404, "not-found", "no such endpoint", "GET / lists the endpoints"},
    [HTTP_REFUSED_METHOD] = {405, "method-not-allowed", "the endpoint does not take this method", NULL},
    [HTTP_REFUSED_TOKEN] = {401, "unauthorized", "a token is required",
        "send Authorization: Bearer with the token of --auth-token-file"},
    [HTTP_REFUSED_OVERLOADED] = {503, "overloaded",
        "requests and replies of other clients use up --max-buffered",
        "try again; take replies faster, or raise --max-buffered"},
    [HTTP_REFUSED_CONNECTIONS] = {503, "overloaded", "too many connections",
        "try again; raise --max-connections"},
    [HTTP_REFUSED_FOREIGN_HOST] = {403, "foreign-host", "the Host header names none of this daemon's hosts",
        "use an address or a name without a dot, or add the name to --allowed-hosts"},
    [HTTP_REFUSED_FOREIGN_PAGE] = {403, "foreign-origin", "a web page of another origin sent this request",
        "add the page's host to --allowed-hosts if you trust all of its pages"},
    [HTTP_REFUSED_FORBIDDEN] = {403, "forbidden", "this act is not open to everyone",
        "start the daemon with --allow-exit or with --auth-token-file"},
};

void http_route_add_allow(struct http_request *req)
{
    static const char *const names[] = {"GET, HEAD", "POST", "PUT", "DELETE", "OPTIONS"};
    struct buf list = {0};
    bool no_head = req->endpoint->row->flags & HTTP_ROUTE_NO_HEAD;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (req->allowed & (1u << i))
            buf_printf(&list, "%s%s", list.len ? ", " : "", i == 0 && no_head ? "GET" : names[i]);
    }
    http_add_header(req, "Allow", "%.*s", (int)list.len, list.ptr);
    buf_free(&list);
}

static void refuse_strange(struct http_request *req)
{
    struct bytes name = strange_param(req)->name;
    const char *path = req->endpoint->row->path, *names = req->endpoint->row->params;
    char hint[PARAM_LIST_SHOWN_MAX + 32];
    struct stranger s;
    look_at(&s, names, name);
    if (has_name(names, name)) {
        http_problem(req, 400, "bad-parameter", NULL, "%s is there more than once", s.written);
        return;
    }
    if (s.meant)
        snprintf(hint, sizeof hint, "did you mean %s?", s.meant);
    else
        snprintf(hint, sizeof hint, "its parameters: %s", *names ? names : "none");
    http_problem(req, 400, "unknown-parameter", hint, "%s has no parameter \"%s\"", path, s.written);
}

void http_route_refuse(struct http_request *req)
{
    enum http_refusal why = req->refusal;
    if (why == HTTP_REFUSED_NOT_READY) {
        http_problem(req, 503, "not-ready", NULL, "%s", why_not_ready(req->conn->server));
        return;
    }
    if (why == HTTP_REFUSED_UNKNOWN_PARAMETER) {
        refuse_strange(req);
        return;
    }
    if ((why == HTTP_REFUSED_OVERLOADED || why == HTTP_REFUSED_CONNECTIONS) && http_wants_events(req)) {
        http_come_back(req);
        return;
    }
    if (why == HTTP_REFUSED_METHOD)
        http_route_add_allow(req);
    if (why == HTTP_REFUSED_CONTENT_ENCODING)
        http_add_header(req, "Accept-Encoding", "identity");
    if (why == HTTP_REFUSED_TOKEN)
        http_add_header(req, "WWW-Authenticate", "Bearer");
    http_problem(
        req, refusals[why].status, refusals[why].code, refusals[why].hint, "%s", refusals[why].detail);
}
