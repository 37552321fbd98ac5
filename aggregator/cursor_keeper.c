#include "aggregator/cursor_keeper.h"

#include "http/client/http_client.h"
#include "base/log.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

struct stream_cursor_state {
    struct cursor_keeper *keeper;
    size_t stream;
    bool is_sent, is_asking;
    uint64_t sent, asked;
    int logged; /* the last logged status; 0: none */
};

struct cursor_keeper {
    struct http_client *client;
    const struct aggregate *aggregate;
    const char *name;
    size_t n;
    struct stream_cursor_state *streams;
};

struct cursor_keeper *cursor_keeper_new(
    struct http_client *client, const struct aggregate *a, size_t n_streams, const char *name)
{
    struct cursor_keeper *k = mem_zalloc(sizeof(*k));
    *k = (struct cursor_keeper){.client = client, .aggregate = a, .name = name, .n = n_streams};
    k->streams = mem_zalloc((n_streams + 1) * sizeof(*k->streams));
    for (size_t i = 0; i < n_streams; i++)
        k->streams[i] = (struct stream_cursor_state){.keeper = k, .stream = i};
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

static void log_refusal(struct stream_cursor_state *s, int status, struct bytes body)
{
    const struct slice_cursor *c = aggregate_committed(s->keeper->aggregate, s->stream);
    if (status == s->logged)
        return;
    s->logged = status;
    char *text = bytes_dup(body);
    log_warn("pubsub refused to move the cursor that retains uncounted lines", LOG_S("stream", c->stream),
        LOG_S("cursor", s->keeper->name), LOG_U("status", (uint64_t)status), LOG_S("answer", text));
    free(text);
}

/* If pubsub does not answer, the follower reports it. */
static void on_done(enum http_client_result result, const struct http_reply_view *reply, void *arg)
{
    struct stream_cursor_state *s = arg;
    s->is_asking = false;
    if (result != HTTP_CLIENT_OK)
        return;
    if (reply->status != 200) {
        log_refusal(s, reply->status, reply->body);
        return;
    }
    s->logged = 0;
    s->is_sent = true;
    s->sent = s->asked;
}

static void send_cursor(struct stream_cursor_state *s, const struct slice_cursor *c)
{
    struct buf target = {0};
    buf_printf(&target, "/cursors?stream=%s&name=%s&from=%" PRIu64 "&id=%s%s%c", c->stream, s->keeper->name,
        c->offset, c->id, s->is_sent ? "" : "&backwards=1", '\0');
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
        struct stream_cursor_state *s = &k->streams[i];
        const struct slice_cursor *c = aggregate_committed(k->aggregate, i);
        if (c->id[0] && !s->is_asking && (!s->is_sent || s->sent != c->offset))
            send_cursor(s, c);
    }
}
