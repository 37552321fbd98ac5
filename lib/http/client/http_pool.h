/* http_pool: distributes requests over several servers that do the same work.
 *
 *     struct http_pool_host *h = http_pool_next(pool, 0);
 *     if (h)
 * * http_pool_request(h, &spec); with spec.target NULL: the target of the host's URL
 *     else
 *         ... try again after http_pool_wait(pool)
 *
 * Hosts take turns. After a fault (no connection, no reply, no HTTP, 5xx, 429) a host is down: it gets no request for a
 * backoff of backoff_min to backoff_max. After the backoff, a host gets one request at a time until a request succeeds.
 *
 * A host that takes long to fail delays every request to this host. While another host is up, a host that failed after
 * t seconds has a *cooldown* of t times HTTP_POOL_COOLDOWN_FACTOR (at most HTTP_POOL_COOLDOWN_MAX).
 *
 * 1. A host that works again gets requests after at most backoff_max (Retry-After included) plus a request's timeout,
 *    or after its cooldown.
 * 2. The pool never sends a request twice.
 * 3. A reply that is not a fault, even 4xx, counts as a success of the host.
 * 4. Requests that were in flight when a host went down, and also fail, do not count as further faults.
 *
 * A URL is http://HOST[:PORT][/TARGET] or unix:PATH. The scheme is required. The rules of http_client.h apply,
 * including the rule on threads.
 *
 * A server that keeps marks of producers must be the only host in its pool (`url`). */
#ifndef MILLRACE_HTTP_POOL_H
#define MILLRACE_HTTP_POOL_H

#include "http/client/http_client.h"
#include "base/stats.h"

struct http_pool;
struct http_pool_host;

#define HTTP_POOL_HOSTS_MAX 64
#define HTTP_POOL_COOLDOWN_FACTOR 20
#define HTTP_POOL_COOLDOWN_MAX (60 * USEC_PER_SEC)

/* The value of max_reply for callers that need only the status and the first words of a reply. */
#define HTTP_POOL_REPLY_MAX ((size_t)1 << 20)

/* The beginning of the help text for a setting that lists URLs. */
#define HTTP_POOL_URLS_HELP                                                                                  \
    "http://HOST:PORT/TARGET or unix:PATH; several, separated by spaces or commas, take turns;  "

struct http_pool_config {
    struct event_base *base;
    const char *urls;                /* URLs, separated by spaces or commas */
    const char *url;                 /* one address, with or without a scheme, instead of `urls` */
    int max_connections;             /* maximum number of connections to each host */
    usec_t connect_timeout, timeout; /* as of http_client_config */
    usec_t backoff_min, backoff_max; /* 0: 50 ms, 2 s */
    usec_t tolerance;                /* time after a success in which a 5xx does not mark the host as down */
    size_t max_reply;                /* as of http_client_config */
    bool cut_reply;                  /* as in http_client_config */
    const char *auth_token;          /* token sent to every host; NULL: none */
};

/* Returns NULL and writes a message into `error` if the URLs are missing, invalid, or too many. If config->base is
 * NULL, http_pool_new only checks the URLs. */
struct http_pool *http_pool_new(const struct http_pool_config *config, char *error, size_t error_size);
/* Frees a pool. Requests in flight end with HTTP_CLIENT_CANCELLED. */
void http_pool_free(struct http_pool **p);

size_t http_pool_size(const struct http_pool *p);
const struct http_pool_host *http_pool_at(const struct http_pool *p, size_t i);
/* Returns the host whose turn it is, or NULL if no host may get a request. Skips hosts whose http_pool_host_bit is in
 * `but`. http_pool_request passes the turn to the next host. */
struct http_pool_host *http_pool_next(struct http_pool *p, uint64_t but);
uint64_t http_pool_host_bit(const struct http_pool_host *h);
/* Returns the only host of a pool, even if the host is down. The caller itself must wait for http_pool_wait. */
struct http_pool_host *http_pool_single(struct http_pool *p);
/* Returns the time until a host may get a request. If every host has a request in flight, this time is an estimate. */
usec_t http_pool_wait(const struct http_pool *p);

const char *http_pool_host_url(const struct http_pool_host *h); /* as configured */
/* Returns the value of the Host header that requests to the host have. */
struct bytes http_pool_host_header(const struct http_pool_host *h);
bool http_pool_host_is_up(const struct http_pool_host *h);
/* http_pool_fill_target replaces each placeholder (%s) in a target by the escaped message and adds a NUL. */
bool http_pool_host_has_placeholder(const struct http_pool_host *h);
void http_pool_fill_target(const struct http_pool_host *h, struct bytes message, struct buf *out);
/* Returns the first host whose target has no placeholder, or NULL if every target has a placeholder. Callers check URLs
 * with this function for methods without a body. */
const struct http_pool_host *http_pool_without_placeholder(const struct http_pool *p);
/* Works like http_client_request without streamed replies. The pool records the outcome before calling on_done. */
struct http_call *http_pool_request(struct http_pool_host *h, const struct http_call_spec *spec);

/* True if the outcome of a request is a fault, which marks a host as down. */
bool http_pool_is_fault(enum http_client_result result, int status);

/* True if the status (400, 413, 422) shows that the request's content is invalid, so that a retry would also fail. */
bool http_pool_is_poison(int status);
/* Describes a reply in one line of at most 170 characters, such as "answered 422 the field t is missing". */
void http_pool_describe(const struct http_reply_view *reply, char *out, size_t size);

/* Registers destination_up, destination_set_aside_seconds, destination_requests_total and destination_faults_total,
 * each with the label destination="URL". http_pool_free removes the gauges. */
void http_pool_register_stats(struct http_pool *p, struct stats *stats);

#endif
