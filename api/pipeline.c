#include "api/pipeline.h"

#include "counts/json_fields.h"
#include <event2/event.h>
#include <inttypes.h>
#include <stdlib.h>

#define HISTORY_MAX (3600 / PIPELINE_REST)
#define ASKED_FOR (5 * USEC_PER_SEC) /* after a request, polls come every second for this time */

struct sample {
    int64_t at; /* Unix seconds; 0: none */
    uint64_t queued, published, counted, rejected, lag;
};

/* One daemon. `next` collects the poll in progress; `shown` is the last complete one. */
struct member {
    struct pipeline *pipeline;
    struct http_client *client; /* NULL: not asked */
    struct answer {
        const char *state;
        struct buf detail, stats; /* JSON text; empty: null */
    } next, shown;
};

struct pipeline {
    struct event *timer;
    struct member members[PEERS];
    unsigned unanswered; /* calls of the poll in progress */
    bool is_ending;
    usec_t asked;                       /* monotonic time of the last request; 0: never */
    struct sample history[HISTORY_MAX]; /* a ring; `newest` is the place of the newest one */
    size_t newest;
};

static void answer_clear(struct answer *a)
{
    a->state = "unreachable";
    buf_clear(&a->detail);
    buf_clear(&a->stats);
}

static void schedule(struct pipeline *p)
{
    bool is_asked = p->asked && clock_monotonic() - p->asked < ASKED_FOR;
    struct timeval wait = {.tv_sec = is_asked ? 1 : PIPELINE_REST};
    event_add(p->timer, &wait);
}

static struct json_doc *stats_of(const struct pipeline *p, const char *name)
{
    for (size_t i = 0; i < PEERS; i++)
        if (strcmp(peers[i].name, name) == 0 && p->members[i].shown.stats.len > 0)
            return json_doc_parse(buf_bytes(&p->members[i].shown.stats));
    return NULL;
}

/* The sum of a member of all objects in the object or array at `list`. */
static uint64_t sum_of(const struct json_doc *d, const char *list, const char *member)
{
    uint64_t sum = 0, n;
    char pointer[512];
    for (size_t i = 0; i < json_doc_length(d, list); i++) {
        struct bytes name = json_doc_name(d, list, i);
        snprintf(pointer, sizeof pointer, "%s/%.*s/%s", list, (int)name.len, name.ptr, member);
        sum += json_doc_u64(d, pointer, &n) ? n : 0;
    }
    return sum;
}

static uint64_t number(const struct json_doc *d, const char *pointer)
{
    uint64_t n = 0;
    json_doc_u64(d, pointer, &n);
    return n;
}

/* A daemon without statistics keeps its last numbers: its totals do not fall to 0 and rise again. */
static void take_sample(struct pipeline *p)
{
    int64_t now = clock_wall() / USEC_PER_SEC;
    if (now < p->history[p->newest].at + PIPELINE_REST)
        return;
    struct json_doc *queue = stats_of(p, "simplequeue"), *pubsub = stats_of(p, "pubsub");
    struct json_doc *aggregator = stats_of(p, "aggregator");
    struct sample s = p->history[p->newest];
    s.at = now;
    if (queue)
        s.queued = sum_of(queue, "/queues", "depth");
    if (pubsub)
        s.published = sum_of(pubsub, "/streams", "lines_published");
    if (aggregator) {
        s.counted = number(aggregator, "/events_counted_total");
        s.rejected = number(aggregator, "/lines_rejected_total");
        s.lag = number(aggregator, "/lag_bytes");
    }
    p->newest = (p->newest + 1) % HISTORY_MAX;
    p->history[p->newest] = s;
    json_doc_free(&queue);
    json_doc_free(&pubsub);
    json_doc_free(&aggregator);
}

static void finish_call(struct pipeline *p)
{
    if (--p->unanswered > 0 || p->is_ending)
        return;
    for (size_t i = 0; i < PEERS; i++) {
        struct answer last = p->members[i].shown;
        p->members[i].shown = p->members[i].next;
        p->members[i].next = last;
    }
    take_sample(p);
    schedule(p);
}

/* Each line after "ready" is a warning; a refusal is a problem with a detail. */
static void set_detail(struct answer *a, const struct http_reply_view *reply)
{
    struct json_doc *problem = reply->status == 200 ? NULL : json_doc_parse(reply->body);
    struct bytes text = problem ? json_doc_text(problem, "/detail") : reply->body;
    if (reply->status == 200 && bytes_starts_with(text, BYTES_LITERAL("ready")))
        text = bytes_of(text.ptr + 5, text.len - 5);
    while (text.len > 0 && text.ptr[0] == '\n')
        text = bytes_of(text.ptr + 1, text.len - 1);
    while (text.len > 0 && text.ptr[text.len - 1] == '\n')
        text.len--;
    if (text.len > 0 && a->detail.len > 0)
        buf_append_char(&a->detail, '\n');
    buf_append_bytes(&a->detail, text);
    json_doc_free(&problem);
}

static void on_health(enum http_client_result result, const struct http_reply_view *reply, void *arg)
{
    struct member *m = arg;
    if (result == HTTP_CLIENT_OK) {
        m->next.state = reply->status == 200 ? "ready" : "not ready";
        set_detail(&m->next, reply);
    }
    finish_call(m->pipeline);
}

static void on_stats(enum http_client_result result, const struct http_reply_view *reply, void *arg)
{
    struct member *m = arg;
    struct json_doc *d =
        result == HTTP_CLIENT_OK && reply->status == 200 ? json_doc_parse(reply->body) : NULL;
    if (d)
        buf_append_bytes(&m->next.stats, reply->body);
    else if (result == HTTP_CLIENT_OK && reply->status == 401 && m->next.detail.len == 0)
        buf_append_str(&m->next.detail, "the API does not have this daemon's token");
    json_doc_free(&d);
    finish_call(m->pipeline);
}

static void poll_all(evutil_socket_t fd, short what, void *arg)
{
    struct pipeline *p = arg;
    (void)fd;
    (void)what;
    p->unanswered = 1;
    for (size_t i = 0; i < PEERS; i++) {
        struct member *m = &p->members[i];
        struct http_call_spec call = {.method = "GET", .target = "/health", .may_resend = true, .arg = m};
        answer_clear(&m->next);
        if (!m->client)
            continue;
        p->unanswered += 2;
        call.on_done = on_health;
        http_client_request(m->client, &call);
        call.target = "/stats?format=json";
        call.on_done = on_stats;
        http_client_request(m->client, &call);
    }
    finish_call(p);
}

struct pipeline *pipeline_new(struct event_base *base, struct http_client *clients[PEERS])
{
    struct pipeline *p = mem_zalloc(sizeof *p);
    struct timeval soon = {0};
    for (size_t i = 0; i < PEERS; i++) {
        p->members[i] = (struct member){.pipeline = p, .client = clients[i]};
        answer_clear(&p->members[i].shown);
        p->members[i].shown.state = "unknown";
    }
    p->timer = evtimer_new(base, poll_all, p);
    event_add(p->timer, &soon);
    return p;
}

void pipeline_free(struct pipeline **pp)
{
    struct pipeline *p = *pp;
    if (!p)
        return;
    p->is_ending = true;
    for (size_t i = 0; i < PEERS; i++) {
        struct member *m = &p->members[i];
        http_client_free(&m->client);
        buf_free(&m->next.detail);
        buf_free(&m->next.stats);
        buf_free(&m->shown.detail);
        buf_free(&m->shown.stats);
    }
    event_free(p->timer);
    free(p);
    *pp = NULL;
}

static void append_history(const struct pipeline *p, struct buf *out)
{
    const char *comma = "";
    for (size_t i = 1; i <= HISTORY_MAX; i++) {
        const struct sample *s = &p->history[(p->newest + i) % HISTORY_MAX];
        if (s->at == 0)
            continue;
        buf_printf(out,
            "%s{\"t\":%" PRId64 ",\"queued\":%" PRIu64 ",\"published\":%" PRIu64 ",\"counted\":%" PRIu64
            ",\"rejected\":%" PRIu64 ",\"lag\":%" PRIu64 "}",
            comma, s->at, s->queued, s->published, s->counted, s->rejected, s->lag);
        comma = ",";
    }
}

void pipeline_reply(struct pipeline *p, struct http_request *req)
{
    struct buf out = {0};
    const char *comma = "";
    usec_t now = clock_monotonic();
    bool was_asked = p->asked && now - p->asked < ASKED_FOR;
    p->asked = now;
    if (!was_asked && p->unanswered == 0)
        schedule(p);
    buf_printf(&out, "{\"time\":%.3f,\"daemons\":[", (double)clock_wall() / USEC_PER_SEC);
    for (size_t i = 0; i < PEERS; i++) {
        const struct answer *a = &p->members[i].shown;
        if (!p->members[i].client)
            continue;
        buf_printf(&out, "%s{\"name\":\"%s\",\"state\":\"%s\",\"detail\":", comma, peers[i].name, a->state);
        comma = ",";
        buf_append_json(&out, buf_bytes(&a->detail));
        buf_append_str(&out, ",\"stats\":");
        if (a->stats.len > 0)
            buf_append_bytes(&out, buf_bytes(&a->stats));
        else
            buf_append_str(&out, "null");
        buf_append_char(&out, '}');
    }
    buf_append_str(&out, "],\"history\":[");
    append_history(p, &out);
    buf_append_str(&out, "]}\n");
    http_add_header_text(req, "Cache-Control", "no-store");
    http_reply_buf(req, 200, "application/json", &out);
    buf_free(&out);
}
