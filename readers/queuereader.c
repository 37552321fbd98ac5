#include "queuereader.h"

#include "http_client.h"
#include "reader_plan.h"
#include "url.h"

#include <assert.h>
#include <event2/event.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define QUEUEREADER_MAGIC 0x51524452
#define DEFAULT_WAIT (20 * USEC_PER_SEC)
#define POLL_MARGIN (10 * USEC_PER_SEC) /* of a long poll's time limit over its wait */
#define DEFAULT_BACKOFF_MIN (50 * USEC_PER_MSEC)
#define DEFAULT_BACKOFF_MAX (5 * USEC_PER_SEC)

struct queuereader {
    unsigned magic;
    struct queuereader_config config;
    char *queue, *reader; /* percent-encoded */
    struct plan *plan;
    struct http_client *client;
    struct http_call *call; /* to the queue; NULL: none under way */
    bool with_destination;  /* asked, or a run is there */
    bool stopping, ended;
    struct event *advance;
    char trouble[256];
    bool troubled, queue_answered, destination_answered;
    struct queuereader_numbers numbers;
};

static void advance(struct queuereader *qr);

/* ---- trouble ---- */

static void set_trouble(struct queuereader *qr, const char *side, const char *what)
{
    char text[sizeof(qr->trouble)];
    snprintf(text, sizeof(text), "%s: %s", side, what);
    if (qr->troubled && strcmp(text, qr->trouble) == 0)
        return;
    memcpy(qr->trouble, text, sizeof(text));
    qr->troubled = true;
    if (qr->config.on_trouble)
        qr->config.on_trouble(qr->trouble, qr->config.arg);
}

static void answered(struct queuereader *qr, enum plan_side side)
{
    *(side == PLAN_QUEUE ? &qr->queue_answered : &qr->destination_answered) = true;
    const char *prefix = side == PLAN_QUEUE ? "queue: " : "destination: ";
    bool first = !qr->trouble[0] && qr->queue_answered && qr->destination_answered;
    if (!first && !(qr->troubled && strncmp(qr->trouble, prefix, strlen(prefix)) == 0))
        return;
    qr->troubled = false;
    snprintf(qr->trouble, sizeof(qr->trouble), "ok");
    if (qr->config.on_trouble && qr->queue_answered && qr->destination_answered)
        qr->config.on_trouble(NULL, qr->config.arg);
}

const char *queuereader_trouble(const struct queuereader *qr)
{
    if (qr->troubled)
        return qr->trouble;
    if (!qr->queue_answered)
        return "connecting to the queue";
    return qr->destination_answered ? NULL : "connecting to the destination";
}

static void queue_faulted(struct queuereader *qr, const char *why)
{
    qr->numbers.queue_faults++;
    set_trouble(qr, "queue", why);
    plan_faulted(qr->plan, PLAN_QUEUE, clock_monotonic());
}

/* ---- the loop's turn ---- */

static void advance_at(struct queuereader *qr, usec_t delay)
{
    struct timeval tv = {(time_t)(delay / USEC_PER_SEC), (suseconds_t)(delay % USEC_PER_SEC)};
    evtimer_add(qr->advance, &tv);
}

static void on_advance(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    advance(arg);
}

/* ---- replies of the queue ---- */

struct bytes queuereader_reply_member(struct bytes json, const char *name)
{
    char key[64];
    int len = snprintf(key, sizeof(key), "\"%s\":\"", name);
    const char *at = json.len ? memmem(json.ptr, json.len, key, (size_t)len) : NULL;
    if (!at)
        return BYTES_NONE;
    at += len;
    const char *end = memchr(at, '"', json.len - (size_t)(at - json.ptr));
    return end ? bytes_of(at, (size_t)(end - at)) : BYTES_NONE;
}

/* The call has ended, with a reply of that status or with a fault, which is dealt with here: false. */
static bool queue_replied(
    struct queuereader *qr, enum http_client_result result, const struct http_reply_view *reply)
{
    assert(qr->magic == QUEUEREADER_MAGIC);
    qr->call = NULL;
    if (result == HTTP_CLIENT_CANCELLED)
        return false; /* by stop or free: nobody waits for it */
    advance_at(qr, 0);
    if (result != HTTP_CLIENT_OK) {
        queue_faulted(qr, http_client_strerror(result));
        return false;
    }
    if (reply->status == 200 || reply->status == 409)
        return true;
    char why[128];
    struct bytes code = queuereader_reply_member(reply->body, "code");
    snprintf(why, sizeof(why), "answered %d %.*s", reply->status, (int)(code.len < 64 ? code.len : 64),
        code.len ? code.ptr : "");
    queue_faulted(qr, why);
    return false;
}

static struct bytes queue_id_of(const struct http_reply_view *reply)
{
    struct bytes id = bytes_str(http_reply_header(reply, "X-Millrace-Queue-Id"));
    return bytes_is_name(id) ? id : BYTES_NONE;
}

static void released(enum http_client_result result, const struct http_reply_view *reply, void *arg)
{
    struct queuereader *qr = arg;
    if (!queue_replied(qr, result, reply))
        return;
    uint64_t next_id;
    struct bytes id = queue_id_of(reply);
    if (reply->status == 200 && bytes_to_u64(queuereader_reply_member(reply->body, "next_id"), &next_id)) {
        answered(qr, PLAN_QUEUE);
        plan_released(qr->plan, id, next_id);
    } else {
        queue_faulted(qr, "does not answer /release as a simplequeue does");
    }
}

static void reserved_messages(struct queuereader *qr, const struct http_reply_view *reply)
{
    uint64_t lease = 0;
    struct batch batch = {0};
    struct bytes id = queue_id_of(reply);
    bool leased = bytes_to_u64(bytes_str(http_reply_header(reply, "X-Millrace-Lease")), &lease);
    if ((reply->body.len && !(leased && id.len)) || !batch_parse(reply->body, lease, &batch)) {
        queue_faulted(qr, "does not answer /reserve as a simplequeue does");
        return;
    }
    answered(qr, PLAN_QUEUE);
    qr->numbers.reserved += batch.n;
    plan_reserved(qr->plan, id, &batch, clock_monotonic());
}

static void reserved(enum http_client_result result, const struct http_reply_view *reply, void *arg)
{
    struct queuereader *qr = arg;
    if (!queue_replied(qr, result, reply))
        return;
    if (reply->status == 200) {
        reserved_messages(qr, reply);
    } else if (bytes_equal_str(queuereader_reply_member(reply->body, "code"), "lease-lost")) {
        plan_lease_lost(qr->plan);
    } else {
        struct bytes who = queuereader_reply_member(reply->body, "reader");
        char why[160];
        snprintf(why, sizeof(why), "held by the reader %.*s", (int)(who.len < 64 ? who.len : 64),
            who.len ? who.ptr : "");
        queue_faulted(qr, why);
    }
}

static void buried(enum http_client_result result, const struct http_reply_view *reply, void *arg)
{
    struct queuereader *qr = arg;
    if (!queue_replied(qr, result, reply))
        return;
    if (reply->status == 200) {
        qr->numbers.buried++;
        plan_buried(qr->plan);
    } else {
        plan_lease_lost(qr->plan);
    }
}

static void acknowledged(enum http_client_result result, const struct http_reply_view *reply, void *arg)
{
    struct queuereader *qr = arg;
    if (queue_replied(qr, result, reply))
        plan_acknowledged(qr->plan);
}

/* ---- requests to the queue ---- */

typedef void reply_fn(enum http_client_result result, const struct http_reply_view *reply, void *arg);

static void call_queue(
    struct queuereader *qr, const char *method, struct buf *target, usec_t timeout, reply_fn *done)
{
    buf_append_char(target, '\0');
    struct http_call_spec spec = {
        .method = method,
        .target = target->ptr,
        .timeout = timeout,
        .arg = qr,
        .on_done = done,
    };
    qr->call = http_client_request(qr->client, &spec);
    buf_free(target);
}

static void release(struct queuereader *qr)
{
    struct buf target = {0};
    buf_printf(&target, "/release?queue=%s&reader=%s", qr->queue, qr->reader);
    call_queue(qr, "POST", &target, 0, released);
}

static void reserve(struct queuereader *qr)
{
    struct buf target = {0};
    buf_printf(&target, "/reserve?queue=%s&reader=%s&items=%" PRIu64 "&lease=%" PRId64 "&wait=%" PRId64,
        qr->queue, qr->reader, qr->config.items, qr->config.lease / USEC_PER_MSEC,
        qr->config.wait / USEC_PER_MSEC);
    struct bytes acks = plan_acks(qr->plan);
    if (acks.len)
        buf_printf(&target, "&ack=%.*s", (int)acks.len, acks.ptr);
    call_queue(qr, "GET", &target, qr->config.wait + POLL_MARGIN, reserved);
}

static void bury(struct queuereader *qr, const struct plan_step *step)
{
    const struct batch *batch = plan_batch(qr->plan);
    const struct message *m = &batch->messages[step->first];
    struct buf target = {0};
    buf_printf(
        &target, "/bury?queue=%s&lease=%" PRIu64 "&id=%" PRIu64 "&reason=", qr->queue, batch->lease, m->id);
    url_encode(bytes_str(m->reason), &target);
    call_queue(qr, "POST", &target, 0, buried);
}

/* plan_acks is `LEASE:RANGES`. */
static void acknowledge(struct queuereader *qr)
{
    struct bytes acks = plan_acks(qr->plan);
    const char *colon = memchr(acks.ptr, ':', acks.len);
    int lease_len = (int)(colon - acks.ptr);
    struct buf target = {0};
    buf_printf(&target, "/ack?queue=%s&lease=%.*s&id=%.*s", qr->queue, lease_len, acks.ptr,
        (int)acks.len - lease_len - 1, colon + 1);
    call_queue(qr, "POST", &target, 0, acknowledged);
}

/* ---- the destination ---- */

static void deliver(struct queuereader *qr, const struct plan_step *step)
{
    struct queuereader_run run = {
        .messages = plan_batch(qr->plan)->messages + step->first,
        .n = step->count,
        .queue_id = plan_queue_id(qr->plan),
        .mark = step->mark,
        .next = step->next,
    };
    qr->with_destination = true;
    qr->config.destination.deliver(qr, &run, qr->config.destination.arg);
}

static void ask(struct queuereader *qr)
{
    qr->with_destination = true;
    qr->config.destination.ask(qr, plan_queue_id(qr->plan), qr->config.destination.arg);
}

/* The answer may come while deliver is still on the stack: what follows waits for the loop's next turn. */
static void destination_answers(struct queuereader *qr)
{
    assert(qr->magic == QUEUEREADER_MAGIC && qr->with_destination);
    qr->with_destination = false;
    advance_at(qr, 0);
}

void queuereader_asked(struct queuereader *qr, uint64_t mark)
{
    destination_answers(qr);
    answered(qr, PLAN_DESTINATION);
    if (!qr->stopping)
        plan_asked(qr->plan, mark);
}

void queuereader_delivered(struct queuereader *qr)
{
    destination_answers(qr);
    answered(qr, PLAN_DESTINATION);
    uint64_t before = plan_mark(qr->plan);
    size_t n = plan_run_length(qr->plan);
    plan_delivered(qr->plan);
    assert(plan_mark(qr->plan) > before || !qr->config.destination.ask);
    qr->numbers.delivered += n;
    qr->numbers.runs++;
}

void queuereader_conflict(struct queuereader *qr)
{
    destination_answers(qr);
    answered(qr, PLAN_DESTINATION);
    qr->numbers.conflicts++;
    plan_conflict(qr->plan);
}

void queuereader_refused(struct queuereader *qr, const char *reason)
{
    destination_answers(qr);
    answered(qr, PLAN_DESTINATION);
    qr->numbers.refused++;
    plan_refused(qr->plan, reason);
}

void queuereader_faulted(struct queuereader *qr, const char *why)
{
    destination_answers(qr);
    qr->numbers.destination_faults++;
    set_trouble(qr, "destination", why);
    plan_faulted(qr->plan, PLAN_DESTINATION, clock_monotonic());
}

/* ---- what is next ---- */

static void ended(struct queuereader *qr, enum queuereader_end how)
{
    if (qr->ended)
        return;
    qr->ended = true;
    qr->config.on_stopped(how, qr->config.arg);
}

static void advance(struct queuereader *qr)
{
    if (qr->call || qr->with_destination || qr->ended)
        return;
    usec_t now = clock_monotonic();
    struct plan_step step = plan_next(qr->plan, now);
    switch (step.action) {
    case PLAN_RELEASE:
        release(qr);
        break;
    case PLAN_ASK:
        ask(qr);
        break;
    case PLAN_RESERVE:
        reserve(qr);
        break;
    case PLAN_DELIVER:
        deliver(qr, &step);
        break;
    case PLAN_BURY:
        bury(qr, &step);
        break;
    case PLAN_ACK:
        acknowledge(qr);
        break;
    case PLAN_PAUSE:
        advance_at(qr, step.until - now);
        break;
    case PLAN_STOPPED:
        ended(qr, QUEUEREADER_STOPPED);
        break;
    case PLAN_OLD_COPY:
        ended(qr, QUEUEREADER_OLD_COPY);
        break;
    }
}

/* ---- life ---- */

static char *encoded(const char *text)
{
    struct buf out = {0};
    url_encode(bytes_str(text), &out);
    buf_append_char(&out, '\0');
    return out.ptr;
}

static struct plan *new_plan(const struct queuereader_config *c)
{
    struct plan_config config = {
        .marks = c->destination.ask != NULL,
        .lines = c->destination.lines,
        .max_bytes = c->destination.max_bytes,
        .lease = c->lease,
        .backoff_min = c->backoff_min,
        .backoff_max = c->backoff_max,
        .seed = (uint64_t)clock_wall() ^ ((uint64_t)getpid() << 40),
    };
    return plan_new(&config);
}

struct queuereader *queuereader_new(const struct queuereader_config *config)
{
    struct http_client_config client_config = {
        .base = config->base,
        .url = config->queue_url,
        .max_connections = 1,
        .auth_token = config->auth_token,
    };
    struct http_client *client = http_client_new(&client_config);
    if (!client)
        return NULL;
    struct queuereader *qr = mem_zalloc(sizeof(*qr));
    qr->magic = QUEUEREADER_MAGIC;
    qr->config = *config;
    qr->client = client;
    qr->config.wait = config->wait ? config->wait : DEFAULT_WAIT;
    qr->config.backoff_min = config->backoff_min ? config->backoff_min : DEFAULT_BACKOFF_MIN;
    qr->config.backoff_max = config->backoff_max ? config->backoff_max : DEFAULT_BACKOFF_MAX;
    qr->queue = encoded(config->queue);
    qr->reader = encoded(config->reader);
    qr->destination_answered = !config->destination.ask;
    qr->plan = new_plan(&qr->config);
    qr->advance = evtimer_new(config->base, on_advance, qr);
    advance_at(qr, 0);
    return qr;
}

void queuereader_free(struct queuereader **qr)
{
    if (!*qr)
        return;
    assert((*qr)->magic == QUEUEREADER_MAGIC);
    http_client_free(&(*qr)->client);
    event_free((*qr)->advance);
    plan_free(&(*qr)->plan);
    (*qr)->magic = 0;
    free((*qr)->queue);
    free((*qr)->reader);
    free(*qr);
    *qr = NULL;
}

/* A long poll is not waited for. What it may have leased meanwhile goes back with the release that follows. */
void queuereader_stop(struct queuereader *qr)
{
    if (qr->stopping)
        return;
    qr->stopping = true;
    if (qr->call)
        http_call_cancel(qr->call);
    plan_stop(qr->plan);
    advance_at(qr, 0);
}

struct queuereader_numbers queuereader_numbers(const struct queuereader *qr)
{
    return qr->numbers;
}
