#include "aggregator/watermark_poll.h"

#include "aggregator/watermark.h"
#include "http/client/http_client.h"
#include "counts/json_fields.h"
#include "daemon/daemon.h"

#include <assert.h>
#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>

#define ASK_SECONDS 1

struct watermark_poll {
    struct watermark_poll_config config;
    struct watermark *watermark;
    struct event *timer;
    bool asking;
    struct watermark_moment asked_at;
};

static struct watermark_moment now_of(const struct watermark_poll *p)
{
    usec_t trusted = daemon_trusted_time(p->config.daemon);
    return (struct watermark_moment){clock_boot(), trusted};
}

int64_t watermark_poll_complete_until(struct watermark_poll *p)
{
    uint64_t offsets[WATERMARK_STREAMS_MAX];
    for (size_t i = 0; i < p->config.n_streams; i++)
        offsets[i] = aggregate_cursor(p->config.aggregate, i)->offset;
    struct watermark_moment until = watermark_complete_until(p->watermark, offsets), now = now_of(p);
    usec_t time = now.trusted - (now.boot - until.boot);
    if (until.boot == 0)
        return 0;
    return (time < until.trusted ? time : until.trusted) / USEC_PER_SEC;
}

uint64_t watermark_poll_lag(const struct watermark_poll *p, size_t stream)
{
    uint64_t end = watermark_stream_end(p->watermark, stream);
    uint64_t offset = aggregate_cursor(p->config.aggregate, stream)->offset;
    return end > offset ? end - offset : 0;
}

/* Returns false if the listed stream has the name of a counted stream but another id. */
static bool read_end(const struct watermark_poll *p, const struct json_doc *doc, size_t at, uint64_t *ends)
{
    char pointer[64];
    snprintf(pointer, sizeof(pointer), "/streams/%zu/name", at);
    struct json_value name = json_doc_at(doc, pointer);
    for (size_t i = 0; i < p->config.n_streams && name.type == JSON_STRING; i++) {
        if (!bytes_equal_str(name.v.string, p->config.streams[i]))
            continue;
        const char *id = aggregate_cursor(p->config.aggregate, i)->id;
        snprintf(pointer, sizeof(pointer), "/streams/%zu/id", at);
        struct json_value found = json_doc_at(doc, pointer);
        if (id[0] && !(found.type == JSON_STRING && found.v.string.len <= strlen(id) &&
                         memcmp(id, found.v.string.ptr, found.v.string.len) == 0))
            return false;
        snprintf(pointer, sizeof(pointer), "/streams/%zu/end", at);
        json_doc_u64(doc, pointer, &ends[i]);
    }
    return true;
}

static void on_streams(enum http_client_result result, const struct http_reply_view *reply, void *arg)
{
    struct watermark_poll *p = arg;
    uint64_t ends[WATERMARK_STREAMS_MAX] = {0};
    p->asking = false;
    struct json_doc *doc =
        result == HTTP_CLIENT_OK && reply->status == 200 ? json_doc_parse(reply->body) : NULL;
    if (!doc)
        return;
    bool ok = json_doc_at(doc, "/streams").type == JSON_ARRAY;
    for (size_t i = 0; ok && i < json_doc_length(doc, "/streams"); i++)
        ok = read_end(p, doc, i, ends);
    if (ok)
        watermark_observe(p->watermark, p->asked_at, ends);
    json_doc_free(&doc);
    watermark_poll_complete_until(p);
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
    struct watermark_poll *p = arg;
    (void)fd, (void)what;
    if (p->asking)
        return;
    p->asking = true;
    p->asked_at = now_of(p);
    http_client_request(p->config.client,
        &(struct http_call_spec){
            .method = "GET", .target = "/streams", .may_resend = true, .arg = p, .on_done = on_streams});
}

struct watermark_poll *watermark_poll_new(const struct watermark_poll_config *config)
{
    assert(config->n_streams <= WATERMARK_STREAMS_MAX);
    struct watermark_poll *p = mem_zalloc(sizeof(*p));
    p->config = *config;
    p->watermark = watermark_new(config->n_streams);
    p->timer = event_new(daemon_base(config->daemon), -1, EV_PERSIST, on_timer, p);
    evtimer_add(p->timer, &(struct timeval){.tv_sec = ASK_SECONDS});
    on_timer(-1, 0, p);
    return p;
}

void watermark_poll_free(struct watermark_poll **pp)
{
    struct watermark_poll *p = *pp;
    *pp = NULL;
    if (!p)
        return;
    event_free(p->timer);
    watermark_free(&p->watermark);
    free(p);
}
