/* http_pool: several servers that do the same work, as one destination.
 *
 *     struct http_pool_host *h = http_pool_next(pool);
 *     if (h)
 *         http_pool_request(h, &spec);       target NULL: the one of its URL
 *     else
 *         ... try again in http_pool_wait(pool)
 *
 * Hosts take turns. One that fails (no connection, no reply, not HTTP, 5xx, 429) is set aside for a time that grows
 * exponentially, with jitter, from backoff_min to backoff_max; then it gets one request, and with the first good answer
 * its full share. While another is up it is spared for longer if its failure took long: for HTTP_POOL_COOLDOWN_FACTOR times what that
 * took, at most HTTP_POOL_COOLDOWN_MAX. So one that takes long to fail does not make the others wait most of the time.
 *
 * One that did not answer in time is asked whether it answers at all before it gets another request, while another is up: by
 * OPTIONS *, which means nothing but that, beside the requests to the others, which wait for none of it. As long as that is not
 * answered either, such a probe follows another after its backoff, and no request goes there. The first that is answered ends the
 * sparing. One that answers probes, but not requests (the one that follows an answered probe, or another within the time for which it would
 * have been spared), is spared from then on as any that takes long to fail, unless a probe was not answered before the one that is; so is
 * one that answers a probe by closing the connection or with what is no HTTP.
 *
 * 1. A host that is back is used again at the latest backoff_max, and once the time limit of a request (or probe) that was under
 *    way, after it came back, or after the last one that was up failed; while another is up HTTP_POOL_COOLDOWN_MAX takes
 *    backoff_max's place where that is longer, and no answered probe has ended the sparing. Retry-After is heeded up to backoff_max.
 * 2. A host that was set aside has one request at a time until it has answered well; a probe gives way to it.
 * 3. What becomes of a request that failed is its maker's business: nothing is sent twice.
 * 4. Any other answer (4xx too) is good: the host is there, it is the request that it does not like.
 *
 * A URL is http://HOST[:PORT][/TARGET] or unix:PATH, with its scheme: a bare word is no host. The loop thread only; what http_client.h says holds.
 *
 * What keeps marks (our own pubsub and simplequeue) is a pool of one, `url`: two would each hold a part, and neither mark would tell what
 * the other has. It is set aside, tried again and shown like any other.
 */
#ifndef MILLRACE_HTTP_POOL_H
#define MILLRACE_HTTP_POOL_H

#include "http/client/http_client.h"
#include "base/stats.h"

struct http_pool;
struct http_pool_host;

#define HTTP_POOL_HOSTS_MAX 64
#define HTTP_POOL_COOLDOWN_FACTOR 20
#define HTTP_POOL_COOLDOWN_MAX (60 * USEC_PER_SEC)

/* Of a stranger's answer, whose status is what counts: the first of its text is logged, and what is longer is not read. */
#define HTTP_POOL_REPLY_MAX ((size_t)1 << 20)

/* What a setting of them says of itself first. */
#define HTTP_POOL_URLS_HELP                                                                                  \
    "http://HOST:PORT/TARGET or unix:PATH, several separated by spaces or commas: they take turns; "

struct http_pool_config {
    struct event_base *base;
    const char *urls;    /* separated by spaces or commas */
    const char *url;     /* instead: one, an address as http_client_config's; it may lack the scheme */
    int max_connections; /* to each */
    usec_t connect_timeout, timeout; /* as of http_client_config */
    usec_t backoff_min, backoff_max; /* 0: 50 ms, 2 s */
    size_t max_reply;                /* as of http_client_config */
    bool cut_reply;                  /* likewise */
    const char *auth_token;          /* NULL: none; sent to every one of them */
};

/* NULL with the reason: no URL, one that is none, too many. base NULL only checks. */
struct http_pool *http_pool_new(const struct http_pool_config *config, char *error, size_t error_size);
/* Requests under way end with HTTP_CLIENT_CANCELLED. */
void http_pool_free(struct http_pool **p);

size_t http_pool_size(const struct http_pool *p);
const struct http_pool_host *http_pool_at(const struct http_pool *p, size_t i);
/* The next in turn that is not set aside; NULL: all are. It is the caller's turn only if it makes a request. Begins the probes that
 * are due: so there are none where there is nothing to send. */
struct http_pool_host *http_pool_next(struct http_pool *p);
/* Likewise, but none of these: the bits (http_pool_host_bit) of those that refused what another may take. */
struct http_pool_host *http_pool_next_except(struct http_pool *p, uint64_t but);
uint64_t http_pool_host_bit(const struct http_pool_host *h);
/* Of a pool of one, set aside or not: for whoever waits as http_pool_wait says, and has a last word when it is stopped. */
struct http_pool_host *http_pool_single(struct http_pool *p);
/* How long until one can be tried; 0: now. While all that could be tried have their one request under way it is a guess. */
usec_t http_pool_wait(const struct http_pool *p);

const char *http_pool_host_url(const struct http_pool_host *h);    /* as configured */
const char *http_pool_host_target(const struct http_pool_host *h); /* "/" when it has none */
/* A %s in the target stands for a message; http_pool_fill_target puts it there escaped, wherever it stands, and ends with a
 * NUL. A target without one is copied as it is. */
bool http_pool_host_has_placeholder(const struct http_pool_host *h);
void http_pool_fill_target(const struct http_pool_host *h, struct bytes message, struct buf *out);
/* The first host whose target has no %s, NULL when all have one: for a method that carries nothing else. */
const struct http_pool_host *http_pool_without_placeholder(const struct http_pool *p);
/* As http_client_request, and the outcome is noted before on_done is called. */
struct http_call *http_pool_request(struct http_pool_host *h, const struct http_call_spec *spec);

/* True for what sets a host aside. */
bool http_pool_is_fault(enum http_client_result result, int status);

/* True for the answers that blame what the request holds (400, 413, 422), not its address or its token: whoever may leave out
 * what can never be delivered does so for these alone. */
bool http_pool_is_poison(int status);
/* "answered 422 the field t is missing", on one line and no longer than 170 characters. */
void http_pool_describe(const struct http_reply_view *reply, char *out, size_t size);

/* destination_up, destination_set_aside_seconds, destination_requests_total, destination_faults_total and destination_probes_total, each with
 * {destination="URL"}. The pool is freed after stats_remove_gauges of each host, which http_pool_free does. */
void http_pool_register_stats(struct http_pool *p, struct stats *stats);

#endif
