/* http_server: HTTP/1.1 on libevent, for daemons with one event loop.
 *
 * The server owns its connections. It calls a handler with a complete request, head and body. The handler replies at once
 * or later. A `struct http_request *` is valid until its reply is complete (http_reply*, http_problem*, http_stream_end) or
 * the client is gone. A handler that replies later sets http_on_gone and drops its pointer there.
 *
 * 1. Replies are sent in the order of their requests. A connection has one request in a handler at a time; pipelined
 *    requests wait unparsed, up to a limit.
 * 2. A client can make the server hold at most the route's max_body, HTTP_HEADERS_MAX bytes of headers and a small fixed
 *    buffer. A larger request gets 413, 431 or 414, and the server closes the connection.
 * 3. A request with ambiguous framing gets 400, and the server closes the connection. See http_parse.h.
 * 4. The server closes a connection that completes no head for header_timeout, sends no byte of a body for body_timeout,
 *    or receives no byte of a pending reply for write_timeout.
 * 5. HEAD runs the GET handler without sending the body. Other unsupported methods get 405 with Allow.
 * 6. The server answers Expect: 100-continue before the body arrives, unless it refuses the request by the headers alone.
 * 7. Above max_connections a request gets 503 with Retry-After, and the server closes the connection. The same applies when
 *    descriptors run short: a quarter of RLIMIT_NOFILE, at most 256, is reserved for the daemon's own files.
 * 8. All clients together make the server hold at most max_buffered bytes plus one reply. Above that, the server closes
 *    the stalled connections that hold the most, and requests get 503 `overloaded`, except for built-in endpoints.
 * 9. HTTP/1.0 clients get no chunked bodies; the end of the connection ends a stream.
 * 10. `stats` counts each reply by its route, and times it up to its headers.
 * 11. A client that shuts down only its sending side, as nc does, still gets the replies in progress and its stream. After
 *    http_set_long_poll the server treats such a client as gone, because the request may last for ever and hold leases.
 * 12. Everything runs in the loop's thread and nothing blocks. No handler or callback runs inside a reply. Replies are
 *     sent when control returns to the loop. The program must ignore SIGPIPE.
 *
 * Built-in endpoints: /ping (OK), /health (200 "ready", or 503 with the reason), /stats (?format=json; ?reset=1 for bitly's
 * clients), /metrics, / (the list of endpoints) and OPTIONS *. */
#ifndef MILLRACE_HTTP_SERVER_H
#define MILLRACE_HTTP_SERVER_H

#include "base/bytes.h"
#include "base/clock.h"
#include "base/stats.h"
#include "base/url.h"

struct event_base;
struct evbuffer;
struct http_server;
struct http_request;

#define HTTP_HEADERS_MAX (64 * 1024)
#define HTTP_TARGET_MAX (48 * 1024) /* a longer request target gets 414 */

enum http_method { HTTP_GET_ = 1, HTTP_POST_ = 2, HTTP_PUT_ = 4, HTTP_DELETE_ = 8, HTTP_OPTIONS_ = 16 };

typedef void http_handler(struct http_request *req, void *ctx);

#define HTTP_ROUTE_NEEDS_TOKEN 1    /* stops, deletes or resets something: needs the token or allow_admin */
#define HTTP_ROUTE_WHEN_READY 2     /* 503 with the reason until the daemon is ready */
#define HTTP_ROUTE_LENIENT 4        /* ignores unknown parameters unless they look like a misspelling */
#define HTTP_ROUTE_NO_HEAD 8        /* GET has side effects, so HEAD gets 405 */
#define HTTP_ROUTE_IDENTITY_BODY 16 /* 415 for a body with a Content-Encoding other than identity */
#define HTTP_ROUTE_PUBLIC 32        /* open to web pages of any origin, see allowed_hosts */

struct http_route {
    const char *path;
    unsigned methods; /* of enum http_method */
    unsigned flags;
    size_t max_body; /* bytes; 0: the server's max_body */
    http_handler *handler;
    /* May reply in place of the server's 503 `overloaded`; returns whether it did. May be NULL. */
    bool (*on_overload)(struct http_request *req, void *ctx);
    const char *help; /* one line for the list of endpoints */
    const char
        *params; /* names, separated by spaces; an unknown or repeated one gets 400. NULL: accept any */
};

struct http_server_config {
    struct event_base *base;
    struct stats *stats;
    void *ctx;                       /* for every handler */
    const struct http_route *routes; /* static, ended by a row whose path is NULL */
    size_t max_body;                 /* bytes, for routes without a max_body */
    int max_connections;
    size_t max_buffered;                                              /* bytes; 0: unlimited */
    usec_t header_timeout, body_timeout, write_timeout, idle_timeout; /* 0: never */
    const char *auth_token;    /* every route but /ping, /health and OPTIONS requires it; NULL: no token */
    bool allow_admin;          /* HTTP_ROUTE_NEEDS_TOKEN routes need no token (--allow-exit) */
    size_t public_max_body;    /* bytes of a request on a public connection; 0: as max_body */
    uint64_t public_rate;      /* requests a second on all public connections, 429 above it; 0: unlimited */
    const char *allowed_hosts; /* further hosts for Host and Origin (http_origin.h); NULL: no check */
    const char *server_name;   /* the Server header: "millrace-simplequeue/0.1.0" */
    const char *(*not_ready)(void *arg); /* the reason, valid until the next call; NULL when ready */
    const char *(*degraded)(void *arg);  /* the same, but only /health reports it; may be NULL */
    const char *(*warnings)(void *arg);  /* whole lines for the /health of a ready daemon; NULL: none */
    void *not_ready_arg;                 /* of the three calls above */
    /* Adds members to /stats JSON (`,"name":...`) and lines to its text; may be NULL. */
    void (*extra_stats)(void *ctx, bool json, struct buf *out);
    /* Resets the numbers of extra_stats, for /stats?reset=1; may be NULL. /metrics never resets. */
    void (*reset_stats)(void *ctx);
    /* Adds headers to the reply of /stats; may be NULL. */
    void (*stats_headers)(void *ctx, struct http_request *req);
};

struct http_server *http_server_new(const struct http_server_config *config);
/* How many descriptors of RLIMIT_NOFILE are for files that a daemon keeps open, and for connections (7). */
int http_descriptors_for_files(void);
int http_descriptors_for_connections(void);
/* The smallest RLIMIT_NOFILE that provides that many. */
size_t http_descriptors_with_files(size_t files);
size_t http_descriptors_with_connections(size_t connections);
/* Serves on a listening socket, which the server then owns. A server may have several. 0 or -1. is_public: its
 * connections reach only HTTP_ROUTE_PUBLIC routes, without a token. They may use at most half of max_connections and of
 * the descriptors for connections. */
int http_server_listen_fd(struct http_server *s, int fd, bool is_public);
/* Stops accepting and closes idle connections. Requests in progress end normally, with Connection: close. */
void http_server_drain(struct http_server *s);
/* The number of open connections. After a drain, 0 means that every reply was delivered. */
size_t http_server_connections(const struct http_server *s);
/* Closes all connections at once. Every request in a handler gets its on_gone. */
void http_server_free(struct http_server **s);

/* The request. Returned text is borrowed until the request ends. */
enum http_method http_method(const struct http_request *req);
bool http_is_head(const struct http_request *req);
const char *http_path(const struct http_request *req); /* decoded, without the query */
struct bytes http_body(struct http_request *req);      /* the gathered body; may be empty */
bool http_param(const struct http_request *req, const char *name, struct bytes *value);
const struct url_query *http_query(const struct http_request *req);
/* The value of the first header with that name, in any case; BYTES_NONE if there is none. */
struct bytes http_header(const struct http_request *req, const char *name);
/* The monotonic time at which the connection's turn began; outside a turn, the current time. */
usec_t http_now(const struct http_request *req);
const char *http_peer(const struct http_request *req); /* "127.0.0.1:54321" or "unix" */
/* Whether the client may use HTTP_ROUTE_NEEDS_TOKEN routes. */
bool http_is_admin(const struct http_request *req);
/* Guards a restricted operation of an open route. False: the client may not use HTTP_ROUTE_NEEDS_TOKEN routes, and the
 * function has replied 403. */
bool http_require_admin(struct http_request *req);
/* Guards an operation that changes stored data. False: the client has no token or, without a configured token, is not on this
 * host, and the function has replied 403. */
bool http_require_local(struct http_request *req);
/* Guards a non-public operation of an HTTP_ROUTE_PUBLIC route. False: a web page of another origin sent the request, or
 * the connection is public, and the function has replied 403. */
bool http_require_same_origin(struct http_request *req);

/* Parameters. Each function replies 400 and returns false on an invalid value. A missing parameter yields the fallback. */
bool http_param_u64(
    struct http_request *req, const char *name, uint64_t fallback, uint64_t min, uint64_t max, uint64_t *out);
/* A name (bytes_is_name), NUL-terminated. Fallback NULL: the parameter is required. */
bool http_param_name(
    struct http_request *req, const char *name, const char *fallback, char out[NAME_LEN_MAX + 1]);
bool http_param_bool(struct http_request *req, const char *name, bool fallback, bool *out);

/* Headers of the reply, added before the reply starts. http_add_header drops control bytes in the value. The other functions
 * are faster and require a value without control bytes. */
void http_add_header(struct http_request *req, const char *name, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void http_add_header_text(struct http_request *req, const char *name, const char *value);
void http_add_header_line(struct http_request *req, struct bytes line); /* a whole line, with its CRLF */
void http_add_header_u64(struct http_request *req, const char *name, uint64_t value);

/* Replies. Each of these functions ends the request. The body is copied. content_type NULL: text/plain;
 * charset=utf-8. */
void http_reply(struct http_request *req, int status, const char *content_type, struct bytes body);
void http_replyf(struct http_request *req, int status, const char *content_type, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* Takes over a large body instead of copying it. The caller keeps the buffer, which is empty afterwards. */
void http_reply_buf(struct http_request *req, int status, const char *content_type, struct buf *body);
/* Moves the content of the evbuffer. The caller keeps the evbuffer. */
void http_reply_evbuffer(
    struct http_request *req, int status, const char *content_type, struct evbuffer *body);
/* application/problem+json: {"type":"about:blank","title":...,"status":N,"code":"stable-code","detail":...}. 503 and 429
 * get Retry-After: 1 unless the handler added another. `hint` advises the client; may be NULL. */
void http_problem(struct http_request *req, int status, const char *code, const char *hint, const char *fmt,
    ...) __attribute__((format(printf, 5, 6)));
/* As http_problem, with further members `"name":value,...` (JSON text). */
void http_problem_with(struct http_request *req, int status, const char *code, const char *members,
    const char *fmt, ...) __attribute__((format(printf, 5, 6)));

/* A streamed reply: start, any number of writes, end. For HEAD the writes are dropped. */
void http_stream_start(struct http_request *req, int status, const char *content_type);
void http_stream_write(struct http_request *req, struct bytes piece);              /* copies */
void http_stream_write_evbuffer(struct http_request *req, struct evbuffer *piece); /* moves */
/* One piece made of spans of a file, sent by sendfile. Until `done`, the spans must not change and the descriptor must stay
 * open. The server calls `done` once, when the spans are sent or dropped. */
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
/* Resets the connection, so that the client sees an incomplete reply. */
void http_stream_abort(struct http_request *req);
/* Sends the pieces written so far, then ends a chunked reply without its terminator. Resets any other reply. */
void http_stream_truncate(struct http_request *req);
/* Bytes written that the kernel has not taken. A stream writes while their number is below its own limit. The loop
 * calls on_drain each time the number falls to `low` or below; the stream then continues. */
size_t http_stream_pending(const struct http_request *req);
void http_on_drain(
    struct http_request *req, size_t low, void (*fn)(struct http_request *req, void *arg), void *arg);
/* Bytes that the kernel has taken since the connection began. The growth of this number shows the client's speed. */
uint64_t http_stream_taken(const struct http_request *req);
/* Exempts this stream from write_timeout and max_buffered. The writer bounds the pending bytes. */
void http_stream_disable_timeout(struct http_request *req);
/* Withdraws, from a boundary between pieces on, the end of the body that the client has not begun to receive. Only for
 * streams without a timeout. Returns the number of bytes withdrawn, which the stream may write again. Copies the
 * remaining bytes, except spans of files. */
size_t http_stream_rewind(struct http_request *req);
/* Copies lent memory that is still pending, so that the writer may free it. */
void http_stream_copy_pending(struct http_request *req);

/* Sets how much memory the handler holds for this request until the reply. The bytes count towards max_buffered. */
void http_set_held_bytes(struct http_request *req, size_t bytes);
/* False above max_buffered: the handler should then gather no more. */
bool http_has_memory(const struct http_request *req);
/* The server calls `fn` once if the client is gone before the reply is complete: it closed or reset the connection, a time limit
 * passed, or the server is freed. The request is freed when `fn` returns; a reply inside `fn` is dropped. */
void http_on_gone(struct http_request *req, void (*fn)(struct http_request *req, void *arg), void *arg);
/* Declares that the request may wait for ever, or that its stream has no end (11). Ends the request if the client is gone. */
void http_set_long_poll(struct http_request *req);

#endif
