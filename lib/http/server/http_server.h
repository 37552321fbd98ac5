/* http_server: HTTP/1.1 on libevent, for daemons with one event loop.
 *
 * The server owns its connections. It calls a handler when the head and the body of a request are complete. The
 * handler replies at once or later. A `struct http_request *` is valid until the reply is complete (http_reply*,
 * http_problem*, http_stream_end) or the client is gone. A handler that replies later sets a callback with
 * http_on_gone, and this callback must drop the pointer to the request.
 *
 * 1. Replies are sent in the order of their requests. A connection has at most one request in a handler. Meanwhile
 *    the server keeps pipelined requests unparsed, up to a limit of bytes.
 * 2. For a request, the server uses memory for at most max_body bytes of body (the route's limit), HTTP_HEADERS_MAX
 *    bytes of headers and a small fixed buffer. A larger request gets 413, 431 or 414, and the server closes the
 *    connection.
 * 3. A request with ambiguous framing gets 400, and the server closes the connection. See http_parse.h.
 * 4. The server closes a connection if the client does not complete a head within header_timeout, sends no byte of a
 *    body for body_timeout, or accepts no byte of a pending reply for write_timeout.
 * 5. For HEAD, the server calls the GET handler and omits the body. A method that the route does not support gets 405
 *    with Allow.
 * 6. If a request has Expect: 100-continue, the server sends 100 before the body arrives, unless the headers alone
 *    make it refuse the request.
 * 7. If there are more than max_connections connections, a request on a further connection gets 503 with Retry-After,
 *    and the server closes the connection. The same happens if descriptors run short. A quarter of RLIMIT_NOFILE, but
 *    at most 256 descriptors, is reserved for the daemon's own files.
 * 8. For all clients together, the server holds at most max_buffered bytes of requests and replies, plus one reply.
 *    Above this limit it closes those stalled connections that hold the most, and requests get 503 `overloaded`,
 *    except those to built-in endpoints.
 * 9. A reply to an HTTP/1.0 client is never chunked. The server ends a stream to such a client by closing the
 *    connection.
 * 10. The metrics in `stats` count each reply by its route. The measured time ends with the headers of the reply.
 * 11. If a client shuts down only its sending side, as nc does, it still gets the replies in progress and its stream.
 *     But after http_set_long_poll the server treats such a client as gone, because the request may last for ever and
 *     hold leases.
 * 12. The server runs in the loop's thread and never blocks. Several servers may share routes, statistics and limits, each in a thread
 *     of its own with its own event base (daemon/workers.h). It calls no handler or callback from within a reply
 *     function. Replies are sent when control returns to the loop. The program must ignore SIGPIPE.
 *
 * 13. If allowed_origins is set, or the route is public, the server answers OPTIONS itself and adds the headers of CORS to every reply.
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
#define HTTP_TARGET_MAX (48 * 1024) /* a longer request target gets 414 */

enum http_method { HTTP_GET_ = 1, HTTP_POST_ = 2, HTTP_PUT_ = 4, HTTP_DELETE_ = 8, HTTP_OPTIONS_ = 16 };

typedef void http_handler(struct http_request *req, void *ctx);

#define HTTP_ROUTE_NEEDS_TOKEN 1   /* stops, deletes or resets: requires the token or allow_admin */
#define HTTP_ROUTE_WHEN_READY 2    /* 503 with the reason until the daemon is ready */
#define HTTP_ROUTE_LENIENT 4       /* ignores an unknown parameter unless it looks like a misspelling */
#define HTTP_ROUTE_NO_HEAD 8       /* GET has side effects, so HEAD gets 405 */
#define HTTP_ROUTE_DECODES_BODY 16 /* decompresses gzip and zstd; 415 for another Content-Encoding */
#define HTTP_ROUTE_PUBLIC 32       /* open to web pages of any origin, see allowed_hosts */
#define HTTP_ROUTE_WRITES 64 /* requires a token with the scope `write`; other routes `read`, or `admin` */
#define HTTP_ROUTE_CHECKS_KEYS                                                                               \
    128                     /* open to tokens with a list of keys: it shows only what http_may_see allows */
#define HTTP_ROUTE_OPEN 256 /* never requires the token */

struct http_route {
    const char *path;
    unsigned methods; /* of enum http_method */
    unsigned flags;
    size_t max_body; /* bytes; 0: the server's max_body */
    http_handler *handler;
    /* Called before the server refuses a request with 503 `overloaded`. Returns true if it has replied instead. May
     * be NULL. */
    bool (*on_overload)(struct http_request *req, void *ctx);
    const char *help;   /* one line for the list of endpoints */
    const char *params; /* allowed parameters, separated by spaces; NULL: any */
};

/* A request that has ended. The texts are valid during the call. */
struct http_ended {
    const char *peer;
    const char *token;         /* the name of its token; NULL: none, or auth_token */
    struct bytes method, path; /* as received, without parameters; empty if the request was malformed */
    int status;                /* 0: the client was gone before the reply */
    bool is_cut;               /* the client was gone before the end of the reply */
    uint64_t bytes;            /* of the reply, with its headers, as far as it was made */
    usec_t usec;               /* since the first byte of the request */
};

struct http_server_config {
    struct event_base *base;
    struct stats *stats;
    void *ctx;                       /* for every handler */
    const struct http_route *routes; /* static; a row with a NULL path ends the table */
    size_t max_body;                 /* bytes, for routes without a max_body */
    int max_connections;
    size_t max_buffered;                                              /* bytes; 0: unlimited */
    usec_t header_timeout, body_timeout, write_timeout, idle_timeout; /* 0: never */
    const char *auth_token; /* required, except for /ping, /health and OPTIONS; NULL: no token */
    struct http_tokens
        *tokens;      /* further tokens, each with scopes; NULL: none. The server takes a reference. */
    bool allow_admin; /* HTTP_ROUTE_NEEDS_TOKEN routes need no token (--allow-exit) */
    /* Another server of this process, whose limits on connections and memory this server shares. It must outlive this server. NULL: none. */
    struct http_server *first;
    bool is_shared;            /* other servers accept from the same listening socket */
    size_t public_max_body;    /* bytes of a request on a public connection; 0: as max_body */
    uint64_t public_rate;      /* requests a second on all public connections; above it 429; 0: unlimited */
    const char *allowed_hosts; /* additional hosts for Host and Origin (http_origin.h); NULL: no check */
    const char *
        allowed_origins; /* origins whose pages may call all routes and read the answers (http_origin.h); NULL: none */
    /* Called once for each request, when its reply is complete or the client is gone; may be NULL. */
    void (*on_end)(void *arg, const struct http_ended *e);
    void *on_end_arg;
    const char *server_name;             /* the Server header: "millrace-simplequeue/0.1.0" */
    const char *(*not_ready)(void *arg); /* the reason, valid until the next call; NULL when ready */
    const char *(*degraded)(void *arg);  /* likewise, but only /health reports the reason; may be NULL */
    const char *(*warnings)(void *arg);  /* lines that /health adds to a 200; NULL: none */
    void *not_ready_arg;                 /* of the three calls above */
    /* Adds members to /stats JSON (`,"name":...`) and lines to its text; may be NULL. */
    void (*extra_stats)(void *ctx, bool json, struct buf *out);
    /* For /stats?reset=1: resets the numbers that extra_stats shows. The numbers of /metrics are never reset. May be
     * NULL. */
    void (*reset_stats)(void *ctx);
    /* Adds headers to the reply of /stats; may be NULL. */
    void (*stats_headers)(void *ctx, struct http_request *req);
};

struct http_server *http_server_new(const struct http_server_config *config);
/* Replaces the tokens. Requests in progress keep theirs. */
void http_server_set_tokens(struct http_server *s, struct http_tokens *tokens);
/* The number of descriptors, of those that RLIMIT_NOFILE allows, for files that a daemon keeps open, and for
 * connections (invariant 7). */
int http_descriptors_for_files(void);
int http_descriptors_for_connections(void);
/* The smallest RLIMIT_NOFILE that allows this number of files or connections. */
size_t http_descriptors_with_files(size_t files);
size_t http_descriptors_with_connections(size_t connections);
/* Accepts connections on a listening socket. The server owns the socket and may have several. Returns 0 or -1. If
 * is_public is true, connections reach only HTTP_ROUTE_PUBLIC routes and need no token. All public connections
 * together may use half of max_connections and half of the descriptors for connections. */
int http_server_listen_fd(struct http_server *s, int fd, bool is_public);
/* Stops accepting and closes idle connections. Requests in progress are answered normally, with Connection: close. */
void http_server_drain(struct http_server *s);
/* The number of open connections, of all servers that share their limits. After a drain, 0 means that every reply was delivered. */
size_t http_server_connections(const struct http_server *s);
/* Closes all connections at once. Calls on_gone of each request that is in a handler. */
void http_server_free(struct http_server **s);

/* The request. Text that these functions return is valid until the request ends. */
enum http_method http_method(const struct http_request *req);
bool http_is_head(const struct http_request *req);
const char *http_path(const struct http_request *req); /* decoded, without the query */
struct bytes http_body(struct http_request *req);      /* the gathered body; may be empty */
/* Moves the body out of the request. The caller frees it, and declares it with http_set_held_bytes while it keeps it. */
struct buf http_take_body(struct http_request *req);
bool http_param(const struct http_request *req, const char *name, struct bytes *value);
const struct url_query *http_query(const struct http_request *req);
/* If the body is an HTML form (application/x-www-form-urlencoded), puts its parameters before those of the target. If the form is
 * malformed, the function replies 400 and returns false. */
bool http_take_form(struct http_request *req);
/* Returns the value of the first header with this name, or BYTES_NONE. The case of the name does not matter. */
struct bytes http_header(const struct http_request *req, const char *name);
/* The monotonic time at which the server began to process this input of the connection. If called later, outside the
 * handler, the current time. */
usec_t http_now(const struct http_request *req);
const char *http_peer(const struct http_request *req); /* "127.0.0.1:54321" or "unix" */
/* True if the client may use HTTP_ROUTE_NEEDS_TOKEN routes. */
bool http_is_admin(const struct http_request *req);
/* False if the request's token has a list of keys without this key. */
bool http_may_see(const struct http_request *req, struct bytes ns, struct bytes key);
/* For a restricted operation of an otherwise open route. If the client may not use HTTP_ROUTE_NEEDS_TOKEN routes, the
 * function replies 403 and returns false. */
bool http_require_admin(struct http_request *req);
/* For an operation that changes stored data. If a token is configured, the request must have the token. Otherwise the
 * client must be on this host. If not, the function replies 403 and returns false. */
bool http_require_local(struct http_request *req);
/* For a non-public operation of an HTTP_ROUTE_PUBLIC route. If a web page of another origin sent the request, or the
 * connection is public, the function replies 403 and returns false. */
bool http_require_same_origin(struct http_request *req);

/* Parameters. If the value is invalid, each function replies 400 and returns false. If the parameter is missing, *out
 * gets the fallback. */
bool http_param_u64(
    struct http_request *req, const char *name, uint64_t fallback, uint64_t min, uint64_t max, uint64_t *out);
/* Accepts only a valid name (bytes_is_name) and terminates it with a NUL. If `fallback` is NULL, the parameter is
 * required. */
bool http_param_name(
    struct http_request *req, const char *name, const char *fallback, char out[NAME_LEN_MAX + 1]);
bool http_param_bool(struct http_request *req, const char *name, bool fallback, bool *out);

/* Headers of the reply. Add these before the reply starts. http_add_header removes control bytes from the value. The
 * other functions are faster, but the value must not contain control bytes. */
void http_add_header(struct http_request *req, const char *name, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void http_add_header_text(struct http_request *req, const char *name, const char *value);
void http_add_header_line(struct http_request *req, struct bytes line); /* a whole line, with its CRLF */
void http_add_header_u64(struct http_request *req, const char *name, uint64_t value);

/* Replies. Each of these functions ends the request. The functions copy the body. If content_type is NULL, the type
 * is text/plain; charset=utf-8. */
void http_reply(struct http_request *req, int status, const char *content_type, struct bytes body);
void http_replyf(struct http_request *req, int status, const char *content_type, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* Takes over the memory of a large body instead of copying. Afterwards *body is empty. The caller still owns *body. */
void http_reply_buf(struct http_request *req, int status, const char *content_type, struct buf *body);
/* Moves the content out of the evbuffer. The caller still owns the evbuffer. */
void http_reply_evbuffer(
    struct http_request *req, int status, const char *content_type, struct evbuffer *body);
/* application/problem+json: {"type":"about:blank","title":...,"status":N,"code":"stable-code","detail":...}. A 503 or
 * 429 gets Retry-After: 1 unless the handler has added this header. `hint` is advice for the client. May be NULL. */
void http_problem(struct http_request *req, int status, const char *code, const char *hint, const char *fmt,
    ...) __attribute__((format(printf, 5, 6)));
/* The list of endpoints, the built-in reply to "/". */
void http_reply_endpoints(struct http_request *req);
/* As http_problem, with additional members `"name":value,...` as JSON text. */
void http_problem_with(struct http_request *req, int status, const char *code, const char *members,
    const char *fmt, ...) __attribute__((format(printf, 5, 6)));

/* A streamed reply: one start, any number of writes, one end. For HEAD, the writes have no effect. */
void http_stream_start(struct http_request *req, int status, const char *content_type);
void http_stream_write(struct http_request *req, struct bytes piece);              /* copies */
void http_stream_write_evbuffer(struct http_request *req, struct evbuffer *piece); /* moves */
/* Writes one piece that consists of spans of a file, with sendfile. The server calls `done` once, when the spans are
 * sent or dropped. Until this call, the spans must not change and the descriptor must stay open. */
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
/* Ends a reply early. If the reply is chunked, the server sends the pieces written so far and closes the connection
 * without the last chunk. Otherwise it resets the connection. */
void http_stream_truncate(struct http_request *req);
/* The number of bytes that the stream has written and the kernel has not taken. A stream should stop writing when
 * this number exceeds a limit of its own. Whenever the number falls to `low` or below, the loop calls `fn` of
 * http_on_drain, and the stream can continue. */
size_t http_stream_pending(const struct http_request *req);
void http_on_drain(
    struct http_request *req, size_t low, void (*fn)(struct http_request *req, void *arg), void *arg);
/* The number of bytes that the kernel has taken since the connection began. Its growth shows the client's speed. */
uint64_t http_stream_taken(const struct http_request *req);
/* Exempts this stream from write_timeout and max_buffered. The handler itself must limit the pending bytes. */
void http_stream_disable_timeout(struct http_request *req);
/* Removes the last pieces of the body from the output, as far as their sending has not begun. Only for streams
 * without a timeout. Returns the number of bytes removed. The stream may write these bytes again later. The function
 * copies the bytes that remain, except spans of files. */
size_t http_stream_rewind(struct http_request *req);
/* Copies the pending bytes that are still in borrowed memory, so that the handler may free this memory. */
void http_stream_copy_pending(struct http_request *req);

/* Declares how many bytes of memory the handler holds for this request until the reply. These bytes count towards
 * max_buffered. */
void http_set_held_bytes(struct http_request *req, size_t bytes);
/* False if the server holds more than max_buffered bytes. In this case the handler should not collect more data. */
bool http_has_memory(const struct http_request *req);
/* As http_set_held_bytes, but with a limit. If this request would hold more than half of max_buffered, returns
 * HTTP_HOLD_TOO_LARGE. If all requests together would exceed max_buffered, returns HTTP_HOLD_OVERLOADED. In both
 * cases the declared number stays unchanged. */
enum http_hold { HTTP_HOLD_OK, HTTP_HOLD_OVERLOADED, HTTP_HOLD_TOO_LARGE };
enum http_hold http_hold(struct http_request *req, size_t bytes);
/* Replies 503 `overloaded`, or 413 `answer-too-large` with the hint. */
void http_refuse_hold(struct http_request *req, enum http_hold why, const char *hint);
/* The server calls `fn` once if the client is gone before the reply is complete: the client closed or reset the
 * connection, a time limit passed, or the server is freed. When `fn` returns, the server frees the request. A reply
 * from within `fn` has no effect. */
void http_on_gone(struct http_request *req, void (*fn)(struct http_request *req, void *arg), void *arg);
/* Declares that the request may wait for ever, or that its stream has no end (invariant 11). If the client is already
 * gone, the request ends. */
void http_set_long_poll(struct http_request *req);

#endif
