#include "compactor/control.h"

#include "base/log.h"
#include "http/client/http_client.h"
#include "json/json_fields.h"
#include "counts/slice.h"
#include "counts/slice_files.h"
#include <event2/event.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define SORTDBS_MAX 64
#define SEPARATORS " ,\t"

#define READY_POLL (200 * USEC_PER_MSEC)

struct peer {
    char *url;
    usec_t patience; /* for a daemon that recovers after its start */
    struct http_client *client;
};

struct control {
    struct event_base *base;
    struct peer aggregator, sortdbs[SORTDBS_MAX];
    size_t n_sortdbs;
    char *slices; /* directory of the slices of a stopped aggregator; else NULL */
    struct run_control calls;
};

/* A reply may take long, because a seal waits for a commit, and a reload checks whole files. A repeated request
 * joins the work in progress, or finds the work done. Therefore a request is repeated while the daemon answers
 * /ping. */
static enum http_client_result fetch(
    const struct peer *peer, const char *method, const char *target, int *status, struct buf *body)
{
    struct http_call_spec call = {.method = method, .target = target, .may_resend = true};
    for (;;) {
        buf_clear(body);
        enum http_client_result sent = http_client_fetch(peer->client, &call, status, body);
        if (sent != HTTP_CLIENT_TIMEOUT)
            return sent;
        struct http_call_spec ping = {.method = "GET", .target = "/ping", .may_resend = true};
        if (http_client_fetch(peer->client, &ping, status, body) != HTTP_CLIENT_OK)
            return sent;
        log_warn("still waiting for a reply", LOG_S("url", peer->url), LOG_S("request", target));
    }
}

/* True if a daemon answers "not ready" because it recovers after its start. */
static bool is_recovering(const struct peer *peer, int status, const struct json_doc *reply)
{
    struct http_call_spec call = {.method = "GET", .target = "/health?format=json", .may_resend = true};
    struct buf body = {0};
    if (status != 503 || !bytes_equal_str(json_doc_text(reply, "/code"), "not-ready"))
        return false;
    bool ok = http_client_fetch(peer->client, &call, &status, &body) == HTTP_CLIENT_OK;
    struct json_doc *health = ok ? json_doc_parse(buf_bytes(&body)) : NULL;
    bool is = bytes_equal_str(json_doc_text(health, "/state"), "recovering");
    json_doc_free(&health);
    buf_free(&body);
    return is;
}

/* Repeats a request while the daemon recovers, up to `patience`. */
static enum http_client_result fetch_ready(const struct peer *peer, const char *method, const char *target,
    int *status, struct buf *body, struct json_doc **reply)
{
    usec_t end = clock_monotonic() + peer->patience;
    for (bool has_said = false;; has_said = true) {
        enum http_client_result sent = fetch(peer, method, target, status, body);
        *reply = sent == HTTP_CLIENT_OK ? json_doc_parse(buf_bytes(body)) : NULL;
        if (sent != HTTP_CLIENT_OK || clock_monotonic() >= end || !is_recovering(peer, *status, *reply))
            return sent;
        if (!has_said)
            log_info("waiting for a daemon to recover", LOG_S("url", peer->url));
        json_doc_free(reply);
        clock_sleep(READY_POLL);
    }
}

/* Sets *reply only if the result is COMPACT_OK; the caller frees *reply. */
static enum compact_result ask(const struct peer *peer, const char *method, const char *target,
    struct json_doc **reply, struct error *error)
{
    int status = 0;
    struct buf body = {0};
    struct json_doc *d;
    enum http_client_result sent = fetch_ready(peer, method, target, &status, &body, &d);
    enum compact_result r = COMPACT_OK;
    if (sent != HTTP_CLIENT_OK) {
        r = error_set(error, COMPACT_TRY_AGAIN, "%s%s: %s", peer->url, target, http_client_strerror(sent));
    } else if (status < 200 || status >= 300) {
        struct bytes why = json_doc_text(d, "/detail");
        r = error_set(error, status >= 500 || status == 429 ? COMPACT_TRY_AGAIN : COMPACT_REFUSED,
            "%s%s: %d %.*s", peer->url, target, status, (int)why.len, why.len ? why.ptr : "");
    } else if (!d) {
        r = error_set(error, COMPACT_REFUSED, "%s%s: the reply is not JSON", peer->url, target);
    }
    if (r != COMPACT_OK)
        json_doc_free(&d);
    *reply = d;
    buf_free(&body);
    return r;
}

static enum compact_result take_number(const struct peer *peer, const struct json_doc *d, const char *pointer,
    uint64_t *out, struct error *error)
{
    if (json_doc_u64(d, pointer, out))
        return COMPACT_OK;
    return error_set(error, COMPACT_REFUSED, "%s: the reply has no %s", peer->url, pointer + 1);
}

static enum compact_result ask_number(const struct peer *peer, const char *method, const char *target,
    const char *pointer, uint64_t *out, struct error *error)
{
    struct json_doc *d;
    enum compact_result r = ask(peer, method, target, &d, error);
    if (r == COMPACT_OK)
        r = take_number(peer, d, pointer, out, error);
    json_doc_free(&d);
    return r;
}

/* Reads the newest slice of a stopped aggregator. Sets *last to its number, or to 0 if the directory has no slices. */
static enum compact_result look_at_newest(
    const char *directory, uint64_t *last, struct slice_state *state, struct error *error)
{
    struct slice_range found;
    *state = (struct slice_state){0};
    if (slice_files_find(directory, 0, &found) != 0)
        return error_errno(error, COMPACT_FAILED, directory);
    *last = found.last;
    if (found.last == 0)
        return COMPACT_OK;
    char *path = slice_path(directory, found.last);
    enum slice_result looked = slice_look(path, found.last, state, error);
    free(path);
    return looked == SLICE_OK ? COMPACT_OK
                              : error_set(error,
                                    looked == SLICE_FULL     ? COMPACT_TRY_AGAIN
                                    : looked == SLICE_FAILED ? COMPACT_FAILED
                                                             : COMPACT_DAMAGED,
                                    "%s", error->text);
}

/* If the aggregator is stopped, its newest slice shows which slices are sealed. */
static enum compact_result look_at_files(const char *directory, uint64_t *open, struct error *error)
{
    struct slice_state state;
    enum compact_result r = look_at_newest(directory, open, &state, error);
    *open += r == COMPACT_OK && state.sealed;
    slice_state_free(&state);
    return r;
}

static enum compact_result newest(void *arg, struct run_newest *out, struct error *error)
{
    const struct control *c = arg;
    uint64_t n = 0;
    *out = (struct run_newest){0};
    if (c->slices) {
        struct slice_state state;
        enum compact_result r = look_at_newest(c->slices, &n, &state, error);
        *out = (struct run_newest){.exists = state.number > 0, .quarters_since = state.quarters_since};
        if (!state.sealed)
            out->sums = value_sums_copy(&state.sums);
        slice_state_free(&state);
        return r;
    }
    if (!c->aggregator.client)
        return COMPACT_OK;
    enum compact_result r = ask_number(&c->aggregator, "GET", "/slices", "/quarters_since", &n, error);
    *out = (struct run_newest){.exists = r == COMPACT_OK, .quarters_since = (int64_t)n};
    return r;
}

/* The aggregator may count events after it has reported an empty slice. These events stay in the open slice until
 * the next run. */
static enum compact_result look(void *arg, uint64_t *open, bool *is_empty, struct error *error)
{
    static const char *const parts[] = {"/events", "/skipped", "/rejected"};
    const struct control *c = arg;
    struct json_doc *stats = NULL;
    uint64_t sum = 0;
    *open = 0;
    *is_empty = true;
    if (c->slices)
        return look_at_files(c->slices, open, error);
    if (!c->aggregator.client)
        return COMPACT_OK;
    enum compact_result r = ask_number(&c->aggregator, "GET", "/slices", "/open", open, error);
    if (r == COMPACT_OK)
        r = ask(&c->aggregator, "GET", "/stats?format=json", &stats, error);
    /* A seal that another run began may have ended since the first reply. Number and counts come from one reply. */
    if (r == COMPACT_OK)
        r = take_number(&c->aggregator, stats, "/slice", open, error);
    for (size_t i = 0; i < sizeof parts / sizeof *parts && r == COMPACT_OK; i++) {
        uint64_t n = 0;
        r = take_number(&c->aggregator, stats, parts[i], &n, error);
        sum += n;
    }
    json_doc_free(&stats);
    *is_empty = sum == 0;
    return r;
}

static enum compact_result seal(void *arg, uint64_t n, struct error *error)
{
    const struct control *c = arg;
    char target[64];
    uint64_t sealed = 0;
    snprintf(target, sizeof target, "/seal?slice=%" PRIu64, n);
    enum compact_result r = ask_number(&c->aggregator, "POST", target, "/sealed", &sealed, error);
    if (r == COMPACT_OK && sealed != n)
        r = error_set(error, COMPACT_REFUSED, "%s: sealed slice %" PRIu64 " instead of %" PRIu64,
            c->aggregator.url, sealed, n);
    return r;
}

/* True if an API that reads the archives of several cells has listed this generation. */
static bool is_listed(const struct json_doc *d, uint64_t generation, uint64_t content)
{
    size_t n = json_doc_length(d, "/archives"), i = 0;
    while (i < n && (json_doc_number(d, "/archives/%zu/generation", i) != generation ||
                        json_doc_number(d, "/archives/%zu/content", i) != content))
        i++;
    return i < n;
}

static enum compact_result take_served(const struct peer *sortdb, const struct json_doc *d,
    uint64_t generation, uint64_t content, struct error *error)
{
    uint64_t got = 0, got_content = 0;
    if (is_listed(d, generation, content))
        return COMPACT_OK;
    if (json_doc_length(d, "/archives") > 0)
        return error_set(error, COMPACT_TRY_AGAIN,
            "%s reads several archives, but not generation %" PRIu64 " of this archive", sortdb->url,
            generation);
    enum compact_result r = take_number(sortdb, d, "/generation", &got, error);
    if (r == COMPACT_OK)
        r = take_number(sortdb, d, "/content", &got_content, error);
    /* Another archive may have the same generation number, so the content must match too. */
    if (r == COMPACT_OK && (got != generation || got_content != content))
        r = error_set(error, COMPACT_TRY_AGAIN,
            "%s serves generation %" PRIu64 ", not this archive's %" PRIu64
            ": does this sortdb serve another archive?",
            sortdb->url, got, generation);
    return r;
}

static enum compact_result reload(
    void *arg, uint64_t generation, uint64_t content, bool *served, struct error *error)
{
    const struct control *c = arg;
    enum compact_result r = COMPACT_OK;
    for (size_t i = 0; i < c->n_sortdbs && r == COMPACT_OK; i++) {
        const struct peer *sortdb = &c->sortdbs[i];
        struct json_doc *d;
        r = ask(sortdb, "POST", "/reload?format=json", &d, error);
        if (r == COMPACT_OK)
            r = take_served(sortdb, d, generation, content, error);
        json_doc_free(&d);
    }
    *served = r == COMPACT_OK && c->n_sortdbs > 0;
    return r;
}

static enum compact_result clear(void *arg, uint64_t through, struct error *error)
{
    const struct control *c = arg;
    char target[64];
    uint64_t cleared;
    if (!c->aggregator.client)
        return COMPACT_OK;
    snprintf(target, sizeof target, "/clear?through=%" PRIu64, through);
    return ask_number(&c->aggregator, "POST", target, "/cleared", &cleared, error);
}

static enum compact_result counters(void *arg, uint64_t *hash, struct error *error)
{
    const struct control *c = arg;
    return ask_number(&c->aggregator, "GET", "/slices", "/counters", hash, error);
}

static bool connect_peer(struct control *c, const struct control_config *config, struct peer *peer,
    struct bytes url, struct error *error)
{
    peer->url = bytes_dup(url);
    peer->patience = config->reply_timeout;
    peer->client = http_client_new(&(struct http_client_config){.base = c->base,
        .url = peer->url,
        .max_connections = 1,
        .timeout = config->reply_timeout,
        .auth_token = config->auth_token});
    if (!peer->client)
        error_set(error, COMPACT_REFUSED, "%s: expected http://HOST:PORT or unix:PATH", peer->url);
    return peer->client != NULL;
}

static bool connect_sortdbs(struct control *c, const struct control_config *config, struct error *error)
{
    const char *list = config->sortdb_urls;
    struct bytes url;
    if (strcmp(list, "none") == 0)
        return true;
    while (bytes_next_word(&list, SEPARATORS, &url)) {
        if (c->n_sortdbs == SORTDBS_MAX) {
            error_set(error, COMPACT_REFUSED, "sortdb_url: more than %d addresses", SORTDBS_MAX);
            return false;
        }
        if (!connect_peer(c, config, &c->sortdbs[c->n_sortdbs++], url, error))
            return false;
    }
    if (c->n_sortdbs == 0)
        error_set(error, COMPACT_REFUSED, "sortdb_url is empty; without a sortdb, set it to none");
    return c->n_sortdbs > 0;
}

struct control *control_new(const struct control_config *config, struct error *error)
{
    struct control *c = mem_zalloc(sizeof *c);
    c->base = event_base_new();
    c->calls = (struct run_control){.arg = c,
        .look = look,
        .seal = seal,
        .reload = reload,
        .clear = clear,
        .counters = counters,
        .newest = newest};
    bool is_stopped = strcmp(config->aggregator_url, "stopped") == 0;
    bool has_aggregator = !is_stopped && strcmp(config->aggregator_url, "none") != 0;
    c->slices = is_stopped ? mem_strdup(config->slices) : NULL;
    if ((has_aggregator &&
            !connect_peer(c, config, &c->aggregator, bytes_str(config->aggregator_url), error)) ||
        !connect_sortdbs(c, config, error))
        control_free(&c);
    return c;
}

static void free_peer(struct peer *p)
{
    if (p->client)
        http_client_free(&p->client);
    free(p->url);
}

void control_free(struct control **cp)
{
    struct control *c = *cp;
    if (!c)
        return;
    free_peer(&c->aggregator);
    for (size_t i = 0; i < c->n_sortdbs; i++)
        free_peer(&c->sortdbs[i]);
    event_base_free(c->base);
    free(c->slices);
    free(c);
    *cp = NULL;
}

const struct run_control *control_calls(struct control *c)
{
    return &c->calls;
}
