#include "stream/publisher.h"

#include "base/backoff.h"
#include "http/client/http_pool.h"
#include "counts/json_fields.h"
#include "base/log.h"

#include <event2/event.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* Backoff after a reply for which the pool has none (401, 404, 413). */
#define RETRY_FIRST (50 * USEC_PER_MSEC)
#define RETRY_MAX (2 * USEC_PER_SEC)

struct publisher {
    struct publisher_config config;
    char *name, producer[NAME_LEN_MAX + 1]; /* of the stream or queue */
    enum { IDLE, ASKING, SENDING } doing;
    struct buf lines;
    uint64_t mark, next;
    struct stream_place place;
    struct http_call *call;
    struct event *timer;
    struct backoff backoff;
    char trouble[300];
};

static void act(struct publisher *p);

static void changed(struct publisher *p)
{
    if (p->config.on_change != NULL)
        p->config.on_change(p->config.arg);
}

static void again_after(struct publisher *p, usec_t delay)
{
    const struct timeval tv = {(time_t)(delay / USEC_PER_SEC), (suseconds_t)(delay % USEC_PER_SEC)};
    evtimer_add(p->timer, &tv);
}

static void failed(struct publisher *p, const char *why)
{
    if (strcmp(p->trouble, why) != 0)
        log_warn("cannot publish", LOG_S("to", p->name), LOG_S("error", why));
    snprintf(p->trouble, sizeof p->trouble, "%s", why);
    usec_t wait = http_pool_wait(p->config.destination);
    again_after(p, wait > 0 ? wait : backoff_failed(&p->backoff));
    changed(p);
}

static void went_well(struct publisher *p)
{
    backoff_succeeded(&p->backoff);
    p->doing = IDLE;
    if (p->trouble[0] == '\0')
        return;
    p->trouble[0] = '\0';
    changed(p);
}

/* "409 mark-conflict: ..." */
static void describe(const struct http_reply_view *reply, char *out, size_t size)
{
    struct json_doc *doc = json_doc_parse(reply->body);
    struct json_value code = {.type = JSON_MISSING}, detail = code;
    if (doc != NULL) {
        code = json_doc_at(doc, "/code");
        detail = json_doc_at(doc, "/detail");
    }
    snprintf(out, size, "the destination answered %d", reply->status);
    if (code.type == JSON_STRING && detail.type == JSON_STRING)
        snprintf(out, size, "the destination answered %d %.*s: %.*s", reply->status,
            (int)(code.v.string.len < 60 ? code.v.string.len : 60), code.v.string.ptr,
            (int)(detail.v.string.len < 150 ? detail.v.string.len : 150), detail.v.string.ptr);
    json_doc_free(&doc);
}

static bool has_code(const struct http_reply_view *reply, const char *code)
{
    struct json_doc *doc = json_doc_parse(reply->body);
    struct json_value v = doc != NULL ? json_doc_at(doc, "/code") : (struct json_value){.type = JSON_MISSING};
    bool is = v.type == JSON_STRING && bytes_equal_str(v.v.string, code);
    json_doc_free(&doc);
    return is;
}

/* False without a reply, which is handled. */
static bool replied(struct publisher *p, enum http_client_result result, const struct http_reply_view *reply)
{
    p->call = NULL;
    if (result == HTTP_CLIENT_OK) {
        stream_place_read(reply, &p->place);
        return true;
    }
    if (result != HTTP_CLIENT_CANCELLED)
        failed(p, http_client_strerror(result));
    return false;
}

static void asked(enum http_client_result result, const struct http_reply_view *reply, void *arg)
{
    struct publisher *p = arg;
    char why[300];
    uint64_t mark = 0;
    bool known = false;
    if (!replied(p, result, reply))
        return;
    struct json_doc *doc = reply->status == 200 ? json_doc_parse(reply->body) : NULL;
    if (doc != NULL) {
        struct json_value k = json_doc_at(doc, "/known");
        known = k.type == JSON_BOOL && k.v.boolean && json_doc_u64(doc, "/mark", &mark);
        json_doc_free(&doc);
    } else if (reply->status != 404 || !has_code(reply, "unknown-stream")) {
        describe(reply, why, sizeof why);
        failed(p, why);
        return;
    }
    went_well(p);
    p->config.on_mark(known, mark, p->config.arg);
}

static void sent(enum http_client_result result, const struct http_reply_view *reply, void *arg)
{
    struct publisher *p = arg;
    char why[300];
    if (!replied(p, result, reply))
        return;
    if (reply->status == 200) {
        went_well(p);
        p->config.on_stored(p->config.arg);
    } else if (reply->status == 409 && has_code(reply, "mark-conflict")) {
        went_well(p);
        p->config.on_conflict(p->config.arg);
    } else {
        describe(reply, why, sizeof why);
        failed(p, why);
    }
}

static void act(struct publisher *p)
{
    usec_t wait = http_pool_wait(p->config.destination);
    bool asks = p->doing == ASKING, to_queue = p->config.queue != NULL;
    char target[400];
    if (wait > 0)
        again_after(p, wait);
    if (wait > 0 || p->doing == IDLE)
        return;
    if (asks)
        snprintf(target, sizeof target, "/producer?%s=%s&producer=%s", to_queue ? "queue" : "stream", p->name,
            p->producer);
    else
        snprintf(target, sizeof target, "%s=%s&producer=%s&mark=%" PRIu64 "&next=%" PRIu64,
            to_queue ? "/mput?separator=%0A&queue" : "/pub?stream", p->name, p->producer, p->mark, p->next);
    struct http_call_spec spec = {.method = asks ? "GET" : "POST",
        .target = target,
        .content_type = asks ? NULL : "application/octet-stream",
        .body = asks ? BYTES_NONE : buf_bytes(&p->lines),
        .body_is_lent = !asks,
        .may_resend = true, /* the mark makes a repeated run harmless */
        .arg = p,
        .on_done = asks ? asked : sent};
    p->call = http_pool_request(http_pool_single(p->config.destination), &spec);
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what;
    act(arg);
}

struct publisher *publisher_new(const struct publisher_config *config)
{
    struct publisher *p = mem_zalloc(sizeof *p);
    p->config = *config;
    p->name = mem_strdup(config->queue != NULL ? config->queue : config->stream);
    p->timer = evtimer_new(config->base, on_timer, p);
    backoff_init(&p->backoff, RETRY_FIRST, RETRY_MAX, (uint64_t)clock_wall() ^ (uint64_t)getpid() << 32);
    return p;
}

void publisher_free(struct publisher **pp)
{
    struct publisher *p = *pp;
    if (p == NULL)
        return;
    if (p->call != NULL)
        http_call_cancel(p->call);
    event_free(p->timer);
    buf_free(&p->lines);
    free(p->name);
    free(p);
    *pp = NULL;
}

void publisher_ask(struct publisher *p, const char *producer)
{
    snprintf(p->producer, sizeof p->producer, "%s", producer);
    p->doing = ASKING;
    act(p);
}

void publisher_send(struct publisher *p, struct buf *lines, uint64_t mark, uint64_t next)
{
    struct buf used = p->lines; /* gives its memory back to the caller */
    buf_clear(&used);
    p->lines = *lines;
    *lines = used;
    p->mark = mark;
    p->next = next;
    p->doing = SENDING;
    act(p);
}

bool publisher_is_busy(const struct publisher *p)
{
    return p->doing != IDLE;
}

const struct stream_place *publisher_place(const struct publisher *p)
{
    return &p->place;
}

const char *publisher_trouble(const struct publisher *p)
{
    return p->trouble[0] != '\0' ? p->trouble : NULL;
}
