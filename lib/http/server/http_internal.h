/* http_internal: what the server's files share. No other file includes it. Each file calls only those above it:
 *
 *     http_parse.c         bytes to a request, pure
 *     http_output.c        a connection's unsent bytes, and scheduling its next turn
 *     http_memory_limit.c  the limit on memory held for all clients together
 *     http_rewind.c        places at which a streamed body can be cut
 *     http_reply.c         replies, problems, streams
 *     http_origin.c        whether a web page of another site sent a request, pure
 *     http_request.c       the handler's view of a request
 *     http_route.c         which route answers, and who may call it
 *     http_builtin.c       the endpoints every daemon has
 *     http_conn.c          a connection's turn: read, parse, run the handler, write
 *     http_overload.c      connections past the limit
 *     http_server.c        listening, accepting, time limits, drain
 *
 * A connection acts only in a turn (http_conn_turn), which the event loop starts: the socket is readable or writable, or
 * the turn was scheduled. A turn parses and handles requests one after the other and writes all their replies at its end.
 * A reply given outside a turn is kept, and the connection scheduled. Therefore no handler runs inside another's
 * http_reply, any number of pipelined requests takes one stack frame, and a connection is freed only at the end of its
 * turn, when none of its callbacks is on the stack.
 *
 * The request is part of its connection; its buffers survive from one request to the next, up to HTTP_KEPT_BUFFER_MAX. */
#ifndef MILLRACE_HTTP_INTERNAL_H
#define MILLRACE_HTTP_INTERNAL_H

#include "http/server/http_parse.h"
#include "base/rate_limit.h"
#include <event2/event.h>
#include <sys/queue.h>

#define HTTP_READ_SIZE (64 * 1024)         /* of one read(2) */
#define HTTP_UNPARSED_MAX (64 * 1024)      /* reading stops above it */
#define HTTP_UNSENT_MAX (64 * 1024)        /* no further request is begun above it */
#define HTTP_KEPT_BUFFER_MAX (4 * 1024)    /* larger buffers are freed between requests */
#define HTTP_COPIED_MAX (16 * 1024)        /* larger content is not copied to join its neighbours */
#define HTTP_BODY_PREALLOC_MAX (64 * 1024) /* allocated on the word of a Content-Length */
#define HTTP_CORKED_MAX 16                 /* replies that wait to be sent together */
#define HTTP_CORK_USEC_MAX 300             /* how long the first of them waits */
#define HTTP_ROUTE_OPEN 0x100              /* a built-in route that never requires the token */

#define HTTP_REQUEST_MAGIC 0x48747252u
#define HTTP_CONN_MAGIC 0x4874436fu

/* A route with its metrics. */
struct http_endpoint {
    const struct http_route *row;
    size_t path_len;
    void *ctx;
    struct stats_histogram *seconds;
    struct stats_counter *by_status[600]; /* registered on first use */
    struct http_endpoint *same_path;      /* the route of other methods */
};

enum http_reply_state {
    HTTP_REPLY_NONE,
    HTTP_REPLY_STREAMING,
    HTTP_REPLY_DONE,
};

/* Places between two pieces of a streamed body, oldest first: bytes queued on the connection, and bytes of the body. */
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

    /* http_request_reset zeroes the rest. */
    bool live;       /* headers are complete, the reply is not */
    bool gone;       /* on_gone is running: replies are dropped */
    bool keep_alive; /* after this reply */
    enum http_refusal refusal;
    struct http_endpoint *endpoint;
    unsigned allowed; /* methods of the path, for 405 */
    uint64_t body_bytes;

    enum http_reply_state reply;
    bool has_retry_after, chunked, has_length;
    bool long_poll, no_timeout;
    uint64_t length_left; /* of a streamed body with a Content-Length */
    uint64_t written;     /* bytes of a streamed body */
    size_t held_bytes;    /* by its handler */
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
    HTTP_CONN_HANDLER,   /* the request is complete, its reply is not */
    HTTP_CONN_FINISHING, /* closes once everything is written */
    HTTP_CONN_LINGERING, /* shut down for writing; discards what the client still sends */
};

struct http_conn {
    unsigned magic;
    struct http_server *server;
    TAILQ_ENTRY(http_conn) link;
    TAILQ_ENTRY(http_conn) scheduled_link;
    int fd;
    struct event *read_event, *write_event;
    bool reading, writing; /* whether they are added */
    enum http_conn_state state;
    usec_t since; /* the state began, or the newest byte of a body came */
    bool in_turn, scheduled;
    bool corked; /* scheduled only to send a reply that waits for others */
    bool eof, broken, reset, first, over_limit, is_public;
    bool read_once_more; /* draining: read once more before closing an idle connection */
    bool unread;         /* the client may still send bytes that are not parsed */

    struct http_body_decoder body;
    bool message_complete;
    struct buf in; /* received and not parsed, from in_at on */
    size_t in_at;

    struct buf staged;    /* written after `out`, in one go at the end of the turn */
    struct evbuffer *out; /* what the socket did not take, and large bodies */
    bool out_used;        /* false: `out` is empty */
    bool blocked;         /* the last write left a rest */
    bool has_files;       /* `out` may hold spans of files */
    uint64_t files_end;   /* value of `queued` behind the last of them */
    uint64_t queued;      /* bytes queued since the connection began */
    uint64_t taken;       /* by the kernel, at taken_at */
    usec_t taken_at;

    size_t held; /* its share of http_server.buffered */
    bool evicted;
    uint64_t moved, moved_before; /* bytes received and sent, now and at moved_at */
    usec_t moved_at;

    char peer[80];
    struct http_request req;
};

TAILQ_HEAD(http_conn_list, http_conn);

struct http_listener;

struct http_server {
    struct http_server_config config;
    char *auth_token, *allowed_hosts;
    struct buf server_line;
    struct http_endpoint *endpoints;
    size_t n_endpoints;           /* the daemon's first, then the built-in */
    struct http_endpoint **slots; /* hash table of paths, open addressing, at most half full */
    size_t slots_mask;
    struct http_endpoint *unknown; /* counts requests without a route */

    struct http_listener *listeners;
    bool accept_logged;
    struct event *accept_again;

    struct http_conn_list conns, scheduled;
    size_t n_conns, n_over_limit, n_public;
    struct rate_limit public_rate;
    bool draining, in_scheduled;
    unsigned n_corked;
    usec_t corked_since;
    size_t buffered; /* bytes held for all connections */
    usec_t eviction_checked_at;
    struct stats_counter *evicted, *refused;
    struct event *scheduled_event, *sweep_event;
    struct buf spare_body; /* memory for the next large body */
    struct buf spare;      /* memory for the next large `staged` */
    char *read_buffer;     /* HTTP_READ_SIZE bytes, used within one turn */
    struct buf top;        /* first lines of a 200 reply: up to top_common of all, then of plain text */
    size_t top_common;
    usec_t top_at; /* when `top` was composed */
    usec_t now;    /* when the current turn, or run of scheduled turns, began */
};

static inline void http_shed(struct buf *b) /* empties it, keeping a small buffer's memory */
{
    if (b->cap > HTTP_KEPT_BUFFER_MAX)
        buf_free(b);
    else
        buf_clear(b);
}

/* http_output.c: appending to the bytes to send. */
size_t http_output_pending(const struct http_conn *c);
uint64_t http_output_taken(const struct http_conn *c); /* bytes the kernel took since the connection began */
/* A buffer with that room. The caller appends and adds the same to `queued`. */
struct buf *http_output_stage(struct http_conn *c, size_t room);
void http_output_write(struct http_conn *c, const void *p, size_t n);
void http_output_write_evbuffer(struct http_conn *c, struct evbuffer *b);
void http_output_write_buf(struct http_conn *c, struct buf *b); /* takes over a large buffer's memory */
void http_output_write_file(
    struct http_conn *c, const struct http_file *file, const struct http_span *spans, size_t n);
/* Drops everything queued from there on, none of it taken yet. The rest is copied unless it lies in files. */
void http_output_cut(struct http_conn *c, uint64_t queued);
/* Sends as much as the socket takes. Sets blocked or broken. */
void http_output_flush(struct http_conn *c);
/* Accounts for a change of what the connection holds. */
void http_output_account(struct http_conn *c);
/* Has the loop give it a turn, with the others that are scheduled. */
void http_output_schedule_turn(struct http_conn *c);
/* The same from outside a turn, for a reply. Does nothing in the connection's own turn. */
void http_output_schedule(struct http_conn *c);

/* http_memory_limit.c: false past max_buffered. Evicts stalled connections. */
bool http_memory_available(struct http_server *s);

/* http_rewind.c */
void http_mark_piece(struct http_request *req); /* before a piece is written */

/* http_request.c */
/* Forgets the request; the buffers keep small memory. */
void http_request_reset(struct http_request *req);

/* http_route.c */
void http_route_init(struct http_server *s, const struct http_route *builtin);
void http_route_free(struct http_server *s);
/* Sets the endpoint, and the refusal if the head alone decides it. */
void http_route_find(struct http_request *req);
void http_route_refuse(struct http_request *req);
size_t http_route_max_body(const struct http_request *req);
void http_route_add_allow(struct http_request *req);     /* the methods in req->allowed */
const char *http_not_ready(const struct http_server *s); /* NULL: ready */

/* http_builtin.c: rows whose ctx is the server, ended by a NULL path. */
extern const struct http_route http_builtin_routes[];

/* http_conn.c */
struct http_conn *http_conn_new(struct http_server *s, int fd, const char *peer);
void http_conn_free(struct http_conn *c); /* a live request gets its on_gone */
/* Receives, and runs a turn. False: the connection was freed. */
bool http_conn_read(struct http_conn *c);
void http_conn_run_scheduled(struct http_server *s);
/* Whether a time limit has passed: the connection is to be closed. */
bool http_conn_is_late(struct http_conn *c, usec_t now);

/* http_overload.c: a connection past the limit. */
void http_overload_accept(struct http_server *s, int fd, const char *peer, bool has_room);
void http_overload_timeout(struct http_conn *c); /* it sent no request in time */

#endif
