/* http_server: HTTP/1.1 on libevent, for daemons with one event loop.
 *
 * The server owns its connections and calls a handler once a request is complete. The handler replies at once or later.
 * A `struct http_request *` is valid until the reply is complete (http_reply*, http_problem*, http_stream_end) or the
 * client is gone. A handler that replies later therefore sets a callback with http_on_gone, which drops the pointer.
 *
 * 1. Replies are sent in the order of their requests. A connection has at most one request in a handler, and its
 *    pipelined requests wait unparsed.
 * 2. The memory of a request is limited to max_body bytes of body (the route's limit), HTTP_HEADERS_MAX bytes of
 *    headers and a small buffer. A larger request gets 413, 431 or 414, and the server closes the connection.
 * 3. A request with ambiguous framing gets 400, and the server closes the connection (http_parse.h).
 * 4. The server closes a connection if a head takes longer than header_timeout, a body pauses for body_timeout, or the
 *    client accepts no byte of a reply for write_timeout.
 * 5. HEAD works like GET, without the body of the reply. A method that the route does not support gets 405 with Allow.
 * 6. For Expect: 100-continue, the server replies 100, unless it refuses the request because of the headers.
 * 7. A connection above max_connections or above the limit on descriptors gets 503 with Retry-After, and is closed. A
 *    quarter of RLIMIT_NOFILE, at most 256, is reserved for the daemon's own files.
 * 8. For all clients together, the server holds at most max_buffered bytes of requests and replies, plus one reply.
 *    Above max_buffered, the server closes the largest stalled connections. Requests get 503 `overloaded`, except
 *    requests to built-in endpoints.
 * 9. A reply to an HTTP/1.0 client is never chunked, so a stream ends with the connection.
 * 10. The metrics count the replies of each route, and measure the time until a reply's headers.
 * 11. A client that shuts down only its sending side still gets its replies. After http_set_long_poll, such a client
 *     counts as gone, because a long poll may last forever.
 * 12. The server runs in the loop's thread and never blocks. Reply functions never call a handler or callback. Several
 *     servers may share routes, statistics and limits, each with its own thread and event base (daemon/workers.h). The
 *     program must ignore SIGPIPE.
 * 13. If allowed_origins is set, or the route is public, the server answers OPTIONS itself and adds the headers of
 *     CORS. A public route admits every origin, with credentials and with any headers.
 *
 * Built-in endpoints: /ping (OK), /health (200 "ready", or 503 with the reason), /stats (?format=json; ?reset=1 for bitly's
 * clients), /metrics, / (the list of endpoints) and OPTIONS *. */
#ifndef MILLRACE_HTTP_SERVER_H
#define MILLRACE_HTTP_SERVER_H

#include "base/bytes.h"
#include "base/clock.h"
#include "base/stats.h"
#include "base/url.h"
#include "http/server/http_tokens.h"

struct event_base;
struct evbuffer;
struct http_server;
struct http_request;

#define HTTP_HEADERS_MAX (64 * 1024)
#define HTTP_TARGET_MAX (48 * 1024) /* a longer request target gets status 414 */

enum http_method { HTTP_GET_ = 1, HTTP_POST_ = 2, HTTP_PUT_ = 4, HTTP_DELETE_ = 8, HTTP_OPTIONS_ = 16 };

typedef void http_handler(struct http_request *req, void *ctx);

#define HTTP_ROUTE_NEEDS_TOKEN 1   /* requires the token or allow_admin: stops, deletes or resets */
#define HTTP_ROUTE_WHEN_READY 2    /* replies 503 with the reason until the daemon is ready */
#define HTTP_ROUTE_LENIENT 4       /* ignores an unknown parameter unless its name resembles a known name */
#define HTTP_ROUTE_NO_HEAD 8       /* GET has side effects, so HEAD gets 405 */
#define HTTP_ROUTE_DECODES_BODY 16 /* decompresses gzip and zstd; replies 415 to another Content-Encoding */
#define HTTP_ROUTE_PUBLIC 32       /* open to web pages of any origin (allowed_hosts) */
#define HTTP_ROUTE_WRITES 64       /* requires the scope `write`; other routes require `read` or `admin` */
#define HTTP_ROUTE_CHECKS_KEYS                                                                               \
    128                     /* open to tokens with a list of keys, because its replies obey http_may_see */
#define HTTP_ROUTE_OPEN 256 /* never requires the token */
#define HTTP_ROUTE_FRAMED                                                                                    \
    512 /* pages of any origin may show it in a frame; its reply names the permitted ones */
#define HTTP_ROUTE_REPEATS 1024 /* a parameter may be given several times: http_query has all */
/* A flag HTTP_VIEW_... (http_tokens.h) opens the route to tokens whose list of views contains this view. Tokens with such a
 * list cannot call a route without these flags. */

struct http_route {
    const char *path; /* a `*` stands for one or more characters; put routes without a `*` before it */
    unsigned methods; /* of enum http_method */
    unsigned flags;
    size_t max_body; /* limit on the body (bytes); 0: the server's max_body */
    http_handler *handler;
    /* Called before a 503 `overloaded`; true: on_overload has sent a reply, so the server sends none. May be NULL. */
    bool (*on_overload)(struct http_request *req, void *ctx);
    const char *help;   /* one line for the list of endpoints */
    const char *params; /* allowed parameters, separated by spaces; NULL: any */
};
/* Initializes a row with the usual members. */
#define HTTP_ROUTE(path_, methods_, flags_, handler_, params_, help_)                                        \
    {                                                                                                        \
        .path = (path_), .methods = (methods_), .flags = (flags_), .handler = (handler_),                    \
        .params = (params_), .help = (help_)                                                                 \
    }

/* A request that has ended. The texts in http_ended are valid during on_end. */
struct http_ended {
    const char *peer;
    const char *token;         /* name of the request's token; NULL: none, or auth_token */
    struct bytes method, path; /* as received, without parameters; empty for a malformed request */
    int status;                /* 0: the client was gone before the reply */
    bool is_cut;               /* the client was gone before the end of the reply */
    uint64_t bytes;            /* bytes of the reply that were produced, with headers */
    usec_t usec;               /* time since the first byte of the request */
};

struct http_server_config {
    struct event_base *base;
    struct stats *stats;
    void *ctx;                       /* for every handler */
    const struct http_route *routes; /* static table; a row with a NULL path ends it */
    size_t max_body;                 /* limit for routes without a max_body (bytes) */
    int max_connections;
    size_t max_buffered;                                              /* bytes; 0: unlimited */
    usec_t header_timeout, body_timeout, write_timeout, idle_timeout; /* 0: never */
    const char *auth_token;     /* token for all requests except /ping, /health and OPTIONS; NULL: none */
    struct http_tokens *tokens; /* further tokens with scopes; NULL: none; the server takes a reference */
    bool allow_admin;           /* routes with HTTP_ROUTE_NEEDS_TOKEN need no token (--allow-exit) */
    /* A server of this process that shares limits on connections and memory and outlives this server; NULL: none. */
    struct http_server *first;
    bool is_shared;         /* other servers accept from the same listening socket */
    size_t public_max_body; /* bytes of a request on a public connection; 0: as max_body */
    uint64_t public_rate;   /* requests a second on all public connections; above it 429; 0: unlimited */
    /* Public routes are also served below this path, such as /p/events for /v1/events. The text outlives the server.
     * NULL: they are not. */
    const char *public_path;
    const char *allowed_hosts; /* additional hosts for Host and Origin (http_origin.h); NULL: no check */
    const char *
        allowed_origins; /* origins whose pages may call all routes and read the answers (http_origin.h); NULL: none */
    /* Called once for each request, when its reply is complete or the client is gone; may be NULL. */
    void (*on_end)(void *arg, const struct http_ended *e);
    void *on_end_arg;
    const char *server_name; /* value of the Server header: "millrace-simplequeue/0.2.0" */
    bool (*not_ready)(void *arg, struct buf *why); /* appends the reason; `why` may be NULL; NULL: ready */
    /* Replies to /health; NULL: the server replies. */
    void (*reply_health)(struct http_request *req, void *arg);
    void (*print_health)(void *arg, struct buf *out); /* appends the object `health` of /stats; NULL: none */
    /* Returns true if it will answer the request for /health by http_reply_health, after a check. May be NULL. */
    bool (*check_health)(struct http_request *req, void *ctx);
    void *not_ready_arg; /* argument of not_ready, reply_health and print_health */
    /* Adds members to /stats JSON (`,"name":...`) and lines to its text; may be NULL. */
    void (*extra_stats)(void *ctx, bool json, struct buf *out);
    /* Resets the numbers of extra_stats, but not those of /metrics, for /stats?reset=1. May be NULL. */
    void (*reset_stats)(void *ctx);
    /* Adds headers to the reply of /stats; may be NULL. */
    void (*stats_headers)(void *ctx, struct http_request *req);
};

struct http_server *http_server_new(const struct http_server_config *config);
/* Replaces the table of tokens. Requests in progress keep their tokens. */
void http_server_set_tokens(struct http_server *s, struct http_tokens *tokens);
/* Return the number of descriptors that RLIMIT_NOFILE leaves for the daemon's own files, and for connections (invariant
 * 7). */
int http_descriptors_for_files(void);
int http_descriptors_for_connections(void);
/* Return the smallest RLIMIT_NOFILE that allows this number of files or connections. */
size_t http_descriptors_with_files(size_t files);
size_t http_descriptors_with_connections(size_t connections);
/* Accepts connections on a listening socket, which the server then owns. Returns 0 or -1. Public connections reach only
 * HTTP_ROUTE_PUBLIC routes, need no token, and may use half of max_connections and of the descriptors. */
int http_server_listen_fd(struct http_server *s, int fd, bool is_public);
/* Stops accepting connections. Returns true if a connection younger than `age` has not sent its whole first request, so
 * that its client does not know of the stop. */
bool http_server_stop_accepting(struct http_server *s, usec_t age);
/* Stops accepting connections and closes idle connections. Requests in progress get a reply with Connection: close. */
void http_server_drain(struct http_server *s);
/* Number of open connections of all servers that share limits. After a drain, 0 means that all replies are
 * delivered. */
size_t http_server_connections(const struct http_server *s);
/* Closes all connections immediately. Calls on_gone of each request without a complete reply. */
void http_server_free(struct http_server **s);

/* The request. Text that the following functions return is valid until the request ends. */
enum http_method http_method(const struct http_request *req);
bool http_is_head(const struct http_request *req);
const char *http_path(const struct http_request *req); /* decoded, without the query */
struct bytes http_body(struct http_request *req);      /* the collected body; may be empty */
/* Moves the body out of the request. The caller frees the body and declares its memory (http_set_held_bytes). */
struct buf http_take_body(struct http_request *req);
bool http_param(const struct http_request *req, const char *name, struct bytes *value);
const struct url_query *http_query(const struct http_request *req);
/* Adds the parameters of an HTML form, which is the request's body, to the parameters of the target. The form's
 * parameters come first. If the form is malformed, replies 400 and returns false. */
bool http_take_form(struct http_request *req);
/* Returns the value of the first header with this name, or BYTES_NONE. The case of the name does not matter. */
struct bytes http_header(const struct http_request *req, const char *name);
/* Appends the values of all headers with this name, in order, separated by commas. */
void http_append_header(const struct http_request *req, const char *name, struct buf *out);
const char *http_peer(const struct http_request *req); /* "127.0.0.1:54321" or "unix" */
/* Returns the name of the request's token for a log; "auth_token_file" for the token of this setting, "" for none. */
const char *http_client_name(const struct http_request *req);
/* Appends what the client may do, as http_token_print. Without a token of a table, `token` is http_client_name. */
void http_print_access(const struct http_request *req, struct buf *out);
/* True if the client may use HTTP_ROUTE_NEEDS_TOKEN routes. */
bool http_is_admin(const struct http_request *req);
/* False if the request's token has a list of keys that does not contain this key. */
bool http_may_see(const struct http_request *req, struct bytes ns, struct bytes key);
/* True if the request's token has no list of keys, and may open one of these views. */
bool http_may_see_all(const struct http_request *req, unsigned views);
/* For restricted operations of open routes. If the client is not an admin, replies 403 and returns false. */
bool http_require_admin(struct http_request *req);
/* For operations that change stored data. Unless the client is local or an admin, replies 403 and returns false. */
bool http_require_local(struct http_request *req);
/* For non-public operations of HTTP_ROUTE_PUBLIC routes. Replies 403 and returns false on a public connection, or for a
 * web page of another origin. */
bool http_require_same_origin(struct http_request *req);

/* Get parameters. For an invalid value, reply 400 and return false. For a missing parameter, *out gets the fallback. */
bool http_param_u64(
    struct http_request *req, const char *name, uint64_t fallback, uint64_t min, uint64_t max, uint64_t *out);
/* Gets a valid name (bytes_is_name), with a NUL. The parameter is required if `fallback` is NULL. */
bool http_param_name(
    struct http_request *req, const char *name, const char *fallback, char out[NAME_LEN_MAX + 1]);
bool http_param_bool(struct http_request *req, const char *name, bool fallback, bool *out);

/* Add headers to a reply that has not started. Only http_add_header removes control bytes from the value. */
void http_add_header(struct http_request *req, const char *name, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void http_add_header_text(struct http_request *req, const char *name, const char *value);
void http_add_header_line(
    struct http_request *req, struct bytes line); /* adds a complete line with its CRLF */
void http_add_header_u64(struct http_request *req, const char *name, uint64_t value);

/* The reply functions end the request and copy the body. A NULL content_type means text/plain; charset=utf-8. */
void http_reply(struct http_request *req, int status, const char *content_type, struct bytes body);
void http_replyf(struct http_request *req, int status, const char *content_type, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* Takes over the memory of a large body. After the call, *body is empty and still belongs to the caller. */
void http_reply_buf(struct http_request *req, int status, const char *content_type, struct buf *body);
/* Replies with application/problem+json:
 * {"type":"about:blank","title":...,"status":N,"code":"stable-code","detail":...}. A reply with 503 or 429 gets
 * Retry-After: 1, unless the handler has added this header. `hint` is advice for the client, or NULL. */
void http_problem(struct http_request *req, int status, const char *code, const char *hint, const char *fmt,
    ...) __attribute__((format(printf, 5, 6)));
/* Replies with the list of endpoints, like the built-in route "/". */
void http_reply_endpoints(struct http_request *req);
void http_reply_health(struct http_request *req);
/* Works like http_problem, with additional members `"name":value,...` as JSON text. */
void http_problem_with(struct http_request *req, int status, const char *code, const char *members,
    const char *fmt, ...) __attribute__((format(printf, 5, 6)));

/* A streamed reply has one start, any number of writes, and one end. For a HEAD request, writes have no effect. */
void http_stream_start(struct http_request *req, int status, const char *content_type);
/* The same for a stream without end, status 200: caches and proxies such as nginx must pass its bytes on at once. */
void http_stream_start_endless(struct http_request *req, const char *content_type);
void http_stream_write(struct http_request *req, struct bytes piece);              /* copies */
void http_stream_write_evbuffer(struct http_request *req, struct evbuffer *piece); /* moves */
/* Writes spans of a file as one piece, with sendfile. `done` is called once the spans are sent or dropped. The file's
 * content and descriptor must stay valid until `done` is called. */
struct http_file {
    int fd;
    void (*done)(void *arg);
    void *arg;
};
struct http_span {
    uint64_t position;
    size_t len;
};
void http_stream_write_file(
    struct http_request *req, const struct http_file *file, const struct http_span *spans, size_t n);
void http_stream_end(struct http_request *req);
/* Resets the connection, so that the client notices that the reply is incomplete. */
void http_stream_abort(struct http_request *req);
/* Ends a reply early: a chunked reply without its last chunk, any other reply with a reset. */
void http_stream_truncate(struct http_request *req);
/* Returns the number of bytes that the kernel has not taken yet, which a stream should limit. Whenever this number
 * falls to `low`, the loop calls `fn` of http_on_drain. */
size_t http_stream_pending(const struct http_request *req);
void http_on_drain(
    struct http_request *req, size_t low, void (*fn)(struct http_request *req, void *arg), void *arg);
/* Returns the number of bytes that the kernel has taken since the connection began, which shows the client's speed. */
uint64_t http_stream_taken(const struct http_request *req);
/* Exempts this stream from write_timeout and max_buffered, because the handler itself limits the pending bytes. */
void http_stream_disable_timeout(struct http_request *req);
/* Takes back the last pieces of the body that the kernel has not begun to send. Returns the number of withdrawn bytes,
 * which the stream may write again. Copies the remaining output, except spans of files. http_stream_rewind works only
 * for streams without a timeout. */
size_t http_stream_rewind(struct http_request *req);
/* Copies pending bytes out of the handler's memory, so that the handler may free this memory. */
void http_stream_copy_pending(struct http_request *req);

/* Declares memory that the handler uses for this request until the reply, and that counts towards max_buffered. */
void http_set_held_bytes(struct http_request *req, size_t bytes);
/* Returns false above max_buffered, so that the handler collects no more data. */
bool http_has_memory(const struct http_request *req);
/* Works like http_set_held_bytes, unless this request would exceed half of max_buffered (TOO_LARGE), or all requests
 * would exceed max_buffered (OVERLOADED). */
enum http_hold { HTTP_HOLD_OK, HTTP_HOLD_OVERLOADED, HTTP_HOLD_TOO_LARGE };
enum http_hold http_hold(struct http_request *req, size_t bytes);
/* Replies 503 `overloaded`, or 413 `answer-too-large` with the hint. */
void http_refuse_hold(struct http_request *req, enum http_hold why, const char *hint);
/* Calls `fn` once if the client is gone before the reply is complete: the client closed, a time limit passed, or the
 * server was freed. The request is freed after `fn`. */
void http_on_gone(struct http_request *req, void (*fn)(struct http_request *req, void *arg), void *arg);
/* Declares that the request may wait forever (invariant 11). If the client is already gone, the request ends. */
void http_set_long_poll(struct http_request *req);

#endif
