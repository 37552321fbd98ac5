/* Selects the route of a request, and decides whether the client may call it. */
#include "http/server/http_internal.h"
#include "http/server/http_origin.h"
#include "base/suggest.h"

#include <stdio.h>
#include <strings.h>

#define PARAM_NAME_SHOWN_MAX 64 /* maximum bytes of an unknown parameter's name in an error */
#define PATH_SHOWN_MAX 80
#define PARAM_LIST_SHOWN_MAX 256 /* maximum bytes of a route's parameters in an error */

static const struct http_route unknown_row = {.path = "other"};

size_t http_route_max_body(const struct http_request *req)
{
    const struct http_server_config *config = &req->conn->server->config;
    size_t own = req->endpoint->row->max_body ? req->endpoint->row->max_body : config->max_body;
    bool less = req->conn->is_public && config->public_max_body && config->public_max_body < own;
    return less ? config->public_max_body : own;
}

void http_route_init(
    struct http_server *s, const struct http_route *builtin, const struct http_route *preflight)
{
    const struct http_route *tables[] = {s->config.routes, builtin};
    void *contexts[] = {s->config.ctx, s};
    size_t n = 2;
    for (int t = 0; t < 2; t++)
        for (const struct http_route *row = tables[t]; row && row->path; row++)
            n++;
    s->endpoints = mem_zalloc(n * sizeof *s->endpoints);
    for (int t = 0; t < 2; t++)
        for (const struct http_route *row = tables[t]; row && row->path; row++) {
            const char *star = row->path[0] == '/' ? strchr(row->path, '*') : NULL;
            s->endpoints[s->n_endpoints++] = (struct http_endpoint){.row = row,
                .path = bytes_of(row->path, star ? (size_t)(star - row->path) : strlen(row->path)),
                .tail = bytes_str(star ? star + 1 : NULL),
                .ctx = contexts[t]};
        }
    s->unknown = &s->endpoints[s->n_endpoints];
    s->unknown->row = &unknown_row;
    s->preflight = s->unknown + 1;
    *s->preflight = (struct http_endpoint){.row = preflight, .ctx = s};
    for (size_t i = 0; i < n; i++) {
        char labels[128];
        snprintf(labels, sizeof labels, "endpoint=\"%s\"", s->endpoints[i].row->path);
        s->endpoints[i].seconds = stats_histogram(s->config.stats, "request_seconds", labels,
            "Time from a request's first byte to its reply's headers");
    }
}

/* Returns the host of a target "http://host/path", the form that clients send to proxies. Returns BYTES_NONE for a
 * target of the usual form. *rest is the target without scheme and host. */
static struct bytes target_host(const struct http_request *req, struct bytes *rest)
{
    static const struct bytes scheme = BYTES_LITERAL("http://");
    *rest = http_head_target(&req->head);
    if (!bytes_starts_with(*rest, scheme))
        return BYTES_NONE;
    const char *host = rest->ptr + scheme.len;
    size_t left = rest->len - scheme.len, len = 0;
    while (len < left && host[len] != '/' && host[len] != '?')
        len++;
    *rest = bytes_of(host + len, left - len);
    return bytes_of(host, len);
}

/* Compares in a time that does not depend on the token's bytes, so that the time does not reveal the token. */
static bool is_auth_token(const struct http_server *s, struct bytes given)
{
    struct bytes token = bytes_str(s->auth_token);
    if (token.len == 0)
        return false;
    unsigned char differ = given.len != token.len;
    for (size_t i = 0; i < given.len; i++)
        differ |= (unsigned char)(given.ptr[i] ^ token.ptr[i % token.len]);
    return differ == 0;
}

static struct bytes bearer(const struct http_request *req)
{
    struct bytes given = http_header(req, "Authorization"), scheme = BYTES_LITERAL("Bearer ");
    if (given.len < scheme.len || strncasecmp(given.ptr, scheme.ptr, scheme.len) != 0)
        return BYTES_NONE;
    return bytes_of(given.ptr + scheme.len, given.len - scheme.len);
}

/* Accepts any origin on a Unix socket, because browsers cannot open Unix sockets. */
static enum http_refusal judge_origin(const struct http_request *req)
{
    const struct http_server *s = req->conn->server;
    if (!s->allowed_hosts || strcmp(req->conn->peer, "unix") == 0)
        return HTTP_REFUSED_NOT;
    struct bytes rest, host = target_host(req, &rest);
    enum http_refusal refusal =
        host.ptr ? http_origin_judge(host, BYTES_NONE, BYTES_NONE, s->allowed_hosts) : HTTP_REFUSED_NOT;
    /* A link on a page of any origin may lead to an open route, and a frame to a framed one. */
    struct bytes use = http_header(req, "Sec-Fetch-Dest");
    unsigned flags = req->endpoint->row->flags;
    bool is_link = ((flags & HTTP_ROUTE_OPEN) && bytes_equal_str(use, "document")) ||
                   ((flags & HTTP_ROUTE_FRAMED) && bytes_equal_str(use, "iframe"));
    return refusal ? refusal
                   : http_origin_judge(http_header(req, "Host"),
                         is_link ? BYTES_NONE : http_header(req, "Origin"),
                         is_link ? BYTES_NONE : http_header(req, "Sec-Fetch-Site"), s->allowed_hosts);
}

static bool is_public_route(const struct http_request *req)
{
    return req->endpoint->row->flags & HTTP_ROUTE_PUBLIC;
}

/* The origins whose pages may read answers of the route; NULL: only our own. */
static const char *readers_of(const struct http_request *req)
{
    return is_public_route(req) ? "*" : req->conn->server->allowed_origins;
}

/* Caches must know that a reply depends on Origin even if this request has none. On a public route, browsers refuse a `*`:
 * navigator.sendBeacon always sends credentials. */
static void add_cors(struct http_request *req)
{
    const char *readers = readers_of(req);
    if (!readers)
        return;
    struct bytes origin = http_header(req, "Origin");
    bool any = !is_public_route(req) && http_origin_may_read(BYTES_LITERAL("*"), readers);
    if (!any)
        http_add_header_text(req, "Vary", "Origin");
    if (any)
        http_add_header_text(req, "Access-Control-Allow-Origin", "*");
    else if (http_origin_may_read(origin, readers))
        http_add_header(req, "Access-Control-Allow-Origin", "%.*s", (int)origin.len, origin.ptr);
    else
        return;
    if (is_public_route(req))
        http_add_header_text(req, "Access-Control-Allow-Credentials", "true");
    http_add_header_text(req, "Access-Control-Expose-Headers",
        "ETag, Retry-After, X-Millrace-Complete-Until, X-Millrace-Held-By");
}

static enum http_refusal judge_scopes(struct http_request *req, unsigned flags)
{
    unsigned scope = (flags & HTTP_ROUTE_NEEDS_TOKEN) ? HTTP_SCOPE_ADMIN
                     : (flags & HTTP_ROUTE_WRITES)    ? HTTP_SCOPE_WRITE
                                                      : HTTP_SCOPE_READ;
    if (!http_token_admit(req->token, req->conn->server->now))
        return HTTP_REFUSED_TOKEN_RATE;
    if (!http_token_has_scope(req->token, scope))
        return HTTP_REFUSED_SCOPE;
    if (!http_token_may_open(req->token, flags & HTTP_VIEWS))
        return HTTP_REFUSED_VIEW;
    bool shows_keys = scope != HTTP_SCOPE_WRITE && !(flags & HTTP_ROUTE_CHECKS_KEYS);
    return shows_keys && http_token_is_limited(req->token) ? HTTP_REFUSED_KEYS : HTTP_REFUSED_NOT;
}

/* OPTIONS needs no token, because browsers send OPTIONS without a token before a request with a token. */
static enum http_refusal judge_token(struct http_request *req, unsigned flags)
{
    struct http_server *s = req->conn->server;
    struct bytes given = bearer(req);
    if ((flags & HTTP_ROUTE_OPEN) || req->head.method == HTTP_OPTIONS_)
        return HTTP_REFUSED_NOT;
    req->is_admin = is_auth_token(s, given);
    if (req->is_admin)
        return HTTP_REFUSED_NOT;
    req->token = s->tokens ? http_tokens_find(s->tokens, given) : NULL;
    if (!req->token)
        return HTTP_REFUSED_TOKEN;
    req->tokens = http_tokens_ref(s->tokens);
    req->is_admin = http_token_has_scope(req->token, HTTP_SCOPE_ADMIN);
    return judge_scopes(req, flags);
}

static enum http_refusal judge_access(struct http_request *req)
{
    struct http_server *s = req->conn->server;
    unsigned flags = req->endpoint->row->flags;
    if (req->conn->is_public) {
        if (rate_limit_when(&s->public_rate, 1, s->now) > s->now)
            return HTTP_REFUSED_RATE;
        rate_limit_spend(&s->public_rate, 1, s->now);
        return HTTP_REFUSED_NOT;
    }
    enum http_refusal origin = (flags & HTTP_ROUTE_PUBLIC) ? HTTP_REFUSED_NOT : judge_origin(req);
    bool is_read = origin == HTTP_REFUSED_FOREIGN_PAGE &&
                   http_origin_may_read(http_header(req, "Origin"), s->allowed_origins);
    if (origin != HTTP_REFUSED_NOT && !is_read)
        return origin;
    if (s->auth_token || s->tokens)
        return judge_token(req, flags);
    req->is_admin = s->config.allow_admin;
    return (flags & HTTP_ROUTE_NEEDS_TOKEN) && !req->is_admin ? HTTP_REFUSED_FORBIDDEN : HTTP_REFUSED_NOT;
}

bool http_is_admin(const struct http_request *req)
{
    return req->is_admin;
}

const char *http_client_name(const struct http_request *req)
{
    if (req->token)
        return http_token_name(req->token);
    return req->is_admin && req->conn->server->auth_token ? "auth_token_file" : "";
}

void http_print_access(const struct http_request *req, struct buf *out)
{
    if (req->token)
        http_token_print(req->token, out);
    else
        buf_printf(out,
            "{\"token\":\"%s\",\"scopes\":[\"read\",\"write\"%s],\"views\":null,\"has_keys\":false}",
            http_client_name(req), req->is_admin ? ",\"admin\"" : "");
}

bool http_may_see(const struct http_request *req, struct bytes ns, struct bytes key)
{
    return !req->token || http_token_may_see(req->token, ns, key);
}

bool http_may_see_all(const struct http_request *req, unsigned views)
{
    return !req->token || (!http_token_is_limited(req->token) && http_token_may_open(req->token, views));
}

bool http_require_admin(struct http_request *req)
{
    if (http_is_admin(req))
        return true;
    req->refusal = HTTP_REFUSED_FORBIDDEN;
    http_route_refuse(req);
    return false;
}

bool http_require_local(struct http_request *req)
{
    return http_origin_peer_is_local(req->conn->peer) || http_require_admin(req);
}

bool http_require_same_origin(struct http_request *req)
{
    req->refusal = req->conn->is_public ? HTTP_REFUSED_PUBLIC : judge_origin(req);
    if (req->refusal == HTTP_REFUSED_NOT)
        return true;
    http_route_refuse(req);
    return false;
}

bool http_not_ready(const struct http_server *s, struct buf *why)
{
    return s->config.not_ready && s->config.not_ready(s->config.not_ready_arg, why);
}

static bool has_name(const char *names, struct bytes name)
{
    struct bytes one;
    while (bytes_next_word(&names, " ", &one))
        if (bytes_equal(one, name))
            return true;
    return false;
}

/* An unknown parameter in the form that the error shows. */
struct unknown_param {
    char written[PARAM_NAME_SHOWN_MAX + 1], known[PARAM_LIST_SHOWN_MAX];
    const char *nearest; /* nearest name in `known`; NULL: no name is near */
};

static void look_up(struct unknown_param *u, const char *names, struct bytes name)
{
    int len = (int)(name.len < PARAM_NAME_SHOWN_MAX ? name.len : PARAM_NAME_SHOWN_MAX);
    snprintf(u->written, sizeof u->written, "%.*s", len, name.ptr);
    snprintf(u->known, sizeof u->known, "%s", names);
    struct suggest s = suggest_for(u->written);
    for (char *rest = u->known, *one; (one = strsep(&rest, " "));)
        suggest_try(&s, one);
    u->nearest = s.nearest;
}

/* Returns the first parameter that must be refused, or NULL. A lenient route accepts an unknown parameter unless its
 * name is near a known parameter's name. */
static const struct url_param *refused_param(const struct http_request *req)
{
    const struct http_route *row = req->endpoint->row;
    const struct url_param *params = req->query.params;
    bool lenient = row->flags & HTTP_ROUTE_LENIENT, repeats = lenient || row->flags & HTTP_ROUTE_REPEATS;
    for (size_t i = 0; row->params && i < req->query.n; i++) {
        bool refused = false;
        if (!has_name(row->params, params[i].name)) {
            struct unknown_param u;
            if (lenient)
                look_up(&u, row->params, params[i].name);
            refused = !lenient || u.nearest;
        }
        for (size_t before = 0; !repeats && before < i; before++)
            refused = refused || bytes_equal(params[before].name, params[i].name);
        if (refused)
            return &params[i];
    }
    return NULL;
}

/* True if the endpoint has this path, or is public and has it below config.public_path. */
static bool has_path(const struct http_server *s, const struct http_endpoint *e, struct bytes path)
{
    struct bytes prefix = s->public_path, tail = e->tail;
    if (tail.ptr)
        return path.len > e->path.len + tail.len && bytes_starts_with(path, e->path) &&
               bytes_equal(bytes_of(path.ptr + path.len - tail.len, tail.len), tail);
    if (bytes_equal(e->path, path))
        return true;
    return prefix.ptr && (e->row->flags & HTTP_ROUTE_PUBLIC) && bytes_starts_with(path, prefix) &&
           bytes_equal_str(
               bytes_of(path.ptr + prefix.len, path.len - prefix.len), strrchr(e->row->path, '/'));
}

/* Takes the first route with this path and method, or else the first route with this path. A public connection reaches only
 * public routes. A daemon's own route replaces a built-in route with the same path. Returns NULL if there is no route. */
static struct http_endpoint *find_endpoint(struct http_request *req)
{
    const struct http_server *s = req->conn->server;
    unsigned method = req->head.method;
    struct http_endpoint *found = NULL;
    struct bytes path = bytes_of(req->path.ptr, req->path.len - 1);
    path.len -=
        path.len > 1 && path.ptr[path.len - 1] == '/'; /* clients of bitly's sortdb ask for /get/?key= */
    for (struct http_endpoint *e = s->endpoints; e < s->unknown; e++) {
        if (!has_path(s, e, path) || (found && found->ctx != e->ctx) ||
            (req->conn->is_public && !(e->row->flags & HTTP_ROUTE_PUBLIC)))
            continue;
        req->allowed |= e->row->methods;
        if (!found || (!(found->row->methods & method) && (e->row->methods & method)))
            found = e;
    }
    return found;
}

/* Splits the target into the decoded path and the parameters, and selects the route of the request. */
enum http_refusal http_route_judge(struct http_request *req)
{
    const struct http_head *h = &req->head;
    const struct http_server *s = req->conn->server;
    struct bytes path, query = BYTES_NONE;
    bool has_host = target_host(req, &path).ptr;
    const char *mark = memchr(path.ptr, '?', path.len);
    if (mark) {
        size_t at = (size_t)(mark - path.ptr);
        query = bytes_of(mark + 1, path.len - at - 1);
        path.len = at;
    }
    if (has_host && path.len == 0)
        path = BYTES_LITERAL("/");
    if (url_decode(path, &req->path) < 0 || (req->path.len && memchr(req->path.ptr, '\0', req->path.len)))
        return HTTP_REFUSED_PARAMETER;
    buf_append_char(&req->path, '\0');
    if (url_query_parse(query, &req->query) != 0)
        return HTTP_REFUSED_PARAMETER;
    if (!(req->endpoint = find_endpoint(req)))
        return HTTP_REFUSED_UNKNOWN;
    const struct http_route *row = req->endpoint->row;
    add_cors(req);
    if (h->method == HTTP_OPTIONS_ && !(row->methods & HTTP_OPTIONS_) && readers_of(req)) {
        enum http_refusal refusal = judge_access(req);
        req->endpoint = refusal == HTTP_REFUSED_NOT ? s->preflight : req->endpoint;
        return refusal;
    }
    if (!(row->methods & h->method) || (h->is_head && (row->flags & HTTP_ROUTE_NO_HEAD)))
        return HTTP_REFUSED_METHOD;
    if (req->conn->over_limit)
        return HTTP_REFUSED_CONNECTIONS;
    enum http_refusal refusal = judge_access(req);
    if (refusal != HTTP_REFUSED_NOT)
        return refusal;
    if ((row->flags & HTTP_ROUTE_WHEN_READY) && http_not_ready(s, NULL))
        return HTTP_REFUSED_NOT_READY;
    if (refused_param(req))
        return HTTP_REFUSED_UNKNOWN_PARAMETER;
    if (h->coding == HTTP_CODING_OTHER && (row->flags & HTTP_ROUTE_DECODES_BODY))
        return HTTP_REFUSED_CONTENT_ENCODING;
    if (h->content_length > http_route_max_body(req))
        return HTTP_REFUSED_BODY_TOO_LARGE;
    return h->expects_other ? HTTP_REFUSED_EXPECTATION : HTTP_REFUSED_NOT;
}

static const struct refusal {
    int status;
    const char *code, *detail, *hint;
} refusals[] = {
    [HTTP_REFUSED_MALFORMED] = {400, "bad-request", "the request is not well-formed HTTP/1.1", NULL},
    [HTTP_REFUSED_NO_HOST] = {400, "bad-request", "an HTTP/1.1 request needs a Host header", NULL},
    [HTTP_REFUSED_TARGET_TOO_LONG] = {414, "too-large", "the request target is too long",
        "send fewer or shorter values in each request"},
    [HTTP_REFUSED_HEADERS_TOO_LARGE] = {431, "too-large", "the headers are too large", NULL},
    [HTTP_REFUSED_BODY_TOO_LARGE] = {413, "too-large", "the body is too large", NULL},
    [HTTP_REFUSED_ENCODING] = {400, "bad-request",
        "the only supported Transfer-Encoding is chunked, in HTTP/1.1", NULL},
    [HTTP_REFUSED_EXPECTATION] = {417, "bad-request", "the only supported Expect is 100-continue", NULL},
    [HTTP_REFUSED_CONTENT_ENCODING] = {415, "unsupported-encoding",
        "the endpoint does not accept this Content-Encoding",
        "compress the body with gzip or zstd, or send it uncompressed"},
    [HTTP_REFUSED_DAMAGED_BODY] = {400, "bad-encoding", "the body is not valid in its Content-Encoding",
        "check the body with gzip -t or zstd -t"},
    [HTTP_REFUSED_PARAMETER] = {400, "bad-parameter",
        "the target has an invalid %-escape or too many parameters", "write a percent sign as %25"},
    [HTTP_REFUSED_UNKNOWN] = {404, "not-found", "no such endpoint", "GET / lists the endpoints"},
    [HTTP_REFUSED_METHOD] = {405, "method-not-allowed", "the endpoint does not support this method", NULL},
    [HTTP_REFUSED_TOKEN] = {401, "unauthorized", "a token is required",
        "send Authorization: Bearer with the token of --auth-token-file or a token of --tokens-file"},
    [HTTP_REFUSED_SCOPE] = {403, "forbidden", "the token does not have the scope of this request",
        "add read, write or admin to the token's line in --tokens-file"},
    [HTTP_REFUSED_KEYS] = {403, "forbidden",
        "the token may see only some keys, and this endpoint shows others",
        "see keys= in the token's line in --tokens-file"},
    [HTTP_REFUSED_VIEW] = {403, "forbidden",
        "the token may open only some views, and this endpoint is not part of them",
        "see views= in the token's line in --tokens-file"},
    [HTTP_REFUSED_TOKEN_RATE] = {429, "too-many-requests",
        "the token has more requests per second than its rate allows",
        "try again; see rate= in the token's line in --tokens-file"},
    [HTTP_REFUSED_OVERLOADED] = {503, "overloaded",
        "requests and replies of all clients exceed --max-buffered",
        "retry; read replies faster, or raise --max-buffered"},
    [HTTP_REFUSED_CONNECTIONS] = {503, "overloaded", "too many connections",
        "close connections, or raise max_connections and the limit of open files, which `millrace doctor` "
        "shows"},
    [HTTP_REFUSED_FOREIGN_HOST] = {403, "foreign-host",
        "the Host header is not an address or name of this daemon",
        "use an address or a name without a dot, or add the name to --allowed-hosts"},
    [HTTP_REFUSED_FOREIGN_PAGE] = {403, "foreign-origin", "a web page of another origin sent this request",
        "add the page's host to --allowed-hosts if you trust all of its pages"},
    [HTTP_REFUSED_PUBLIC] = {403, "forbidden",
        "the public port does not accept the parameters queue, producer and mark",
        "send such requests to the daemon's own port"},
    [HTTP_REFUSED_RATE] = {429, "too-many-requests",
        "the public port receives more requests than --public-rate allows",
        "try again, or put more events into one request"},
    [HTTP_REFUSED_FORBIDDEN] = {403, "forbidden", "this operation is restricted",
        "start the daemon with --auth-token-file or --allow-exit"},
};

void http_route_add_allow(struct http_request *req)
{
    http_route_add_methods(req, "Allow");
}

static void print_methods(const struct http_request *req, struct buf *out)
{
    static const char *const names[] = {"GET, HEAD", "POST", "PUT", "DELETE", "OPTIONS"};
    bool no_head = req->endpoint->row->flags & HTTP_ROUTE_NO_HEAD;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (req->allowed & (1u << i))
            buf_printf(out, "%s%s", out->len ? ", " : "", i == 0 && no_head ? "GET" : names[i]);
}

void http_route_add_methods(struct http_request *req, const char *header)
{
    struct buf list = {0};
    print_methods(req, &list);
    http_add_header(req, header, "%.*s", (int)list.len, list.ptr);
    buf_free(&list);
}

static void refuse_method(struct http_request *req)
{
    const struct refusal *r = &refusals[HTTP_REFUSED_METHOD];
    struct buf list = {0};
    char hint[64];
    print_methods(req, &list);
    snprintf(hint, sizeof hint, "its methods: %.*s", (int)list.len, list.ptr);
    http_add_header(req, "Allow", "%.*s", (int)list.len, list.ptr);
    http_problem(req, r->status, r->code, hint, "%s", r->detail);
    buf_free(&list);
}

static void refuse_param(struct http_request *req)
{
    struct bytes name = refused_param(req)->name;
    const char *path = req->endpoint->row->path, *names = req->endpoint->row->params;
    char hint[PARAM_LIST_SHOWN_MAX + 32];
    struct unknown_param u;
    look_up(&u, names, name);
    if (has_name(names, name)) {
        http_problem(req, 400, "bad-parameter", NULL, "parameter %s is given more than once", u.written);
        return;
    }
    if (u.nearest)
        snprintf(hint, sizeof hint, "did you mean %s?", u.nearest);
    else
        snprintf(hint, sizeof hint, "its parameters: %s", *names ? names : "none");
    http_problem(req, 400, "unknown-parameter", hint, "%s has no parameter \"%s\"", path, u.written);
}

/* Returns the path of an endpoint that is nearest to the request's path, or NULL. For example, /series may mean
 * /v1/series, but /put does not mean /get. */
static const char *nearest_path(const struct http_request *req)
{
    const struct http_server *s = req->conn->server;
    const char *written = req->path.ptr, *nearest;
    struct suggest near = suggest_for(written);
    for (size_t i = 0; i < s->n_endpoints; i++)
        if (s->endpoints[i].row->help)
            suggest_try(&near, s->endpoints[i].row->path);
    nearest = 2 * near.distance < strlen(written) ? near.nearest : NULL;
    for (size_t i = 0; i < s->n_endpoints && !nearest; i++) {
        const char *path = s->endpoints[i].row->path;
        size_t len = strlen(path), end = strlen(written); /* /series is the end of /v1/series */
        if (s->endpoints[i].row->help && len > end && strcmp(path + len - end, written) == 0)
            nearest = path;
    }
    return nearest;
}

/* On the public port, the reply contains no hint, because this port does not show the list of endpoints. */
static void refuse_path(struct http_request *req)
{
    char hint[PATH_SHOWN_MAX + 64];
    const char *nearest = nearest_path(req);
    const struct refusal *r = &refusals[HTTP_REFUSED_UNKNOWN];
    if (nearest)
        snprintf(hint, sizeof hint, "did you mean %.*s? %s", PATH_SHOWN_MAX, nearest, r->hint);
    bool is_public = req->conn->is_public;
    http_problem(req, r->status, r->code, is_public ? NULL : nearest ? hint : r->hint, "%s", r->detail);
}

bool http_refuse_not_ready(struct http_request *req)
{
    struct buf why = {0};
    bool is = http_not_ready(req->conn->server, &why);
    if (is)
        http_problem(req, 503, "not-ready", NULL, "%.*s", (int)why.len, why.ptr);
    buf_free(&why);
    return is;
}

void http_route_refuse(struct http_request *req)
{
    enum http_refusal why = req->refusal;
    if (why == HTTP_REFUSED_NOT_READY) {
        http_refuse_not_ready(req);
        return;
    }
    if (why == HTTP_REFUSED_UNKNOWN_PARAMETER) {
        refuse_param(req);
        return;
    }
    if (why == HTTP_REFUSED_UNKNOWN) {
        refuse_path(req);
        return;
    }
    if (why == HTTP_REFUSED_METHOD) {
        refuse_method(req);
        return;
    }
    if ((why == HTTP_REFUSED_OVERLOADED || why == HTTP_REFUSED_CONNECTIONS) &&
        req->endpoint->row->on_overload && req->endpoint->row->on_overload(req, req->endpoint->ctx))
        return;
    if (why == HTTP_REFUSED_CONTENT_ENCODING)
        http_add_header(req, "Accept-Encoding", "gzip, zstd, identity");
    if (why == HTTP_REFUSED_TOKEN)
        http_add_header(req, "WWW-Authenticate", "Bearer");
    http_problem(
        req, refusals[why].status, refusals[why].code, refusals[why].hint, "%s", refusals[why].detail);
}

void http_refuse_hold(struct http_request *req, enum http_hold why, const char *hint)
{
    if (why == HTTP_HOLD_TOO_LARGE) {
        http_problem(req, 413, "answer-too-large", hint,
            "the answer needs more than half of --max-buffered (%zu bytes)",
            req->conn->server->config.max_buffered);
        return;
    }
    req->refusal = HTTP_REFUSED_OVERLOADED;
    http_route_refuse(req);
}
