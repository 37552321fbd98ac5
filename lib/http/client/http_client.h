/* http_client: requests to one HTTP/1.1 server over kept connections, for programs with an event loop.
 *
 * A client has one destination. Requests start in the order they were made, at most `max_connections` at a
 * time; each ends with exactly one call of its on_done, also when the client is freed.
 *
 * 1. A request is never sent twice: what failed after its first byte left is reported (HTTP_CLIENT_RESET,
 *    _TIMEOUT) and the caller, who knows whether it is harmless (marks make it so), tries again. The one
 *    exception: a kept connection that the server had closed before any byte of the reply, for requests
 *    with `may_resend`.
 * 2. Gathered replies are bounded by max_reply: a longer one is HTTP_CLIENT_TOO_LARGE, or (cut_reply) whole enough: its body is cut
 *    there and its connection closed. Streamed ones (on_body) by nothing:
 *    on_body may pause the stream with http_call_pause and go on with http_call_resume.
 * 3. timeout bounds the time from the start of sending to the end of a gathered reply; of a streamed one,
 *    to its headers, and after that idle_timeout the silence between pieces.
 * 4. A reply that ends early (chunk missing, length not reached) is HTTP_CLIENT_RESET, never HTTP_CLIENT_OK.
 * 5. The loop thread only; callbacks come from the loop, never from inside http_client_request.
 */
#ifndef MILLRACE_HTTP_CLIENT_H
#define MILLRACE_HTTP_CLIENT_H

#include "base/bytes.h"
#include "base/clock.h"

struct event_base;
struct http_client;
struct http_call;

enum http_client_result {
    HTTP_CLIENT_OK,        /* a whole reply came: look at its status */
    HTTP_CLIENT_REFUSED,   /* no connection: refused, no route, no such socket; nothing was sent */
    HTTP_CLIENT_RESET,     /* the connection ended before the reply did */
    HTTP_CLIENT_TIMEOUT,   /* no reply in time */
    HTTP_CLIENT_TOO_LARGE, /* the reply is over max_reply */
    HTTP_CLIENT_BAD_REPLY, /* not HTTP */
    HTTP_CLIENT_CANCELLED, /* http_call_cancel or http_client_free */
};
const char *http_client_strerror(enum http_client_result r);

struct http_reply_view {
    int status;             /* 0 before there was one */
    struct bytes body;      /* gathered; valid during the callback */
    struct http_call *call; /* for http_reply_header */
};
/* "" when there is none; valid during the callback. */
const char *http_reply_header(const struct http_reply_view *r, const char *name);

struct http_client_config {
    struct event_base *base;
    const char *url; /* url_address; copied */
    int max_connections;
    size_t max_reply;                              /* 0: 64 MiB */
    bool cut_reply;                                /* its status is what counts */
    usec_t connect_timeout, timeout, idle_timeout; /* 0: 5 s, 30 s, never */
    const char *auth_token;                        /* NULL: none; copied */
};

struct http_call_spec {
    const char *method;       /* "GET", "POST" */
    const char *target;       /* "/pub?stream=clicks"; copied */
    const char *content_type; /* NULL: none */
    struct bytes body;        /* copied, unless it is lent */
    bool body_is_lent;        /* its bytes stay where they are until on_done */
    const char *headers;      /* more header lines, each ended by \r\n, or NULL; copied */
    usec_t timeout;           /* 0: the client's. For long polls: the wait plus a margin */
    bool may_resend;
    void *arg;
    /* Streamed replies: headers are there / a piece came. A status >= 300 is always gathered instead. */
    void (*on_headers)(const struct http_reply_view *reply, void *arg);
    void (*on_body)(struct http_call *call, struct bytes piece, void *arg);
    void (*on_done)(enum http_client_result result, const struct http_reply_view *reply, void *arg);
};

/* NULL when the url is no address. */
struct http_client *http_client_new(const struct http_client_config *config);
/* Every call ends with HTTP_CLIENT_CANCELLED first; their on_done must not make new ones. Any callback may
 * free the client. */
void http_client_free(struct http_client **c);

struct http_call *http_client_request(struct http_client *c, const struct http_call_spec *spec);
/* Ends it now: on_done(HTTP_CLIENT_CANCELLED) is called before this returns; its connection is closed. */
void http_call_cancel(struct http_call *call);
void http_call_pause(struct http_call *call);
void http_call_resume(struct http_call *call);
size_t http_client_busy(const struct http_client *c); /* calls begun or waiting */

/* For command-line tools: makes the call and runs `base` until it ends. The body is appended to *body (may
 * be NULL). */
enum http_client_result http_client_fetch(
    struct http_client *c, const struct http_call_spec *spec, int *status, struct buf *body);

#endif
