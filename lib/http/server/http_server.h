/* http_server: HTTP/1.1 on libevent, for daemons of one event loop.
 *
 * The server owns its connections. A handler is called once a request's headers and (unless its route
 * streams) its whole body are there, and answers now or later: a `struct http_request *` stays valid until
 * the reply is finished by http_reply*, http_problem or http_stream_end, or until the client is gone,
 * whichever comes first. A handler that answers later must set http_on_gone and forget the request there.
 *
 * Invariants
 * 1. Replies leave in the order of their requests. One request of a connection is in a handler at a time;
 *    what is pipelined behind it waits unparsed (a long poll holds its connection), within a read bound.
 * 2. Nothing a client sends costs memory beyond the route's max_body, HTTP_HEADERS_MAX bytes of headers and
 *    a small fixed buffer. What is over is answered 413, 431 or 414 and the connection closed.
 * 3. A request whose framing is in doubt (bad chunk, both Content-Length and Transfer-Encoding, two lengths)
 *    is answered 400 and the connection closed: nothing behind it is parsed. HTTP/1.1 without one Host: 400.
 * 4. A client that sends no complete request header for header_timeout, no body byte for body_timeout, or
 *    takes nothing of a reply for write_timeout (not while a stream has nothing to send) is closed.
 * 5. HEAD is served by the GET handler, the body withheld, but where that does more than look. Routes answer 405 with Allow for other methods.
 * 6. Expect: 100-continue is answered before the body is read, unless the headers alone are refused.
 * 7. Past max_connections a connection's request gets 503 with Retry-After and it is closed. So does one past the descriptors
 *    that are for connections: a quarter of RLIMIT_NOFILE, at most 256, is left to the daemon's own files. Should those take
 *    all, connections wait to be accepted. 64 at a time are read for that, for two seconds; more are told at once.
 * 8. HTTP/1.0 clients get no chunked bodies: a stream then ends with the connection.
 * 9. Every reply is counted and timed in `stats` by endpoint (the route, never the raw path), up to its
 *    headers: a stream may last for days.
 * 10. The loop thread only. No call here blocks. Handlers and callbacks are called from the loop, never from
 *    inside a reply; what is replied leaves when the loop comes round, all that is there in one write, and replies of
 *    several connections one right after the other. SIGPIPE must be ignored by the program.
 * 11. A client that shuts down only its sending side (as nc does) looks like one that has left. A request in a
 *    handler is finished for it all the same, and so is a stream. A request that http_set_long_poll was called for
 *    is not: it may last for ever, and what it holds (leases, a subscription) is wanted by others. Its
 *    client is taken to be gone. One whose connection is reset, or to which nothing can be written, is gone.
 * 12. What is held for all clients together (bodies, kept bytes, replies not taken) is bounded by max_buffered, but for
 *    one reply. Past it those connections go that hold the most and do not move, and what is asked meanwhile gets 503
 *    `overloaded`, but for the built-in endpoints. Patient streams neither count nor go.
 * 13. An EventSource takes any other status than 200 for final. So where 7 and 12 say 503, a request that accepts
 *    text/event-stream of a route that gives it (HTTP_ROUTE_EVENTS) gets http_come_back.
 *
 * Built in, and not to be registered: /ping (OK), /health (200 "ready" or 503 with the reason), /stats
 * (?format=json, and ?reset=1 for bitly's clients), /metrics.
 */
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
#define HTTP_TARGET_MAX (48 * 1024) /* longer request targets get 414 */

enum http_method { HTTP_GET_ = 1, HTTP_POST_ = 2, HTTP_PUT_ = 4, HTTP_DELETE_ = 8, HTTP_OPTIONS_ = 16 };

typedef void http_handler(struct http_request *req, void *ctx);
/* Streamed bodies: called for each piece as it comes; return false after having answered to stop reading. */
typedef bool http_body_fn(struct http_request *req, struct bytes piece, void *ctx);

#define HTTP_ROUTE_NEEDS_TOKEN 1 /* an act that stops, drops or resets: needs the token, see need_token */
#define HTTP_ROUTE_PREFIX 2      /* `path` is a prefix; the rest is http_path_rest */
#define HTTP_ROUTE_WHEN_READY 4  /* 503 with the reason until the daemon is ready */
#define HTTP_ROUTE_LENIENT 8     /* another than of `params` is passed over, but for a slip of one of them */
#define HTTP_ROUTE_NO_HEAD 16    /* its GET does more than look, so HEAD gets 405 */
#define HTTP_ROUTE_PUBLIC 128    /* open to web pages of any origin, see allowed_hosts */
#define HTTP_ROUTE_EVENTS 32     /* gives text/event-stream to who accepts it */
#define HTTP_ROUTE_IDENTITY_BODY 64 /* a body with a Content-Encoding but identity is refused unread, 415 */

struct http_route {
    const char *path;
    unsigned methods; /* of enum http_method */
    unsigned flags;
    size_t max_body; /* 0: the server's max_body */
    http_handler *handler;
    http_body_fn
        *on_body;     /* NULL: the body is gathered; else it is streamed to this, then handler is called */
    const char *help; /* one line, for `/` which lists the endpoints */
    const char
        *params; /* names, a space between: another, or one twice, is refused (400). NULL: not looked at */
};

struct http_server_config {
    struct event_base *base;
    struct stats *stats;
    void *ctx;                       /* for every handler */
    const struct http_route *routes; /* static, ended by a row whose path is NULL */
    size_t max_body;                 /* bytes; the default of routes */
    int max_connections;
    size_t max_buffered; /* bytes held for all clients together; 0: no bound */
    usec_t header_timeout, body_timeout, write_timeout, idle_timeout; /* 0: never */
    const char *auth_token; /* NULL: none. With one, every route but /ping, /health and OPTIONS asks for it */
    bool allow_admin;       /* HTTP_ROUTE_NEEDS_TOKEN routes are open without a token (--allow-exit) */
    /* Hosts besides local ones that Host and Origin may name (http_origin.h); NULL: neither is checked. */
    const char *allowed_hosts;
    const char *server_name; /* the Server header: "millrace-simplequeue/0.1.0" */
    /* NULL when ready; else why not, a text that lives until the next call. */
    const char *(*not_ready)(void *arg);
    const char *(*degraded)(void *arg); /* likewise, but only /health says so; may be NULL */
    void *not_ready_arg;
    /* Adds members to /stats JSON (`,"name":...`) and lines to its text; may be NULL. */
    void (*extra_stats)(void *ctx, bool json, struct buf *out);
    /* /stats?reset=1, an act: puts back what extra_stats shows; may be NULL. What /metrics shows only grows. */
    void (*reset_stats)(void *ctx);
    /* Adds headers to the reply of /stats; may be NULL. */
    void (*stats_headers)(void *ctx, struct http_request *req);
};

struct http_server *http_server_new(const struct http_server_config *config);
/* How many descriptors the files may take that a daemon keeps open. A quarter of RLIMIT_NOFILE, at most 256, stays for
 * connections, beside as many for what is open for a moment (7). */
int http_descriptors_for_files(void);
/* An RLIMIT_NOFILE by which they may take so many. */
size_t http_descriptors_with_files(size_t files);
/* How many connections there may be at most, and an RLIMIT_NOFILE by which there may be so many. */
int http_descriptors_for_connections(void);
size_t http_descriptors_with_connections(size_t connections);
/* Listens; may be called more than once. The fd is a listening socket, owned by the server from here on. */
int http_server_listen_fd(struct http_server *s, int fd);
/* Stops accepting and closes idle connections; connections with a request in a handler go on to the end of
 * that reply, which says Connection: close. */
void http_server_drain(struct http_server *s);
/* Connections still open: 0 after a drain means all is delivered. */
size_t http_server_connections(const struct http_server *s);
/* Closes everything at once; every request in a handler gets its on_gone. */
void http_server_free(struct http_server **s);

/* A request: everything returned is borrowed until the request ends. */
enum http_method http_method(const struct http_request *req);
bool http_is_head(const struct http_request *req);
const char *http_path(const struct http_request *req);      /* decoded, without the query */
const char *http_path_rest(const struct http_request *req); /* of a prefix route */
struct bytes http_body(struct http_request *req);           /* gathered body, contiguous; perhaps empty */
bool http_param(const struct http_request *req, const char *name, struct bytes *value);
const struct url_query *http_query(const struct http_request *req);
/* Of the first such header, case-insensitive; BYTES_NONE when there is none. */
struct bytes http_header(const struct http_request *req, const char *name);
bool http_is_http10(const struct http_request *req);
/* The time: when the loop's turn at hand began, or now where the request is not handled in a turn of its connection. */
usec_t http_now(const struct http_request *req);
const char *http_peer(const struct http_request *req); /* "127.0.0.1:54321" or "unix" */
/* For an act that is only one of the things its route does: true when it is open to this client as a route of
 * HTTP_ROUTE_NEEDS_TOKEN is; else 403 was answered. */
bool http_require_admin(struct http_request *req);
/* For a route of HTTP_ROUTE_PUBLIC, before it does what only the daemon's own pages and programs may ask for: true when no page of
 * another origin sent the request; else 403 was answered. */
bool http_require_same_origin(struct http_request *req);
void *http_request_ctx(struct http_request *req);
/* A handler's own pointer, NULL at first. */
void http_set_data(struct http_request *req, void *data);
void *http_data(const struct http_request *req);

/* Reading parameters the one way: each answers the problem itself and returns false when the value is bad.
 * A missing one gives the fallback. */
bool http_param_u64(
    struct http_request *req, const char *name, uint64_t fallback, uint64_t min, uint64_t max, uint64_t *out);
bool http_param_i64(
    struct http_request *req, const char *name, int64_t fallback, int64_t min, int64_t max, int64_t *out);
/* A name (bytes_is_name); NUL-terminated into out. A missing one gives the fallback; NULL makes it required. */
bool http_param_name(
    struct http_request *req, const char *name, const char *fallback, char out[NAME_LEN_MAX + 1]);
bool http_param_bool(struct http_request *req, const char *name, bool fallback, bool *out);

/* Answering: each ends the request but http_add_header and http_stream_* before end. */
/* Before the reply starts. Control bytes in the value are dropped. */
void http_add_header(struct http_request *req, const char *name, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* For replies that are given often. The value is the program's own: it must hold no control bytes. */
void http_add_header_text(struct http_request *req, const char *name, const char *value);
void http_add_header_line(struct http_request *req, struct bytes line); /* a whole one, composed before */
void http_add_header_u64(struct http_request *req, const char *name, uint64_t value);
/* The body is copied. content_type NULL: text/plain; charset=utf-8. */
void http_reply(struct http_request *req, int status, const char *content_type, struct bytes body);
void http_replyf(struct http_request *req, int status, const char *content_type, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* The same without a copy of what is large: the buffer is empty afterwards, and still the caller's. */
void http_reply_buf(struct http_request *req, int status, const char *content_type, struct buf *body);
/* Moves the evbuffer's content into the reply without copying; the evbuffer itself stays the caller's. */
void http_reply_evbuffer(
    struct http_request *req, int status, const char *content_type, struct evbuffer *body);
/* application/problem+json: {"type":"about:blank","title":...,"status":N,"code":"stable-code","detail":...};
 * 503 and 429 carry Retry-After: 1 unless one was added. `hint` may be NULL: what to do about it. */
void http_problem(struct http_request *req, int status, const char *code, const char *hint, const char *fmt,
    ...) __attribute__((format(printf, 5, 6)));
/* As http_problem, with members `"name":value,...` (JSON text) beside the standard ones. */
void http_problem_with(struct http_request *req, int status, const char *code, const char *members,
    const char *fmt, ...) __attribute__((format(printf, 5, 6)));

/* Whether it accepts text/event-stream, of a route that gives it. */
bool http_wants_events(const struct http_request *req);
/* In place of a 503 that passes: an event stream without events, which ends, so that an EventSource comes back, a second
 * later. */
void http_come_back(struct http_request *req);

/* A streamed reply: start, write as often as wanted, end. With content_length < 0 chunked (or to the end of
 * the connection for HTTP/1.0). For HEAD the writes are dropped. */
void http_stream_start(
    struct http_request *req, int status, const char *content_type, int64_t content_length);
void http_stream_write(struct http_request *req, struct bytes piece);              /* copies */
void http_stream_write_evbuffer(struct http_request *req, struct evbuffer *piece); /* moves */
/* Bytes of a file, together one piece: sent from there by sendfile, so they take no memory while they wait. They must not
 * change before the client has them, which may be long after `done`: that is called once, when they are in the socket or
 * will not be. The descriptor is to stay open until then. */
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
/* Ends in the middle, so that the client sees that something is missing: the connection is reset. */
void http_stream_abort(struct http_request *req);
/* The same, but first the client gets what was written: a chunked reply has no terminator then, another is reset. */
void http_stream_truncate(struct http_request *req);
/* Bytes written but not yet taken by the kernel. A stream writes while this is under its bound and goes on
 * from on_drain, which is called (from the loop) each time it falls to `low` or under. */
size_t http_stream_pending(const struct http_request *req);
/* Bytes of this connection that the kernel has taken, ever: what it grows by tells how fast the client is. */
uint64_t http_stream_taken(const struct http_request *req);
/* Of a patient reply: takes back the end of what was written to its body, as far as it can still be cut off: between two
 * pieces, and before the client gets the first byte of it. Returns its length; it may be written again. What goes out all
 * the same is copied, so that nothing lent is kept for a client that takes nothing; but what lies in files stays there.
 * on_drain is called once what remains has fallen to its bound, if it is above that. */
size_t http_stream_rewind(struct http_request *req);
/* Only copies: for a writer that is through. */
void http_stream_copy_pending(struct http_request *req);
void http_on_drain(
    struct http_request *req, size_t low, void (*fn)(struct http_request *req, void *arg), void *arg);

/* This client may take as long as it likes: write_timeout does not apply to this reply. For streams whose writer
 * bounds what is pending. */
void http_stream_disable_timeout(struct http_request *req);

/* Bytes that the handler keeps for this request until it is answered, where they are many: they count to max_buffered,
 * from this call on. */
void http_set_held_bytes(struct http_request *req, size_t bytes);
/* False past max_buffered: a handler that goes on gathering stops with what it has. */
bool http_has_memory(const struct http_request *req);
/* Called once when the client is gone before the reply was finished (closed, reset, timed out, its streamed
 * body refused midway, or the server is being freed). The request is freed when it returns; answering it there
 * does nothing. */
void http_on_gone(struct http_request *req, void (*fn)(struct http_request *req, void *arg), void *arg);
/* This request waits for what may never come, or is answered by a stream without an end. See invariant 11. Also said later: a client that has left by then goes. */
void http_set_long_poll(struct http_request *req);

/* The standard reason phrase. */
const char *http_status_text(int status);

#endif
