/* http_pool: distributes requests over several servers that do the same work.
 *
 *     struct http_pool_host *h = http_pool_next(pool, 0);
 *     if (h)
 *         http_pool_request(h, &spec);       target NULL: the target of its URL
 *     else
 *         ... try again in http_pool_wait(pool)
 *
 * Hosts take turns. After a fault (no connection, no reply, no HTTP, 5xx, 429) a host is down for a backoff between
 * backoff_min and backoff_max, and then gets one request at a time until one succeeds.
 *
 * A host that takes long to fail would delay every request sent to it. So while another host is up, a host that
 * failed after t seconds has a *cooldown* of t times HTTP_POOL_COOLDOWN_FACTOR, at most HTTP_POOL_COOLDOWN_MAX.
 *
 * 1. A host that works again is used after at most backoff_max (Retry-After included) plus the timeout of a
 *    request, or after its cooldown.
 * 2. The pool never sends a request twice.
 * 3. Any other reply, even 4xx, counts as a success: the host works.
 * 4. Requests that were in flight when a host went down, and fail, too, are the same fault.
 *
 * A URL is http://HOST[:PORT][/TARGET] or unix:PATH. The scheme is required. The rules of http_client.h apply,
 * including its rule on threads.
 *
 * A server that keeps marks of producers must be the only one in its pool (`url`). */
#ifndef MILLRACE_HTTP_POOL_H
#define MILLRACE_HTTP_POOL_H

#include "http/client/http_client.h"
#include "base/stats.h"

struct http_pool;
struct http_pool_host;

#define HTTP_POOL_HOSTS_MAX 64
#define HTTP_POOL_COOLDOWN_FACTOR 20
#define HTTP_POOL_COOLDOWN_MAX (60 * USEC_PER_SEC)

/* The max_reply for callers that only need the status and the first words of a reply. */
#define HTTP_POOL_REPLY_MAX ((size_t)1 << 20)

/* The first words of the help of a setting that lists URLs. */
#define HTTP_POOL_URLS_HELP                                                                                  \
    "http://HOST:PORT/TARGET or unix:PATH; several, separated by spaces or commas, take turns; "

struct http_pool_config {
    struct event_base *base;
    const char *urls;                /* separated by spaces or commas */
    const char *url;                 /* instead of `urls`: one address, with or without a scheme */
    int max_connections;             /* to each */
    usec_t connect_timeout, timeout; /* as of http_client_config */
    usec_t backoff_min, backoff_max; /* 0: 50 ms, 2 s */
    usec_t tolerance;                /* for this time after a success, a 5xx does not mark the host as down */
    size_t max_reply;                /* as of http_client_config */
    bool cut_reply;                  /* likewise */
    const char *auth_token;          /* NULL: none; sent to every host */
};

/* Returns NULL with the error if there is no URL, an invalid URL, or too many URLs. If config->base is NULL, the
 * function only checks the URLs. */
struct http_pool *http_pool_new(const struct http_pool_config *config, char *error, size_t error_size);
/* Requests in flight end with HTTP_CLIENT_CANCELLED. */
void http_pool_free(struct http_pool **p);

size_t http_pool_size(const struct http_pool *p);
const struct http_pool_host *http_pool_at(const struct http_pool *p, size_t i);
/* The host whose turn it is, or NULL. Skips hosts whose http_pool_host_bit is in `but`. The turn passes
 * with http_pool_request. */
struct http_pool_host *http_pool_next(struct http_pool *p, uint64_t but);
uint64_t http_pool_host_bit(const struct http_pool_host *h);
/* The only host of a pool with one, even if it is down: the caller waits for http_pool_wait itself. */
struct http_pool_host *http_pool_single(struct http_pool *p);
/* Time until a host may get a request; an estimate if every one has a request in flight. */
usec_t http_pool_wait(const struct http_pool *p);

const char *http_pool_host_url(const struct http_pool_host *h); /* as configured */
bool http_pool_host_is_up(const struct http_pool_host *h);
/* Each %s in a target is a placeholder. http_pool_fill_target replaces it by the escaped message and adds a NUL. */
bool http_pool_host_has_placeholder(const struct http_pool_host *h);
void http_pool_fill_target(const struct http_pool_host *h, struct bytes message, struct buf *out);
/* Returns the first host whose target has no placeholder, or NULL if each has one. Used to check the URLs for methods
 * without a body. */
const struct http_pool_host *http_pool_without_placeholder(const struct http_pool *p);
/* As http_client_request, but without streamed replies. The pool records the outcome before it calls on_done. */
struct http_call *http_pool_request(struct http_pool_host *h, const struct http_call_spec *spec);

/* True if this outcome marks a host as down. */
bool http_pool_is_fault(enum http_client_result result, int status);

/* True if the status says that the content of the request is invalid (400, 413, 422), so that a retry would fail,
 * too. */
bool http_pool_is_poison(int status);
/* Writes "answered 422 the field t is missing": one line of at most 170 characters. */
void http_pool_describe(const struct http_reply_view *reply, char *out, size_t size);

/* Registers destination_up, destination_set_aside_seconds, destination_requests_total and destination_faults_total, each
 * with {destination="URL"}. http_pool_free removes the gauges. */
void http_pool_register_stats(struct http_pool *p, struct stats *stats);

#endif
