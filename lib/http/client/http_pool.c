#include "http/client/http_pool.h"

#include "base/backoff.h"
#include "base/url.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define DEFAULT_BACKOFF_MIN (50 * USEC_PER_MSEC)
#define DEFAULT_BACKOFF_MAX (2 * USEC_PER_SEC)

struct http_pool_host {
    struct http_pool *pool;
    char *url, *target;
    struct http_client *client;
    struct backoff backoff;
    bool is_up;
    usec_t until;          /* end of the backoff */
    usec_t cooldown_until; /* end of the cooldown after the last fault */
    usec_t succeeded_at;   /* 0: never */
    size_t in_flight;
    struct stats_counter *requests, *faults; /* NULL without stats */
};

struct http_pool {
    struct http_pool_host hosts[HTTP_POOL_HOSTS_MAX];
    size_t n, turn, n_up;
    usec_t fell; /* time when the last host went down */
    usec_t backoff_min, backoff_max, tolerance;
    struct stats *stats;
};

/* The context of a request to a host. */
struct pool_call {
    struct http_pool_host *host;
    struct http_call_spec spec;
    usec_t began;
    bool is_trial; /* the host was down when the request was sent */
};

static int add_host(
    struct http_pool *p, const struct http_pool_config *config, struct bytes url, char *error, size_t size)
{
    struct http_pool_host *h = &p->hosts[p->n];
    struct url_address address;
    bool is_http = bytes_starts_with(url, BYTES_LITERAL("http://"));
    bool good = config->url || is_http || bytes_starts_with(url, BYTES_LITERAL("unix:"));
    for (size_t i = 0; i < url.len && !config->url; i++)
        good = good && (unsigned char)url.ptr[i] > ' ' && url.ptr[i] != 127;
    size_t cut = is_http && !config->url ? strlen("http://") : url.len; /* where the target begins */
    while (cut < url.len && url.ptr[cut] != '/' && url.ptr[cut] != '?')
        cut++;
    char *where = bytes_dup(bytes_of(url.ptr, cut));
    good = good && url_address_parse(where, 80, &address) == 0;
    if (memchr(url.ptr, '#', url.len)) {
        snprintf(error, size, "\"%.*s\": HTTP does not send the part after #; write a literal # as %%23",
            (int)(url.len < 200 ? url.len : 200), url.ptr);
        good = false;
    } else if (!good) {
        snprintf(error, size, "\"%.*s\" is not an address (http://HOST:PORT/TARGET or unix:PATH)",
            (int)(url.len < 200 ? url.len : 200), url.ptr);
    }
    if (good) {
        struct http_client_config client = {
            .base = config->base,
            .url = where,
            .max_connections = config->max_connections,
            .max_reply = config->max_reply,
            .cut_reply = config->cut_reply,
            .connect_timeout = config->connect_timeout,
            .timeout = config->timeout,
            .auth_token = config->auth_token,
        };
        struct buf target = {0};
        if (cut == url.len || url.ptr[cut] != '/')
            buf_append_char(&target, '/');
        buf_append(&target, url.ptr + cut, url.len - cut);
        buf_append_char(&target, '\0');
        *h = (struct http_pool_host){.pool = p, .url = bytes_dup(url), .target = target.ptr, .is_up = true};
        h->client = config->base ? http_client_new(&client) : NULL;
        backoff_init(&h->backoff, p->backoff_min, p->backoff_max,
            (uint64_t)clock_wall() ^ ((uint64_t)getpid() << 40) ^ p->n);
        p->n++;
        p->n_up++;
    }
    free(where);
    return good ? 0 : -1;
}

struct http_pool *http_pool_new(const struct http_pool_config *config, char *error, size_t error_size)
{
    struct http_pool *p = mem_zalloc(sizeof *p);
    const char *list = config->urls ? config->urls : "";
    struct bytes word;
    bool good = true;
    p->backoff_min = config->backoff_min ? config->backoff_min : DEFAULT_BACKOFF_MIN;
    p->backoff_max = config->backoff_max ? config->backoff_max : DEFAULT_BACKOFF_MAX;
    p->tolerance = config->tolerance;
    if (config->url)
        good = add_host(p, config, bytes_str(config->url), error, error_size) == 0;
    while (good && bytes_next_word(&list, " ,\t", &word)) {
        if (p->n == HTTP_POOL_HOSTS_MAX) {
            snprintf(error, error_size, "more than %d destinations", HTTP_POOL_HOSTS_MAX);
            good = false;
        } else {
            good = add_host(p, config, word, error, error_size) == 0;
        }
    }
    if (good && p->n == 0) {
        snprintf(error, error_size, "required: http://HOST:PORT/TARGET or unix:PATH");
        good = false;
    }
    if (!good)
        http_pool_free(&p);
    return p;
}

void http_pool_free(struct http_pool **pp)
{
    struct http_pool *p = *pp;
    if (!p)
        return;
    for (size_t i = 0; i < p->n; i++) {
        struct http_pool_host *h = &p->hosts[i];
        http_client_free(&h->client);
        if (p->stats)
            stats_remove_gauges(p->stats, h);
        free(h->url);
        free(h->target);
    }
    free(p);
    *pp = NULL;
}

size_t http_pool_size(const struct http_pool *p)
{
    return p->n;
}

const struct http_pool_host *http_pool_at(const struct http_pool *p, size_t i)
{
    assert(i < p->n);
    return &p->hosts[i];
}

/* Returns the time from which a host that is down may get a request. While no host is up, each cooldown ends at the
 * latest backoff_min after the last host went down. */
static usec_t try_from(const struct http_pool_host *h)
{
    const struct http_pool *p = h->pool;
    usec_t cooldown = h->cooldown_until;
    if (p->n_up == 0 && p->fell + p->backoff_min < cooldown)
        cooldown = p->fell + p->backoff_min;
    return cooldown > h->until ? cooldown : h->until;
}

static bool may_request(const struct http_pool_host *h, usec_t now)
{
    return h->is_up || (h->in_flight == 0 && now >= try_from(h));
}

uint64_t http_pool_host_bit(const struct http_pool_host *h)
{
    return (uint64_t)1 << (h - h->pool->hosts);
}

struct http_pool_host *http_pool_next(struct http_pool *p, uint64_t but)
{
    usec_t now = clock_monotonic();
    for (size_t i = 0; i < p->n; i++) {
        struct http_pool_host *h = &p->hosts[(p->turn + i) % p->n];
        if (may_request(h, now) && !(but & http_pool_host_bit(h)))
            return h;
    }
    return NULL;
}

struct http_pool_host *http_pool_single(struct http_pool *p)
{
    assert(p->n == 1);
    return &p->hosts[0];
}

usec_t http_pool_wait(const struct http_pool *p)
{
    usec_t now = clock_monotonic(), least = p->backoff_max;
    for (size_t i = 0; i < p->n; i++) {
        const struct http_pool_host *h = &p->hosts[i];
        if (may_request(h, now))
            return 0;
        usec_t from = try_from(h);
        if (from > now && from - now < least)
            least = from - now;
    }
    return least;
}

const char *http_pool_host_url(const struct http_pool_host *h)
{
    return h->url;
}

struct bytes http_pool_host_header(const struct http_pool_host *h)
{
    return http_client_host(h->client);
}

bool http_pool_host_is_up(const struct http_pool_host *h)
{
    return h->is_up;
}

bool http_pool_host_has_placeholder(const struct http_pool_host *h)
{
    return strstr(h->target, "%s") != NULL;
}

void http_pool_fill_target(const struct http_pool_host *h, struct bytes message, struct buf *out)
{
    const char *target = h->target, *place;
    buf_clear(out);
    while ((place = strstr(target, "%s"))) {
        buf_append(out, target, (size_t)(place - target));
        url_encode(message, out);
        target = place + 2;
    }
    buf_append_str(out, target);
    buf_append_char(out, '\0');
}

const struct http_pool_host *http_pool_without_placeholder(const struct http_pool *p)
{
    for (size_t i = 0; i < p->n; i++)
        if (!http_pool_host_has_placeholder(&p->hosts[i]))
            return &p->hosts[i];
    return NULL;
}

bool http_pool_is_fault(enum http_client_result result, int status)
{
    return result != HTTP_CLIENT_OK || status >= 500 || status == 429;
}

bool http_pool_is_poison(int status)
{
    return status == 400 || status == 413 || status == 422;
}

void http_pool_describe(const struct http_reply_view *reply, char *out, size_t size)
{
    size_t n = reply->body.len < 150 ? reply->body.len : 150;
    snprintf(out, size, "answered %d %.*s", reply->status, (int)n, n ? reply->body.ptr : "");
    for (char *c = out; *c; c++)
        if ((unsigned char)*c < ' ')
            *c = ' ';
    for (size_t len = strlen(out); len && out[len - 1] == ' '; len--)
        out[len - 1] = '\0';
}

static void mark_down(struct http_pool_host *h, enum http_client_result result,
    const struct http_reply_view *reply, usec_t began)
{
    struct http_pool *p = h->pool;
    uint64_t seconds = 0; /* seconds in Retry-After; a date in Retry-After is ignored */
    if (result == HTTP_CLIENT_OK)
        bytes_to_u64(bytes_str(http_reply_header(reply, "Retry-After")), &seconds);
    usec_t retry_after = (usec_t)(seconds < 3600 ? seconds : 3600) * USEC_PER_SEC;
    usec_t now = clock_monotonic(), took = now - began, wait = backoff_failed(&h->backoff);
    if (retry_after > p->backoff_max)
        retry_after = p->backoff_max;
    if (h->is_up && --p->n_up == 0)
        p->fell = now;
    h->is_up = false;
    h->until = now + (retry_after > wait ? retry_after : wait);
    took = took < HTTP_POOL_COOLDOWN_MAX ? took * HTTP_POOL_COOLDOWN_FACTOR : HTTP_POOL_COOLDOWN_MAX;
    h->cooldown_until = now + (took < HTTP_POOL_COOLDOWN_MAX ? took : HTTP_POOL_COOLDOWN_MAX);
}

static void mark_up(struct http_pool_host *h)
{
    backoff_succeeded(&h->backoff);
    h->pool->n_up += !h->is_up;
    h->succeeded_at = clock_monotonic();
    h->is_up = true;
}

static bool is_tolerated(
    const struct http_pool_host *h, enum http_client_result result, const struct http_reply_view *reply)
{
    return h->is_up && result == HTTP_CLIENT_OK && reply->status >= 500 &&
           !*http_reply_header(reply, "Retry-After") && h->succeeded_at &&
           clock_monotonic() - h->succeeded_at < h->pool->tolerance;
}

static void on_done(enum http_client_result result, const struct http_reply_view *reply, void *arg)
{
    struct pool_call call = *(struct pool_call *)arg;
    struct http_pool_host *h = call.host;
    free(arg);
    h->in_flight--;
    if (http_pool_is_fault(result, reply->status) && result != HTTP_CLIENT_CANCELLED) {
        bool is_known = !h->is_up && !call.is_trial; /* an earlier request has already shown the fault */
        if (!is_known && !is_tolerated(h, result, reply))
            mark_down(h, result, reply, call.began);
        if (h->faults)
            stats_add(h->faults, 1);
    } else if (result != HTTP_CLIENT_CANCELLED) {
        mark_up(h);
    }
    if (call.spec.on_done)
        call.spec.on_done(result, reply, call.spec.arg);
}

struct http_call *http_pool_request(struct http_pool_host *h, const struct http_call_spec *spec)
{
    struct pool_call *call = mem_zalloc(sizeof *call);
    struct http_call_spec mine = *spec;
    assert(!spec->on_headers && !spec->on_body);
    *call = (struct pool_call){.host = h, .spec = *spec, .began = clock_monotonic(), .is_trial = !h->is_up};
    mine.target = spec->target ? spec->target : h->target;
    mine.arg = call;
    mine.on_done = on_done;
    h->pool->turn = (size_t)(h - h->pool->hosts) + 1;
    h->in_flight++;
    if (h->requests)
        stats_add(h->requests, 1);
    return http_client_request(h->client, &mine);
}

STATS_READ(read_up, http_pool_host_is_up(ctx))

static double read_down(void *ctx)
{
    const struct http_pool_host *h = ctx;
    usec_t left = h->is_up ? 0 : try_from(h) - clock_monotonic();
    return left > 0 ? (double)left / USEC_PER_SEC : 0;
}

void http_pool_register_stats(struct http_pool *p, struct stats *stats)
{
    p->stats = stats;
    for (size_t i = 0; i < p->n; i++) {
        struct http_pool_host *h = &p->hosts[i];
        struct buf labels = {0};
        buf_append_str(&labels, "destination=");
        buf_append_json(&labels, bytes_str(h->url));
        buf_append_char(&labels, '\0');
        stats_gauge(stats, "destination_up", labels.ptr, "1 if up, 0 if down after a fault", read_up, h);
        stats_gauge(
            stats, "destination_set_aside_seconds", labels.ptr, "Time until the next request", read_down, h);
        h->requests = stats_counter(stats, "destination_requests_total", labels.ptr, "Requests sent");
        h->faults = stats_counter(stats, "destination_faults_total", labels.ptr,
            "Requests without an answer, or answered 5xx or 429");
        buf_free(&labels);
    }
}
