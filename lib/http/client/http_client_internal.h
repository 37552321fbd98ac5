/* http_client_internal: declarations that the client's files share. Each file calls only those above it:
 *
 *     http_client_call.c   how calls and links end
 *     http_client_link.c   a connection: connect, send a request, parse its reply
 *     http_client.c        the queue of calls, and the public functions
 *
 * A link is a connection to the server. A link carries one call at a time. Between calls the link is pooled, and the client watches
 * it, so that it notices when the server closes the connection. A callback may do anything, such as cancel its own call or free
 * the client. So the client only marks links and itself, and frees them when control returns to the loop (client_enter,
 * client_leave). */
#ifndef MILLRACE_HTTP_CLIENT_INTERNAL_H
#define MILLRACE_HTTP_CLIENT_INTERNAL_H

#include "http/client/http_client.h"
#include "base/url.h"
#include <event2/event.h>
#include <netdb.h>
#include <sys/queue.h>

/* libhttp-parser's enum http_method clashes with http_server.h's. */
#define http_method http_parser_method
#include <http_parser.h>
#undef http_method

#define HTTP_CLIENT_READ_SIZE (512 * 1024)
#define HTTP_CLIENT_HEAD_MAX (64 * 1024)

struct http_call {
    TAILQ_ENTRY(http_call) entry; /* in the queue, while it waits */
    struct http_client *client;
    struct http_link *link; /* NULL while it waits */
    bool ended;

    struct buf request; /* head, and the body unless it is lent */
    struct bytes lent;  /* the body, if lent */
    bool is_head, may_resend;
    usec_t timeout;
    void *arg;
    void (*on_headers)(const struct http_reply_view *, void *);
    void (*on_body)(struct http_call *, struct bytes, void *);
    void (*on_done)(enum http_client_result, const struct http_reply_view *, void *);

    int status;
    bool streamed, paused;
    struct buf head; /* NAME \0 VALUE \0 ... of the reply */
    bool in_value, head_whole;
    struct buf body;
};
TAILQ_HEAD(http_call_list, http_call);

enum http_link_state {
    HTTP_LINK_CONNECTING,
    HTTP_LINK_POOLED,
    HTTP_LINK_BUSY,
    HTTP_LINK_DEAD,
};

/* The addresses of the host. When none accepts a connection, the client drops them and resolves the name again. A link that is
 * connecting keeps its list. */
struct http_addresses {
    struct addrinfo *first;
    size_t users;
};

struct http_link {
    TAILQ_ENTRY(http_link) entry;
    struct http_client *client;
    struct http_call *call;
    enum http_link_state state;
    int fd;
    struct http_addresses *addresses;
    const struct addrinfo *address; /* the current attempt; NULL for a Unix socket */
    struct event *read_event, *write_event, *timer, *resume_event;
    bool used;     /* has carried a call before */
    bool received; /* a byte of the reply has arrived */
    bool complete, eof, write_failed;
    size_t sent; /* bytes of call->request and call->lent */
    http_parser parser;
    struct buf kept; /* received while the call is paused */
};
TAILQ_HEAD(http_link_list, http_link);

struct http_client {
    struct event_base *base;
    struct url_address address;
    struct http_addresses *resolved; /* NULL: not resolved yet */
    struct buf host_lines;           /* Host and Authorization */
    int max_connections;
    size_t max_reply;
    bool cut_reply;
    usec_t connect_timeout, timeout, idle_timeout;
    struct http_call_list waiting;
    struct http_link_list links, dead;
    size_t n_links;
    struct event *start_event;
    char *read_buffer;
    int depth;
    bool freed;
};

/* http_client_call.c */
void client_enter(struct http_client *c);
void client_leave(struct http_client *c);
/* Starts waiting calls soon, from the loop. */
void client_start_soon(struct http_client *c);
/* Calls on_done and frees the call. Returns the call's link to the pool if `keep`, otherwise closes the link. */
void call_end(struct http_call *call, enum http_client_result result, bool keep);
/* Closes the call's link and puts the call first in the queue. */
void call_requeue(struct http_call *call);
void addresses_release(struct http_addresses **a);      /* sets *a to NULL; *a may be NULL */
void link_set_timer(struct http_link *l, usec_t after); /* 0: stops the timer */
void link_drop_socket(struct http_link *l);
void link_close(struct http_link *l);

/* http_client_link.c */
/* Opens a connection for the call. */
void link_open(struct http_client *c, struct http_call *call);
/* Sends the call on a pooled link. False: the server has closed the connection; the link is closed, and the call still waits. */
bool link_carry(struct http_link *l, struct http_call *call);
void link_pause(struct http_link *l);
void link_resume(struct http_link *l);

#endif
