/* http_server: HTTP/1.1 on libevent, for daemons with one event loop.
 *
 * The server owns its connections. It calls a handler once the headers and the whole body of a request are there. The handler replies now or later. A `struct http_request *` is valid until
 * http_reply*, http_problem* or http_stream_end finishes the reply, or until the client is gone. A handler that replies
 * later sets http_on_gone and forgets the request there.
 *
 * 1. Replies leave in the order of their requests. A connection has one request in a handler at a time; pipelined requests
 *    wait unparsed, within a bound.
 * 2. A client can make the server hold at most the route's max_body, HTTP_HEADERS_MAX bytes of headers and a small fixed
 *    buffer. Requests above that get 413, 431 or 414, and the connection is closed.
 * 3. A request whose framing is in doubt gets 400 and the connection is closed. See http_parse.h.
 * 4. The server closes a connection that completes no head for header_timeout, sends no byte of a body for body_timeout,
 *    or takes no byte of a pending reply for write_timeout.
 * 5. HEAD runs the GET handler and withholds the body. Other unsupported methods get 405 with Allow.
 * 6. Expect: 100-continue is answered before the body is read, unless the headers alone are refused.
 * 7. Above max_connections a request gets 503 with Retry-After and the connection is closed. The same applies above the
 *    share of descriptors for connections: a quarter of RLIMIT_NOFILE, at most 256, is left to the daemon's own files.
 * 8. All clients together make the server hold at most max_buffered and one reply. Above it, stalled connections that hold
 *    the most are closed, and requests get 503 `overloaded`, except those for built-in endpoints.
 * 9. HTTP/1.0 clients get no chunked bodies: the end of the connection ends a stream.
 * 10. `stats` counts and times every reply by its route, up to its headers.
 * 11. A client that only shuts down its sending side, as nc does, still gets the replies in progress and its stream. But
 *    after http_set_long_poll the server takes it for gone, because the request may last for ever and hold leases.
 * 12. Everything runs in the loop's thread, nothing blocks, and no handler or callback runs inside a reply. Replies are
 *    sent when control returns to the loop. The program must ignore SIGPIPE.
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
    /* Replies instead of the server's 503 `overloaded`; false: it did not. May be NULL. */
    bool (*on_overload)(struct http_request *req, void *ctx);
    const char *help;   /* one line for the list of endpoints */
    const char *params; /* separated by spaces; an unknown or repeated one gets 400. NULL: any are accepted */
};

struct http_server_config {
    struct event_base *base;
    struct stats *stats;
    void *ctx;                       /* for every handler */
    const struct http_route *routes; /* static, ended by a row whose path is NULL */
    size_t max_body;                 /* bytes; the default of routes */
    int max_connections;
    size_t max_buffered;                                              /* bytes; 0: unlimited */
    usec_t header_timeout, body_timeout, write_timeout, idle_timeout; /* 0: never */
    const char
        *auth_token;  /* NULL: none. Otherwise every route requires it, except /ping, /health and OPTIONS */
    bool allow_admin; /* HTTP_ROUTE_NEEDS_TOKEN routes need no token (--allow-exit) */
    size_t public_max_body; /* bytes, of a public connection's request; 0: as max_body */
    uint64_t
        public_rate; /* requests a second of all public connections together, 429 past it; 0: unlimited */
    const char
        *allowed_hosts; /* that Host and Origin may name besides local ones (http_origin.h); NULL: no check */
    const char *server_name; /* the Server header: "millrace-simplequeue/0.1.0" */
    const char *(*not_ready)(
        void *arg);                     /* NULL when ready, otherwise the reason, valid until the next call */
    const char *(*degraded)(void *arg); /* the same, but only /health reports it; may be NULL */
    void *not_ready_arg;
    /* Adds members to /stats JSON (`,"name":...`) and lines to its text; may be NULL. */
    void (*extra_stats)(void *ctx, bool json, struct buf *out);
    /* Resets what extra_stats shows, for /stats?reset=1; may be NULL. /metrics never resets. */
    void (*reset_stats)(void *ctx);
    /* Adds headers to the reply of /stats; may be NULL. */
    void (*stats_headers)(void *ctx, struct http_request *req);
};

struct http_server *http_server_new(const struct http_server_config *config);
/* The shares of RLIMIT_NOFILE (7). */
int http_descriptors_for_files(void); /* for files that a daemon keeps open */
int http_descriptors_for_connections(void);
/* The least RLIMIT_NOFILE whose share is that large. */
size_t http_descriptors_with_files(size_t files);
size_t http_descriptors_with_connections(size_t connections);
/* Serves on a listening socket, which the server owns from then on. May be called more than once. 0 or -1. */
int http_server_listen_fd(struct http_server *s, int fd);
/* Listens for the public: these connections reach HTTP_ROUTE_PUBLIC routes only, without a token. They are at most half of
 * max_connections, and of the descriptors for connections. */
int http_server_listen_public_fd(struct http_server *s, int fd);
/* Stops accepting and closes idle connections. Requests in a handler end normally, with Connection: close. */
void http_server_drain(struct http_server *s);
/* Open connections: 0 after a drain means that every reply was delivered. */
size_t http_server_connections(const struct http_server *s);
/* Closes all connections at once. Every request in a handler gets its on_gone. */
void http_server_free(struct http_server **s);

/* A request. What these return is borrowed until the request ends. */
enum http_method http_method(const struct http_request *req);
bool http_is_head(const struct http_request *req);
const char *http_path(const struct http_request *req); /* decoded, without the query */
struct bytes http_body(struct http_request *req);      /* the gathered body; may be empty */
bool http_param(const struct http_request *req, const char *name, struct bytes *value);
const struct url_query *http_query(const struct http_request *req);
/* The value of the first header of that name, in any case; BYTES_NONE without one. */
struct bytes http_header(const struct http_request *req, const char *name);
/* The monotonic time: that of the connection's turn, or the current time outside it. */
usec_t http_now(const struct http_request *req);
const char *http_peer(const struct http_request *req); /* "127.0.0.1:54321" or "unix" */
/* For a restricted operation of an open route: true if the client may use a HTTP_ROUTE_NEEDS_TOKEN route. Otherwise
 * replies 403. */
bool http_require_admin(struct http_request *req);
/* For an operation of a HTTP_ROUTE_PUBLIC route that is not public: true unless a web page of another origin sent the
 * request, or it came by a public connection. Otherwise replies 403. */
bool http_require_same_origin(struct http_request *req);

/* Parameters. On an invalid value each replies 400 and returns false. A missing parameter yields the fallback. */
bool http_param_u64(
    struct http_request *req, const char *name, uint64_t fallback, uint64_t min, uint64_t max, uint64_t *out);
/* A name (bytes_is_name), NUL-terminated. Fallback NULL: the parameter is required. */
bool http_param_name(
    struct http_request *req, const char *name, const char *fallback, char out[NAME_LEN_MAX + 1]);
bool http_param_bool(struct http_request *req, const char *name, bool fallback, bool *out);

/* Headers of the reply, before it starts. http_add_header drops control bytes in the value; the other functions are faster
 * and require a value without them. */
void http_add_header(struct http_request *req, const char *name, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void http_add_header_text(struct http_request *req, const char *name, const char *value);
void http_add_header_line(struct http_request *req, struct bytes line); /* a whole line, with its CRLF */
void http_add_header_u64(struct http_request *req, const char *name, uint64_t value);

/* Replies. Each ends the request. The body is copied. content_type NULL: text/plain; charset=utf-8. */
void http_reply(struct http_request *req, int status, const char *content_type, struct bytes body);
void http_replyf(struct http_request *req, int status, const char *content_type, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* Takes over a large body instead of copying it. The buffer is empty afterwards and stays the caller's. */
void http_reply_buf(struct http_request *req, int status, const char *content_type, struct buf *body);
/* Moves the content of the evbuffer, which stays the caller's. */
void http_reply_evbuffer(
    struct http_request *req, int status, const char *content_type, struct evbuffer *body);
/* application/problem+json: {"type":"about:blank","title":...,"status":N,"code":"stable-code","detail":...}. 503 and 429
 * carry Retry-After: 1 unless one was added. `hint`, what to do about it, may be NULL. */
void http_problem(struct http_request *req, int status, const char *code, const char *hint, const char *fmt,
    ...) __attribute__((format(printf, 5, 6)));
/* The same with further members `"name":value,...` (JSON text). */
void http_problem_with(struct http_request *req, int status, const char *code, const char *members,
    const char *fmt, ...) __attribute__((format(printf, 5, 6)));

/* A streamed reply: start, any number of writes, end. content_length < 0: chunked. For HEAD the writes are dropped. */
void http_stream_start(
    struct http_request *req, int status, const char *content_type, int64_t content_length);
void http_stream_write(struct http_request *req, struct bytes piece);              /* copies */
void http_stream_write_evbuffer(struct http_request *req, struct evbuffer *piece); /* moves */
/* One piece made of spans of a file, sent by sendfile. The spans must not change and the descriptor must stay open until
 * `done`, which is called once, when they are in the socket or will never be. */
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
/* Sends what was written, then ends a chunked reply without its terminator. Resets any other reply. */
void http_stream_truncate(struct http_request *req);
/* Bytes written and not yet taken by the kernel. A stream writes while they are below its bound, and goes on from on_drain,
 * which the loop calls each time they fall to `low` or below. */
size_t http_stream_pending(const struct http_request *req);
void http_on_drain(
    struct http_request *req, size_t low, void (*fn)(struct http_request *req, void *arg), void *arg);
/* Bytes the kernel has taken since the connection began: their growth is the client's speed. */
uint64_t http_stream_taken(const struct http_request *req);
/* Exempts this stream from write_timeout and max_buffered. Its writer bounds what is pending. */
void http_stream_disable_timeout(struct http_request *req);
/* Of a stream without a timeout: withdraws the end of its body as far as the client has not begun to get it, at a boundary
 * between pieces. Returns its length; it may be written again. The rest is copied, except spans of files. */
size_t http_stream_rewind(struct http_request *req);
/* Replaces lent memory that is still pending by copies: the writer may free it. */
void http_stream_copy_pending(struct http_request *req);

/* Sets how much memory the handler holds for this request until it is answered. It counts to max_buffered. */
void http_set_held_bytes(struct http_request *req, size_t bytes);
/* False above max_buffered: a handler that gathers more stops with what it has. */
bool http_has_memory(const struct http_request *req);
/* Called once if the client is gone before the reply is finished: closed, reset, timed out, its streamed body refused, or
 * the server freed. The request is freed when it returns; a reply given in it is dropped. */
void http_on_gone(struct http_request *req, void (*fn)(struct http_request *req, void *arg), void *arg);
/* The request may wait for ever, or its stream has no end (11). Also ends a request whose client has already left. */
void http_set_long_poll(struct http_request *req);

/* The standard reason phrase. */
const char *http_status_text(int status);

#endif
