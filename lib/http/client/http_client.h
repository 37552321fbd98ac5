/* http_client: sends requests to one HTTP/1.1 server over persistent connections, for programs with an event loop.
 *
 * Requests start in the order in which http_client_request was called. At most `max_connections` requests run at a
 * time. The client calls on_done exactly once per request, even if the client is freed.
 *
 * 1. The client sends a request twice only with permission. If a request fails after its first byte was sent, its
 *    result is HTTP_CLIENT_RESET or _TIMEOUT, and the caller decides whether to retry. With `may_resend`, the client
 *    itself resends a request if the server closed a reused connection before the reply began.
 * 2. Without on_body, the client collects the body of the reply. If the body exceeds max_reply, the result is
 *    HTTP_CLIENT_TOO_LARGE. With cut_reply, the client instead truncates the body and returns HTTP_CLIENT_OK. With
 *    on_body, the client streams the reply: its size is unlimited, and the caller controls the flow with
 *    http_call_pause and http_call_resume.
 * 3. `timeout` limits the time from sending a request to the end of a collected reply, or to the headers of a streamed
 *    reply. After the headers of a streamed reply, idle_timeout limits the time between two pieces of the body.
 * 4. If a reply ends before its last chunk or its Content-Length, the result is always HTTP_CLIENT_RESET.
 * 5. Only the thread of the event loop may call the functions. http_client_request never calls a callback itself. */
#ifndef MILLRACE_HTTP_CLIENT_H
#define MILLRACE_HTTP_CLIENT_H

#include "base/bytes.h"
#include "base/clock.h"

struct event_base;
struct http_client;
struct http_call;

enum http_client_result {
    HTTP_CLIENT_OK,        /* a complete reply, of any status */
    HTTP_CLIENT_REFUSED,   /* no connection to the server; the client sent nothing */
    HTTP_CLIENT_RESET,     /* the connection ended before the complete reply arrived */
    HTTP_CLIENT_TIMEOUT,   /* no reply in time */
    HTTP_CLIENT_TOO_LARGE, /* the reply exceeds max_reply */
    HTTP_CLIENT_BAD_REPLY, /* the reply is not HTTP */
    HTTP_CLIENT_CANCELLED, /* http_call_cancel or http_client_free */
};
const char *http_client_strerror(enum http_client_result r);

struct http_reply_view {
    int status;             /* status of the reply; 0: no reply yet */
    struct bytes body;      /* valid during the callback; empty for a streamed reply */
    struct http_call *call; /* for http_reply_header */
};
/* Returns the value of the header, or "" if the reply has no such header. The text is valid during the callback. */
const char *http_reply_header(const struct http_reply_view *r, const char *name);

struct http_client_config {
    struct event_base *base;
    const char *url;  /* url_address; copied */
    const char *host; /* value of the Host header if it is not that of `url`; copied; NULL: none */
    int max_connections;
    size_t read_size;                              /* longest piece of a streamed reply; 0: 512 KiB */
    size_t max_reply;                              /* limit on a collected body (bytes); 0: 64 MiB */
    bool cut_reply;                                /* truncate a body that exceeds max_reply */
    usec_t connect_timeout, timeout, idle_timeout; /* 0: 5 s, 30 s, unlimited */
    const char *auth_token;                        /* NULL: none; copied */
};

struct http_call_spec {
    const char *method;       /* "GET", "POST" */
    const char *target;       /* "/pub?stream=clicks"; copied */
    const char *content_type; /* NULL: none */
    struct bytes body;        /* copied, unless body_is_lent */
    bool body_is_lent;        /* the body is not copied; it must stay valid until on_done */
    const char *headers;      /* additional header lines, each with \r\n; copied; NULL: none */
    usec_t timeout;           /* 0: the client's timeout; for a long poll: the wait plus a margin */
    bool may_resend;
    void *arg;
    /* For a streamed reply: on_headers is called when the headers are complete, and on_body for each piece. If the
     * status is 300 or above, the client collects the body instead of calling on_body. */
    void (*on_headers)(const struct http_reply_view *reply, void *arg);
    void (*on_body)(struct http_call *call, struct bytes piece, void *arg);
    void (*on_done)(enum http_client_result result, const struct http_reply_view *reply, void *arg);
};

/* Returns NULL if `url` is not an address. */
struct http_client *http_client_new(const struct http_client_config *config);
/* Ends every call with HTTP_CLIENT_CANCELLED. An on_done that gets HTTP_CLIENT_CANCELLED must not start a new call. Any
 * callback may free the client. */
void http_client_free(struct http_client **c);

/* Returns the value of the Host header that the client sends. */
struct bytes http_client_host(const struct http_client *c);

struct http_call *http_client_request(struct http_client *c, const struct http_call_spec *spec);
/* Returns the time (clock_monotonic) of the server's last sign of life on any connection, which is a byte or the end of
 * the connection. 0: none yet. */
usec_t http_client_heard(const struct http_client *c);
/* Returns the time (clock_monotonic) at which the client began to send the request. 0: the request waits. */
usec_t http_call_sent_at(const struct http_call *call);
/* Calls on_done with HTTP_CLIENT_CANCELLED before http_call_cancel returns, and closes the connection. */
void http_call_cancel(struct http_call *call);
/* True if no byte of the request is sent, because the request waits for a connection or for the end of the loop's turn.
 * A request that will be resent waits again. */
bool http_call_is_waiting(const struct http_call *call);
/* Replaces the target of a waiting request. Copies the new target. */
void http_call_set_target(struct http_call *call, const char *target);
void http_call_pause(struct http_call *call);
void http_call_resume(struct http_call *call);

/* Sends the request and runs `base` until the reply is complete or has failed, for command-line tools. Ignores the
 * callbacks in `spec`. Appends the reply's body to *body. `status` and `body` may be NULL. */
enum http_client_result http_client_fetch(
    struct http_client *c, const struct http_call_spec *spec, int *status, struct buf *body);

#endif
