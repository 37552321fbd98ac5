/* http_internal: what the http_* files of the server share. Nothing outside them includes it.
 *
 *     http_server.c   listening, accepting, time limits, drain
 *     http_conn.c     a connection's turn: read, parse, run handlers, write
 *     http_parse.c    bytes to a request
 *     http_route.c    which row of the table answers, who may ask
 *     http_memory_limit.c   what all clients together may make the server hold
 *     http_builtin.c  the endpoints every daemon has
 *     http_request.c  what handlers ask a request
 *     http_reply.c    replies, problems, streams
 *     http_overload.c    who comes when there are too many; event streams that are to come back
 *
 * The turn. Everything a connection does happens in a turn (http_conn_turn), which is entered from the loop
 * only: its socket is readable or writable, or it was scheduled. In a turn requests are parsed and handled in
 * a loop, one after the other, and what they answered is written at its end in one go. A reply given outside
 * the turn (a deferred one, a stream's piece) is kept and the connection scheduled. So no handler ever runs
 * inside another's http_reply, any number of pipelined requests takes one stack frame, and a connection is
 * freed in one place: at the end of its turn, when none of its callbacks is on the stack.
 *
 * The request lives inside its connection and is used again: header table, texts and body buffer keep their
 * memory (up to HTTP_KEPT_BUFFER_MAX bytes) from one request to the next. So does what was read from its head: most clients
 * send the same one again and again, and what is byte for byte as it was is not taken apart anew (http_parse.c).
 */
#ifndef MILLRACE_HTTP_INTERNAL_H
#define MILLRACE_HTTP_INTERNAL_H

#include "http/server/http_server.h"
#include <event2/event.h>
#include <sys/queue.h>

#define HTTP_READ_SIZE (64 * 1024)         /* one read(2) */
#define HTTP_UNPARSED_MAX (64 * 1024)      /* with as much unparsed, reading stops */
#define HTTP_UNSENT_MAX (64 * 1024)        /* with as much unsent, no further request is begun */
#define HTTP_KEPT_BUFFER_MAX (4 * 1024)    /* buffers larger than this are freed between requests */
#define HTTP_COPIED_MAX (16 * 1024)        /* no more is copied to leave with what is beside it */
#define HTTP_BODY_PREALLOC_MAX (64 * 1024) /* no more room is made for a body on the word of its length */
#define HTTP_CORKED_MAX 16                 /* replies that wait to leave together, */
#define HTTP_CORK_USEC_MAX 300             /* and how long, in microseconds */
#define HTTP_HEADER_COUNT_MAX 128          /* more header lines get 431 */
#define HTTP_KNOWN_PARAMS 16               /* heads with more parameters are not known again */
#define HTTP_ROUTE_OPEN 0x100              /* built in: asks for no token */

#define HTTP_REQUEST_MAGIC 0x48747252u
#define HTTP_CONN_MAGIC 0x4874436fu

/* Why a request is answered before, or instead of, its handler. */
enum http_refusal {
    HTTP_REFUSED_NOT,
    HTTP_REFUSED_MALFORMED,
    HTTP_REFUSED_NO_HOST,
    HTTP_REFUSED_TARGET_TOO_LONG,
    HTTP_REFUSED_HEADERS_TOO_LARGE,
    HTTP_REFUSED_BODY_TOO_LARGE,
    HTTP_REFUSED_ENCODING,
    HTTP_REFUSED_EXPECTATION,
    HTTP_REFUSED_CONTENT_ENCODING,
    HTTP_REFUSED_PARAMETER,
    HTTP_REFUSED_UNKNOWN_PARAMETER,
    HTTP_REFUSED_UNKNOWN,
    HTTP_REFUSED_METHOD,
    HTTP_REFUSED_TOKEN,
    HTTP_REFUSED_FORBIDDEN,
    HTTP_REFUSED_FOREIGN_HOST,
    HTTP_REFUSED_FOREIGN_PAGE,
    HTTP_REFUSED_NOT_READY,
    HTTP_REFUSED_OVERLOADED,
    HTTP_REFUSED_CONNECTIONS,
};

/* A row of a table of routes with its numbers. */
struct http_endpoint {
    const struct http_route *row;
    size_t path_len;
    void *ctx;
    struct stats_histogram *seconds;
    struct stats_counter *by_status[600]; /* made when first needed */
    struct http_endpoint *same_path;      /* the row of other methods */
    struct http_endpoint *next_prefix;
};

struct http_header_span {
    size_t name, name_len, value, value_len; /* in http_request.text */
};

enum http_reply_state {
    HTTP_REPLY_NONE,
    HTTP_REPLY_STREAMING,
    HTTP_REPLY_DONE,
};

/* Places between two pieces of a streamed body, oldest first. See http_rewind.c. */
struct http_mark {
    uint64_t queued, written; /* of the connection and of the body, there */
};
struct http_marks {
    struct http_mark *at;
    size_t n, cap;
};

struct http_request {
    unsigned magic;
    struct http_conn *conn;
    bool live; /* headers are there, the reply is not finished */
    bool gone; /* its on_gone runs: answers are dropped */
    enum http_refusal refusal;
    struct http_endpoint *endpoint;
    unsigned allowed; /* methods of the path, for 405 */

    /* As received; the last one's until another begins. */
    struct buf text; /* the head, as it came */
    /* What another that begins with the same bytes is found to be: */
    struct http_endpoint *known_endpoint; /* by the first line; NULL: nothing is known */
    size_t known_lines;                   /* bytes of its lines, without the empty one */
    size_t known_head;                    /* of all of it; 0: only the lines may be used again */
    uint64_t known_length;                /* of the body */
    size_t target, target_len;
    struct http_header_span headers[HTTP_HEADER_COUNT_MAX];
    size_t n_headers;
    size_t header_bytes; /* of names and values; of a chunked body also extensions and trailers */
    bool has_host, has_content_length, is_chunked, asks_close, expects_continue, expects_other;
    bool is_encoded; /* a Content-Encoding but identity */
    struct buf path; /* decoded, NUL-terminated */
    struct url_query query;
    struct buf body;
    uint64_t body_bytes;
    enum http_method method;
    bool is_head, http10, keep_alive, has_body;

    /* The reply. */
    enum http_reply_state reply;
    struct buf extra; /* header lines of http_add_header */
    bool has_retry_after, chunked, body_withheld, has_length;
    uint64_t length_left; /* of a streamed body whose length was told */
    bool long_poll;
    bool patient;     /* no write_timeout */
    uint64_t written; /* bytes of a streamed body */
    struct http_marks marks;
    size_t held_bytes; /* bytes that its handler keeps */
    usec_t began;

    void *data;
    void (*on_gone)(struct http_request *, void *);
    void *on_gone_arg;
    void (*on_drain)(struct http_request *, void *);
    void *on_drain_arg;
    size_t drain_low;
    bool above_low;
};

/* Where in a chunked body the next byte is. */
enum http_chunk {
    HTTP_CHUNK_SIZE,
    HTTP_CHUNK_MORE_SIZE,
    HTTP_CHUNK_EXTENSION,
    HTTP_CHUNK_SIZE_LF,
    HTTP_CHUNK_DATA,
    HTTP_CHUNK_DATA_CR,
    HTTP_CHUNK_DATA_LF,
    HTTP_CHUNK_TRAILERS, /* at a line's beginning */
    HTTP_CHUNK_TRAILER,
    HTTP_CHUNK_TRAILER_LF,
    HTTP_CHUNK_LAST_LF,
    HTTP_CHUNK_END,
    HTTP_CHUNK_BAD,
};

enum http_conn_state {
    HTTP_CONN_IDLE,      /* between requests */
    HTTP_CONN_HEADER,    /* a header has begun */
    HTTP_CONN_BODY,      /* headers are there, the body is coming */
    HTTP_CONN_HANDLER,   /* the whole request is there; its reply is not finished */
    HTTP_CONN_FINISHING, /* no more requests: closes when all is written */
    HTTP_CONN_LINGERING, /* written and shut down; reads away what the client still sends */
};

struct http_conn {
    unsigned magic;
    struct http_server *server;
    TAILQ_ENTRY(http_conn) link;
    TAILQ_ENTRY(http_conn) scheduled_link;
    int fd;
    struct event *read_event, *write_event;
    bool reading, writing; /* which of them are added */
    enum http_conn_state state;
    usec_t since; /* the state's beginning; of a body its newest byte */
    bool in_turn, scheduled;
    bool corked; /* what it was scheduled for, unless there was a turn since */
    bool eof, broken, reset, first, over_limit;
    bool read_once_more; /* draining: before an idle one is closed */
    bool unread;         /* the client may still send what will not be parsed: linger */

    size_t line_at;     /* where in req.text the line at hand begins */
    uint64_t body_left; /* of a body with a length, or of a chunk */
    enum http_chunk chunk;
    bool message_complete;
    struct buf in; /* read, not parsed, from in_at on */
    size_t in_at;

    struct buf staged;    /* to be written after `out`, in one go at the end of the turn */
    struct evbuffer *out; /* what the socket did not take, and large bodies */
    bool out_used;        /* false: nothing is in `out`, which mostly saves asking it */
    bool blocked;         /* the socket did not take all of it when it was last tried */
    bool has_files;       /* some of `out` may lie in files */
    uint64_t files_end;   /* `queued` behind the last of them */
    uint64_t queued;      /* bytes ever queued: queued - pending is what the client took */
    uint64_t taken;
    usec_t taken_at;

    size_t held; /* of http_server.buffered */
    bool evicted;
    uint64_t moved, moved_before; /* bytes read and taken, ever and at moved_at */
    usec_t moved_at;

    char peer[80];
    struct http_request req;
};

TAILQ_HEAD(http_conn_list, http_conn);

struct http_listener;

struct http_server {
    struct http_server_config config;
    char *auth_token;
    char *allowed_hosts;
    struct buf server_line;
    struct http_endpoint *endpoints;
    size_t n_endpoints;           /* the daemon's first, then the built-in */
    struct http_endpoint **slots; /* a hash table of the paths, open addressing, never half full */
    size_t slots_mask;
    struct http_endpoint *prefixes;
    struct http_endpoint *unknown; /* counts what no route answers */

    struct http_listener *listeners;
    bool accept_paused, accept_logged;
    struct event *accept_again;

    struct http_conn_list conns, scheduled;
    size_t n_conns, n_over_limit;
    bool draining, in_scheduled;
    unsigned n_corked;   /* connections whose replies wait to leave together, */
    usec_t corked_since; /* and since when */
    size_t buffered;     /* bytes held for all connections */
    usec_t eviction_checked_at;
    struct stats_counter *evicted, *refused;
    struct event *scheduled_event, *sweep_event;
    struct buf spare_body; /* memory of a body that was answered, for the next large one */
    struct buf spare; /* memory for a connection's large `staged`, which it gives back when that is written */
    char *read_buffer; /* HTTP_READ_SIZE, used within one turn */
    struct buf
        top; /* what replies with status 200 begin with: up to top_common all, then those of plain text */
    size_t top_common;
    usec_t top_at; /* when it was made */
    usec_t now;    /* when the turn at hand, or the run of scheduled ones, began */
};

/* http_conn.c */
struct http_conn *http_conn_new(struct http_server *s, int fd, const char *peer);
void http_conn_free(struct http_conn *c); /* a live request gets its on_gone */
void http_conn_turn(struct http_conn *c, struct bytes fresh);
void http_conn_read(struct http_conn *c);
/* A turn soon: from outside a turn, when there is something to write or parse. */
void http_conn_schedule(struct http_conn *c);
void http_conn_run_scheduled(struct http_server *s);
void http_conn_enter(struct http_conn *c, enum http_conn_state state);
size_t http_conn_pending(const struct http_conn *c);
/* Room for a body of that length as far as it is sure to come. */
void http_conn_expect_body(struct http_conn *c, uint64_t length);
/* Appends to what is to be written. */
struct buf *http_conn_stage(
    struct http_conn *c, size_t room); /* the caller appends, and adds that to `queued` */
void http_conn_write(struct http_conn *c, const void *p, size_t n);
void http_conn_write_evbuffer(struct http_conn *c, struct evbuffer *b);
void http_conn_write_buf(struct http_conn *c, struct buf *b); /* takes the memory of what is large */
void http_conn_write_file(
    struct http_conn *c, const struct http_file *file, const struct http_span *spans, size_t n);
uint64_t http_conn_taken(const struct http_conn *c);
/* Drops what was queued from there on, which was not taken yet. What is before it is copied if it is not in files. */
void http_conn_cut(struct http_conn *c, uint64_t queued);
/* The limit that has passed at `now`, if any: the connection is to be closed. */
bool http_conn_is_late(struct http_conn *c, usec_t now);

/* http_memory_limit.c */
void http_memory_update(struct http_conn *c); /* what it holds may be another amount */
void http_memory_release(struct http_conn *c);
bool http_memory_available(struct http_server *s);

/* http_parse.c: longer heads are not known again; 0: none is (replaceable for tests) */
extern size_t http_known_most;
/* Consumes up to n bytes, at most one message; sets message_complete or req.refusal. */
size_t http_parse_feed(struct http_conn *c, const char *p, size_t n);

/* http_request.c */
void http_request_init(struct http_request *req, struct http_conn *c);
void http_request_begin(struct http_request *req);       /* nothing of the last one counts any more */
void http_request_begin_again(struct http_request *req); /* its head does */
void http_request_end(struct http_request *req);   /* of the head only what may be known again is left */
void http_request_clear(struct http_request *req); /* its callbacks and parameters */
struct bytes http_request_target(const struct http_request *req);

/* http_route.c */
void http_route_init(struct http_server *s);
void http_route_free(struct http_server *s);
/* Sets the endpoint, and the refusal if the headers alone are refused. */
void http_route_find(struct http_request *req);
void http_route_refuse(struct http_request *req);
void http_route_count(struct http_request *req, int status, usec_t now);
size_t http_route_max_body(const struct http_request *req);

/* http_builtin.c: the rows every daemon has, ended by a NULL path. Their ctx is the server. */
/* The methods in req->allowed. */
void http_route_add_allow(struct http_request *req);
extern const struct http_route http_builtin_routes[];

/* http_rewind.c */
void http_mark_piece(struct http_request *req); /* one begins */
void http_marks_free(struct http_marks *m);

/* http_overload.c: a connection past the limit. */
void http_overload_accept(struct http_server *s, int fd, const char *peer, bool has_room);
/* Its client has sent no request in time. */
void http_overload_timeout(struct http_conn *c);

/* http_reply.c */
void http_reply_continue(struct http_request *req); /* 100 */

#endif
