#include "aggregator/cursor_keeper.h"

#include "http/client/http_client.h"
#include "base/log.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

struct kept {
    struct cursor_keeper *keeper;
    size_t stream;
    bool is_told, is_asking;
    uint64_t told, asked;
    int said; /* the status that the log has, 0: none */
};

struct cursor_keeper {
    struct http_client *client;
    const struct aggregate *aggregate;
    const char *name;
    size_t n;
    struct kept *streams;
};

struct cursor_keeper *cursor_keeper_new(
    struct http_client *client, const struct aggregate *a, size_t n_streams, const char *name)
{
    struct cursor_keeper *k = mem_zalloc(sizeof(*k));
    *k = (struct cursor_keeper){.client = client, .aggregate = a, .name = name, .n = n_streams};
    k->streams = mem_zalloc((n_streams + 1) * sizeof(*k->streams));
    for (size_t i = 0; i < n_streams; i++)
        k->streams[i] = (struct kept){.keeper = k, .stream = i};
    return k;
}

void cursor_keeper_free(struct cursor_keeper **k)
{
    if (!*k)
        return;
    free((*k)->streams);
    free(*k);
    *k = NULL;
}

static void say(struct kept *s, int status, struct bytes body)
{
    const struct slice_cursor *c = aggregate_committed(s->keeper->aggregate, s->stream);
    if (status == s->said)
        return;
    s->said = status;
    char *text = bytes_dup(body);
    log_warn("pubsub does not move the cursor that keeps what is not counted", LOG_S("stream", c->stream),
        LOG_S("cursor", s->keeper->name), LOG_U("status", (uint64_t)status), LOG_S("answer", text));
    free(text);
}

/* Without an answer pubsub is away, which the follower says. */
static void on_done(enum http_client_result result, const struct http_reply_view *reply, void *arg)
{
    struct kept *s = arg;
    s->is_asking = false;
    if (result != HTTP_CLIENT_OK)
        return;
    if (reply->status != 200) {
        say(s, reply->status, reply->body);
        return;
    }
    s->said = 0;
    s->is_told = true;
    s->told = s->asked;
}

static void tell(struct kept *s, const struct slice_cursor *c)
{
    struct buf target = {0};
    buf_printf(&target, "/cursors?stream=%s&name=%s&from=%" PRIu64 "&id=%s%s%c", c->stream, s->keeper->name,
        c->offset, c->id, s->is_told ? "" : "&backwards=1", '\0');
    s->is_asking = true;
    s->asked = c->offset;
    struct http_call_spec spec = {
        .method = "POST", .target = target.ptr, .may_resend = true, .arg = s, .on_done = on_done};
    http_client_request(s->keeper->client, &spec);
    buf_free(&target);
}

void cursor_keeper_tick(struct cursor_keeper *k)
{
    for (size_t i = 0; i < k->n; i++) {
        struct kept *s = &k->streams[i];
        const struct slice_cursor *c = aggregate_committed(k->aggregate, i);
        if (c->id[0] && !s->is_asking && (!s->is_told || s->told != c->offset))
            tell(s, c);
    }
}
