/* http_client_internal: what http_client.c (calls, queue, pool) and http_client_link.c (one connection) share.
 *
 * A link is a connection to the destination. It carries one call at a time, and between calls waits in the
 * pool, watched so that the server's closing it is seen. Callbacks may do anything, also cancel the call they
 * are about or free the client; so what a callback's caller needs after it is only marked dead and freed when
 * the outermost entry from the loop (client_enter, client_leave) is left. */
#ifndef MILLRACE_HTTP_CLIENT_INTERNAL_H
#define MILLRACE_HTTP_CLIENT_INTERNAL_H

#include "http/client/http_client.h"
#include "http/server/http_parse.h"
#include "base/url.h"
#include <event2/event.h>
#include <netdb.h>
#include <sys/queue.h>

/* With 256 KB a fast stream takes a quarter more processor time, with 64 KB a tenth more than that. */
#define HTTP_CLIENT_READ_SIZE (512 * 1024)
#define HTTP_CLIENT_HEAD_MAX (64 * 1024)

struct http_call {
    TAILQ_ENTRY(http_call) entry; /* of the queue, while it waits */
    struct http_client *client;
    struct http_link *link; /* NULL while it waits */
    bool ended;

    struct buf request; /* its head, and its body when that was copied */
    struct bytes lent;  /* the body otherwise */
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

/* What the name was found to have. The client forgets it when one that connects has tried all in vain, and then looks the name
 * up again; others that connect have it to their end. */
struct http_addresses {
    struct addrinfo *first;
    size_t users;
};
/* *a is NULL afterwards, as it may be before. */
void addresses_release(struct http_addresses **a);

struct http_link {
    TAILQ_ENTRY(http_link) entry;
    struct http_client *client;
    struct http_call *call;
    enum http_link_state state;
    int fd;
    struct http_addresses *addresses;
    const struct addrinfo *address; /* being tried, of these; NULL for a Unix socket */
    struct event *read_event, *write_event, *timer, *resume_event;
    bool used;     /* has carried a call before */
    bool received; /* a byte of the reply has come */
    bool complete, eof, write_failed;
    size_t sent; /* of call->request and what it was lent */
    http_parser parser;
    struct buf kept; /* read while the call is paused */
};
TAILQ_HEAD(http_link_list, http_link);

struct http_client {
    struct event_base *base;
    struct url_address address;
    struct http_addresses *resolved; /* NULL: look the name up */
    struct buf host_lines;           /* Host and Authorization */
    int max_connections;
    size_t max_reply;
    bool cut_reply;
    usec_t connect_timeout, timeout, idle_timeout;
    struct http_call_list waiting;
    struct http_link_list links, dead;
    size_t n_links, n_calls;
    struct event *start_event;
    char *read_buffer;
    int depth;
    bool freed;
};

void client_enter(struct http_client *c);
void client_leave(struct http_client *c);
/* Waiting calls start soon, from the loop. */
void client_start_soon(struct http_client *c);
/* Calls on_done, and gives the call's link (if any) back: to the pool when `keep`. */
void call_end(struct http_call *call, enum http_client_result result, bool keep);
/* Back to the front of the queue, its link closed. */
void call_requeue(struct http_call *call);

/* Begins to connect; the link is BUSY with the call when it is connected. */
void link_open(struct http_client *c, struct http_call *call);
/* False when the server has closed it meanwhile: the link is closed, the call still waits. */
bool link_carry(struct http_link *l, struct http_call *call);
void link_pool(struct http_link *l);
void link_close(struct http_link *l);
void link_free(struct http_link *l);
void link_resume(struct http_link *l);
void link_pause(struct http_link *l);

#endif
