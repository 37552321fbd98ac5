/* http_internal: declarations that the server's files share. Each file calls only the files above it in this list:
 *
 *     http_parse.c         parse bytes into a request, pure
 *     http_inflate.c       decompress a body, pure
 *     http_output.c        unsent bytes of a connection, the schedule of turns, and the limit on memory of all clients
 *     http_reply.c         replies, problems, streams and their rewind
 *     http_origin.c        detect requests from web pages of other sites, pure
 *     http_request.c       accessors for handlers
 *     http_route.c         select the route, check access
 *     http_builtin.c       the endpoints of every daemon
 *     http_conn.c          a connection's turn: read, parse, run the handler, write
 *     http_server.c        listening, accepting, connections above the limit, time limits, drain
 *
 * All work on a connection happens in a turn. A turn runs when the socket is readable or writable, or when a turn was
 * scheduled. A turn handles one request after the other and writes all replies at the end of the turn. A handler that
 * replies later queues the reply and schedules a turn. Turns have three consequences:
 *
 * 1. No handler runs inside another handler's http_reply.
 * 2. Pipelined requests do not nest on the stack, even if a client sends many.
 * 3. A connection is freed only at the end of its turn, when none of its callbacks is on the stack.
 *
 * The request is a member of its connection. Buffers up to HTTP_KEPT_BUFFER_MAX bytes are kept for the next request. */
#ifndef MILLRACE_HTTP_INTERNAL_H
#define MILLRACE_HTTP_INTERNAL_H

#include "http/server/http_inflate.h"
#include "http/server/http_parse.h"
#include "base/rate_limit.h"
#include <event2/event.h>
#include <sys/queue.h>

#define HTTP_READ_SIZE (64 * 1024) /* of one read(2) */
#define HTTP_UNPARSED_MAX                                                                                    \
    (64 * 1024) /* with more unparsed bytes, the server stops reading from the connection */
#define HTTP_UNSENT_MAX (64 * 1024)        /* with more unsent bytes, the server begins no further request */
#define HTTP_KEPT_BUFFER_MAX (4 * 1024)    /* larger buffers are freed between requests */
#define HTTP_COPIED_MAX (16 * 1024)        /* larger content is not copied into http_conn.staged */
#define HTTP_BODY_PREALLOC_MAX (64 * 1024) /* maximum memory for a body that has not arrived yet */
#define HTTP_CORKED_MAX 16                 /* maximum number of replies that wait to be sent together */
#define HTTP_CORK_USEC_MAX 300             /* longest wait of the first corked reply */

#define HTTP_REQUEST_MAGIC 0x48747252u
#define HTTP_CONN_MAGIC 0x4874436fu

/* A route with its metrics. */
struct http_endpoint {
    const struct http_route *row;
    struct bytes path; /* up to the `*` of a pattern */
    struct bytes tail; /* of a pattern, after the `*`; .ptr NULL: no pattern */
    void *ctx;
    struct stats_histogram *seconds;
    struct stats_counter *by_status[600]; /* registered on first use */
};

enum http_reply_state {
    HTTP_REPLY_NONE,
    HTTP_REPLY_STREAMING,
    HTTP_REPLY_DONE,
};

/* A mark is a position between two pieces of a streamed body, counted in bytes queued on the connection and in bytes of
 * the body. The marks of a request begin with the oldest mark. */
struct http_mark {
    uint64_t queued, written;
};
struct http_marks {
    struct http_mark *at;
    size_t n, cap;
};

struct http_request {
    unsigned magic;
    struct http_conn *conn;
    struct http_head head;
    struct buf path; /* decoded, NUL-terminated */
    struct buf body;
    struct buf extra; /* header lines of http_add_header */
    struct url_query query;
    struct http_marks marks;
    struct http_inflate *inflate; /* decompressor of the body; NULL: the body is stored as received */
    struct http_tokens *tokens;   /* the table of `token`; the request has a reference */
    struct http_token *token;     /* NULL: none, or auth_token */

    /* http_request_reset sets all following members to zero. */
    bool live;       /* the head of the request is complete, but the reply is not */
    bool gone;       /* on_gone is running, so replies are dropped */
    bool keep_alive; /* the connection stays open after the reply */
    bool is_admin;   /* the client may use HTTP_ROUTE_NEEDS_TOKEN routes */
    enum http_refusal refusal;
    struct http_endpoint *endpoint;
    unsigned allowed; /* methods of the path, for a reply with status 405 */
    uint64_t body_bytes;

    enum http_reply_state reply;
    int status;          /* status of the reply; 0: not begun */
    uint64_t reply_from; /* value of `queued` before the reply */
    bool has_retry_after, chunked;
    bool long_poll, no_timeout;
    uint64_t written;  /* bytes written to a streamed body */
    size_t held_bytes; /* http_set_held_bytes */
    usec_t began;

    void (*on_gone)(struct http_request *, void *);
    void *on_gone_arg;
    void (*on_drain)(struct http_request *, void *);
    void *on_drain_arg;
    size_t drain_low;
    bool above_low;
};

enum http_conn_state {
    HTTP_CONN_IDLE,      /* between requests */
    HTTP_CONN_HEADER,    /* inside a head */
    HTTP_CONN_BODY,      /* inside a body */
    HTTP_CONN_HANDLER,   /* the request is complete, but the reply is not */
    HTTP_CONN_FINISHING, /* the connection closes once all output is written */
    HTTP_CONN_LINGERING, /* the socket is shut down for writing; input is discarded */
};

struct http_conn {
    unsigned magic;
    struct http_server *server;
    TAILQ_ENTRY(http_conn) link;
    TAILQ_ENTRY(http_conn) scheduled_link;
    int fd;
    struct event *read_event, *write_event;
    bool reading, writing; /* whether read_event and write_event are added */
    enum http_conn_state state;
    usec_t since; /* time when the state began, or when the newest byte of a body arrived */
    bool in_turn, scheduled;
    bool corked; /* the turn is scheduled only to send a corked reply */
    bool eof, broken, reset, first, over_limit, is_public;
    bool read_once_more; /* the server drains: read once more before closing the idle connection */
    bool unread;         /* the client may still send bytes that the server does not parse */

    struct http_body_decoder body;
    bool message_complete;
    struct buf in; /* received bytes; in_at is the first unparsed byte */
    size_t in_at;

    struct buf staged;    /* output after `out`, sent by one call at the end of the turn */
    struct evbuffer *out; /* output that the socket refused, and large bodies */
    bool out_used;        /* false: `out` is empty */
    bool blocked;         /* the last write was incomplete */
    bool has_files;       /* `out` may hold spans of files */
    uint64_t files_end;   /* value of `queued` after the last span of a file */
    uint64_t queued;      /* number of bytes queued since the connection began */
    uint64_t taken;       /* bytes that the kernel had taken at taken_at */
    usec_t taken_at;

    size_t held; /* the connection's share of http_totals.buffered */
    bool evicted;
    uint64_t moved, moved_before; /* number of bytes received and sent, now and at moved_at */
    usec_t moved_at;

    char peer[80];
    struct http_request req;
};

TAILQ_HEAD(http_conn_list, http_conn);

struct http_listener;

/* Totals over all servers of a process that share their limits. */
struct http_totals {
    _Atomic size_t conns;
    _Atomic size_t buffered; /* bytes held for all connections */
};

struct http_server {
    struct http_server_config config;
    char *auth_token, *allowed_hosts, *allowed_origins;
    struct bytes public_path; /* without a slash at its end; ptr NULL: none */
    struct http_tokens *tokens;
    struct buf server_line;
    struct http_endpoint *endpoints;
    size_t n_endpoints;              /* the daemon's endpoints, then the built-in endpoints */
    struct http_endpoint *unknown;   /* after the built-in endpoints; counts requests without a route */
    struct http_endpoint *preflight; /* last of `endpoints`; answers OPTIONS requests of web pages */

    struct http_listener *listeners;
    bool accept_logged;
    struct event *accept_again;

    struct http_conn_list conns, scheduled;
    size_t n_over_limit, n_public;
    struct rate_limit public_rate;
    bool draining, in_scheduled;
    unsigned n_corked;
    usec_t corked_since;
    struct http_totals own_totals, *totals; /* totals of all servers that share the limits */
    usec_t eviction_checked_at;
    struct stats_counter *evicted, *refused;
    struct event *scheduled_event, *sweep_event;
    char *read_buffer; /* buffer of HTTP_READ_SIZE bytes for one turn */
    struct buf top;    /* first lines of a 200 reply; Content-Type follows top_common */
    size_t top_common;
    usec_t top_at; /* when `top` was composed */
    usec_t now;    /* time when the current turn or batch of turns began */
};

static inline void http_shed(struct buf *b) /* empties a buffer, and frees a large buffer */
{
    if (b->cap > HTTP_KEPT_BUFFER_MAX)
        buf_free(b);
    else
        buf_clear(b);
}

/* http_output.c */
size_t http_output_pending(const struct http_conn *c);
/* Returns the number of bytes that the kernel has taken since the connection began. */
uint64_t http_output_taken(const struct http_conn *c);
/* Returns a buffer with room for `room` bytes. The caller appends bytes and adds their number to `queued`. */
struct buf *http_output_stage(struct http_conn *c, size_t room);
void http_output_write(struct http_conn *c, const void *p, size_t n);
void http_output_write_evbuffer(struct http_conn *c, struct evbuffer *b);
void http_output_write_buf(struct http_conn *c, struct buf *b); /* takes over the memory of a large buffer */
void http_output_write_file(
    struct http_conn *c, const struct http_file *file, const struct http_span *spans, size_t n);
/* Drops all output after the first `queued` bytes of the connection. The kernel must not have taken any dropped byte.
 * Copies the unsent bytes that remain, except spans of files. */
void http_output_cut(struct http_conn *c, uint64_t queued);
/* Sends as many bytes as the socket accepts. Sets `blocked` if bytes remain and `broken` after an error. */
void http_output_flush(struct http_conn *c);
/* Updates the connection's share of http_totals.buffered. */
void http_output_account(struct http_conn *c);
/* Schedules a turn, unless the connection is in its turn. Functions that queue a reply call http_output_schedule. */
void http_output_schedule(struct http_conn *c);
/* Returns false if the server holds more than max_buffered bytes. Above max_buffered, the function also closes stalled
 * connections to free memory. */
bool http_memory_available(struct http_server *s);

/* http_request.c: prepares the structure for the next request. */
void http_request_reset(struct http_request *req);

/* http_route.c */
/* Sets the endpoints. The route `preflight` answers OPTIONS requests of web pages. */
void http_route_init(
    struct http_server *s, const struct http_route *builtin, const struct http_route *preflight);
/* Sets the request's endpoint. Returns a reason if the head alone shows that the request must be refused. */
enum http_refusal http_route_judge(struct http_request *req);
void http_route_refuse(struct http_request *req);
size_t http_route_max_body(const struct http_request *req);
void http_route_add_allow(struct http_request *req); /* adds Allow with req->allowed */
void http_route_add_methods(
    struct http_request *req, const char *header);                 /* adds the methods under another name */
bool http_not_ready(const struct http_server *s, struct buf *why); /* appends the reason; `why` may be NULL */
bool http_refuse_not_ready(struct http_request *req);              /* true: it has replied 503 */

/* http_builtin.c: the built-in routes, whose ctx is the server. A row with a NULL path ends the table. */
extern const struct http_route http_builtin_routes[];
extern const struct http_route http_preflight_route;

/* http_conn.c */
struct http_conn *http_conn_new(struct http_server *s, int fd, const char *peer);
void http_conn_free(struct http_conn *c); /* calls on_gone if the reply is incomplete */
/* Runs a turn, which begins with a read if `reads` is true. Returns false if the connection was freed. */
bool http_conn_turn(struct http_conn *c, bool reads);
/* The callback of scheduled_event, which uses only `server`. */
void http_conn_run_scheduled(evutil_socket_t fd, short what, void *server);
/* True if the connection has exceeded a time limit and must be closed. */
bool http_conn_is_late(struct http_conn *c, usec_t now);

#endif
