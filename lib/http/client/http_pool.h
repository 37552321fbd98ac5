/* http_pool: several servers that do the same work, as one destination.
 *
 *     struct http_pool_host *h = http_pool_next(pool, 0);
 *     if (h)
 *         http_pool_request(h, &spec);       target NULL: the target of its URL
 *     else
 *         ... try again in http_pool_wait(pool)
 *
 * Hosts take turns. A fault (no connection, no reply, not HTTP, 5xx, 429) takes a host down for a backoff between backoff_min and
 * backoff_max. Afterwards the host gets one request at a time until a request succeeds.
 *
 * Slow failures must not stall the work. While another host is up, a host that failed after a time t gets no request for t times
 * HTTP_POOL_COOLDOWN_FACTOR, at most HTTP_POOL_COOLDOWN_MAX. After a timeout the pool first probes the host by OPTIONS *. The host gets
 * no request until it answers a probe, and the answer ends the cooldown. The cooldown stays if the host closes the connection instead,
 * or if its requests time out although it answers probes.
 *
 * 1. A recovered host is used again after at most backoff_max plus the time limit of a request or probe in flight.
 *    While another host is up, HTTP_POOL_COOLDOWN_MAX replaces a shorter backoff_max, unless the host answers a probe.
 *    The pool respects Retry-After up to backoff_max.
 * 2. The pool sends nothing twice: the caller decides about a failed request.
 * 3. Any other reply, even 4xx, is a success: the host works, and only rejects the request.
 *
 * A URL is http://HOST[:PORT][/TARGET] or unix:PATH, with its scheme. For the loop thread only; the rules of
 * http_client.h apply.
 *
 * A server that keeps producers' marks, such as pubsub or simplequeue, must be alone in its pool (`url`), because each
 * of two servers would know only some of the marks. */
#ifndef MILLRACE_HTTP_POOL_H
#define MILLRACE_HTTP_POOL_H

#include "http/client/http_client.h"
#include "base/stats.h"

struct http_pool;
struct http_pool_host;

#define HTTP_POOL_HOSTS_MAX 64
#define HTTP_POOL_COOLDOWN_FACTOR 20
#define HTTP_POOL_COOLDOWN_MAX (60 * USEC_PER_SEC)

/* A value of max_reply for callers that read only the status and the first words of a reply. */
#define HTTP_POOL_REPLY_MAX ((size_t)1 << 20)

/* The beginning of the help of a setting that lists URLs. */
#define HTTP_POOL_URLS_HELP                                                                                  \
    "http://HOST:PORT/TARGET or unix:PATH, several separated by spaces or commas take turns; "

struct http_pool_config {
    struct event_base *base;
    const char *urls;                /* separated by spaces or commas */
    const char *url;                 /* or one address, with or without a scheme */
    int max_connections;             /* to each */
    usec_t connect_timeout, timeout; /* as of http_client_config */
    usec_t backoff_min, backoff_max; /* 0: 50 ms, 2 s */
    size_t max_reply;                /* as of http_client_config */
    bool cut_reply;                  /* likewise */
    const char *auth_token;          /* NULL: none; sent to every host */
};

/* NULL with the error if there is no URL, an invalid URL, or too many. base NULL: only checks the URLs. */
struct http_pool *http_pool_new(const struct http_pool_config *config, char *error, size_t error_size);
/* Requests in flight end with HTTP_CLIENT_CANCELLED. */
void http_pool_free(struct http_pool **p);

size_t http_pool_size(const struct http_pool *p);
const struct http_pool_host *http_pool_at(const struct http_pool *p, size_t i);
/* The next host that may get a request, or NULL. The turn passes to the next host only when a request is made. The call
 * also sends the probes that are due, so a pool without work sends no probes. Skips the hosts in `but` (bits of
 * http_pool_host_bit), for a request that these hosts rejected. */
struct http_pool_host *http_pool_next(struct http_pool *p, uint64_t but);
uint64_t http_pool_host_bit(const struct http_pool_host *h);
/* The only host of a pool of one, whether up or down, for callers that wait for http_pool_wait themselves. */
struct http_pool_host *http_pool_single(struct http_pool *p);
/* The time until a host may get a request; 0: now. An estimate while each candidate has a request in flight. */
usec_t http_pool_wait(const struct http_pool *p);

const char *http_pool_host_url(const struct http_pool_host *h); /* as configured */
/* Each %s in a target is a placeholder. http_pool_fill_target replaces it by the escaped message and adds a NUL. */
bool http_pool_host_has_placeholder(const struct http_pool_host *h);
void http_pool_fill_target(const struct http_pool_host *h, struct bytes message, struct buf *out);
/* The first host whose target has no placeholder; NULL if all have one. For methods without a body. */
const struct http_pool_host *http_pool_without_placeholder(const struct http_pool *p);
/* As http_client_request, without streamed replies; records the outcome before on_done. */
struct http_call *http_pool_request(struct http_pool_host *h, const struct http_call_spec *spec);

/* Whether the outcome takes a host down. */
bool http_pool_is_fault(enum http_client_result result, int status);

/* Whether the status rejects the content of the request (400, 413, 422), so that no retry can succeed. */
bool http_pool_is_poison(int status);
/* Writes "answered 422 the field t is missing": one line of at most 170 characters. */
void http_pool_describe(const struct http_reply_view *reply, char *out, size_t size);

/* Registers destination_up, destination_set_aside_seconds, destination_requests_total, destination_faults_total and
 * destination_probes_total, each with {destination="URL"}. http_pool_free removes the gauges. */
void http_pool_register_stats(struct http_pool *p, struct stats *stats);

#endif
