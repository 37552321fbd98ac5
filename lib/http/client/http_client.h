/* http_client: requests to one HTTP/1.1 server over kept connections, for programs with an event loop.
 *
 * Requests start in the order of the calls, at most `max_connections` at a time. The client calls each request's on_done exactly once,
 * also when the client is freed.
 *
 * 1. The client never sends a request twice. If a request fails after its first byte was sent, its result is HTTP_CLIENT_RESET or
 *    _TIMEOUT, and the caller decides about a retry. Exception: with `may_resend` the client resends a request if the
 *    server closed a kept connection before the reply began.
 * 2. A gathered reply above max_reply is HTTP_CLIENT_TOO_LARGE; with cut_reply the client cuts it instead. A streamed reply (on_body)
 *    has no limit; http_call_pause and http_call_resume control its flow.
 * 3. `timeout` bounds the time from sending to the end of a gathered reply, or to the headers of a streamed reply. Afterwards
 *    idle_timeout bounds the time between pieces.
 * 4. A reply that ends early (missing chunk, length not reached) is HTTP_CLIENT_RESET, never HTTP_CLIENT_OK.
 * 5. For the loop thread only. Callbacks come from the loop, never from inside http_client_request. */
#ifndef MILLRACE_HTTP_CLIENT_H
#define MILLRACE_HTTP_CLIENT_H

#include "base/bytes.h"
#include "base/clock.h"

struct event_base;
struct http_client;
struct http_call;

enum http_client_result {
    HTTP_CLIENT_OK,        /* a complete reply, of any status */
    HTTP_CLIENT_REFUSED,   /* no connection; nothing was sent */
    HTTP_CLIENT_RESET,     /* the connection ended before the reply was complete */
    HTTP_CLIENT_TIMEOUT,   /* no reply in time */
    HTTP_CLIENT_TOO_LARGE, /* the reply is over max_reply */
    HTTP_CLIENT_BAD_REPLY, /* the reply is not HTTP */
    HTTP_CLIENT_CANCELLED, /* http_call_cancel or http_client_free */
};
const char *http_client_strerror(enum http_client_result r);

struct http_reply_view {
    int status;             /* 0 before the reply began */
    struct bytes body;      /* gathered; valid during the callback */
    struct http_call *call; /* for http_reply_header */
};
/* "" without such a header; valid during the callback. */
const char *http_reply_header(const struct http_reply_view *r, const char *name);

struct http_client_config {
    struct event_base *base;
    const char *url; /* url_address; copied */
    int max_connections;
    size_t max_reply;                              /* bytes; 0: 64 MiB */
    bool cut_reply;                                /* cut a long reply; otherwise it is an error */
    usec_t connect_timeout, timeout, idle_timeout; /* 0: 5 s, 30 s, never */
    const char *auth_token;                        /* NULL: none; copied */
};

struct http_call_spec {
    const char *method;       /* "GET", "POST" */
    const char *target;       /* "/pub?stream=clicks"; copied */
    const char *content_type; /* NULL: none */
    struct bytes body;        /* copied, unless body_is_lent */
    bool body_is_lent;        /* the caller keeps the body valid until on_done */
    const char *headers;      /* further header lines, each ended by \r\n; copied; NULL: none */
    usec_t timeout;           /* 0: the client's. For a long poll: the wait plus a margin */
    bool may_resend;
    void *arg;
    /* For streamed replies: the headers are complete; a piece arrived. The client gathers replies with a status >= 300. */
    void (*on_headers)(const struct http_reply_view *reply, void *arg);
    void (*on_body)(struct http_call *call, struct bytes piece, void *arg);
    void (*on_done)(enum http_client_result result, const struct http_reply_view *reply, void *arg);
};

/* NULL if the url is not an address. */
struct http_client *http_client_new(const struct http_client_config *config);
/* Ends every call with HTTP_CLIENT_CANCELLED; on_done must not start new calls. Any callback may free the client. */
void http_client_free(struct http_client **c);

struct http_call *http_client_request(struct http_client *c, const struct http_call_spec *spec);
/* Calls on_done(HTTP_CLIENT_CANCELLED) before it returns, and closes the connection. */
void http_call_cancel(struct http_call *call);
void http_call_pause(struct http_call *call);
void http_call_resume(struct http_call *call);

/* For command-line tools: makes the call and runs `base` until the call ends. Ignores the callbacks in `spec`. Appends the body to
 * *body; `status` and `body` may be NULL. */
enum http_client_result http_client_fetch(
    struct http_client *c, const struct http_call_spec *spec, int *status, struct buf *body);

#endif
