/* Looking at messages without taking them. What is on disk is read on the way. */
#include "simplequeue/server/queue_server.h"

#include <event2/buffer.h>
#include <stdlib.h>

struct inspection {
    struct queue_server *server;
    struct named_queue *q;
    uint64_t from;   /* the next id to look at */
    size_t n, items; /* given; at most */
    struct evbuffer *body;
};

static void inspection_free(struct inspection *l)
{
    evbuffer_free(l->body);
    free(l);
}

/* Whether the message's bytes are there. If not the look goes on later, or its request was answered. What it holds until
 * then counts as the client's. */
static bool at_hand(struct inspection *l, struct http_request *req, uint64_t id, load_wait_fn *go_on)
{
    enum queue_result r = named_queue_prepare_message(l->q, id);
    l->from = id;
    if (r == QUEUE_OK)
        return true;
    if (r == QUEUE_LOADING) {
        http_set_held_bytes(req, evbuffer_get_length(l->body));
        load_wait_add(&served_of(l->q)->loads, l->server, req, go_on, l);
        return false;
    }
    reply_refused(l->server, req, r, 0);
    inspection_free(l);
    return false;
}

static void answer(struct inspection *l, struct http_request *req, const char *type)
{
    if (l->q)
        add_queue_id(req, l->q);
    http_reply_evbuffer(req, 200, type, l->body);
    inspection_free(l);
}

bool server_may_inspect(const struct queue_server *server, struct http_request *req)
{
    bool stopping = daemon_is_draining(server->daemon);
    if (server->recovered && !stopping)
        return true;
    http_problem(req, 503, "not-ready", NULL, "%s", stopping ? "stopping" : "recovering");
    return false;
}

static struct inspection *inspection_new(struct queue_server *server, struct http_request *req, size_t items)
{
    char name[NAME_LEN_MAX + 1];
    uint64_t from;
    if (!server_may_inspect(server, req) || !param_queue(req, name) ||
        !http_param_u64(req, "from", 1, 1, UINT64_MAX - 1, &from))
        return NULL;
    struct inspection *l = mem_zalloc(sizeof *l);
    *l = (struct inspection){
        .server = server, .q = queues_find(server->queues, name), .from = from, .items = items};
    l->body = evbuffer_new();
    return l;
}

static void dump_on(struct http_request *req, void *arg)
{
    struct inspection *l = arg;
    uint64_t id;
    if (!req) {
        inspection_free(l);
        return;
    }
    for (; l->q && queue_next_ready(named_queue_core(l->q), l->from, &id); l->from = id + 1) {
        if (!at_hand(l, req, id, dump_on))
            return;
        struct bytes text = queue_message(named_queue_core(l->q), id, NULL);
        size_t length = evbuffer_get_length(l->body);
        if (length && (length + text.len > REPLY_BYTES_MAX || !http_has_memory(req))) {
            http_add_header(req, "X-Millrace-Next", "%llu", (unsigned long long)id);
            break;
        }
        evbuffer_add(l->body, text.ptr, text.len);
        evbuffer_add(l->body, "\n", 1);
    }
    answer(l, req, "application/octet-stream");
}

void http_dump(struct http_request *req, void *ctx)
{
    struct inspection *l = inspection_new(ctx, req, SIZE_MAX);
    if (l)
        dump_on(req, l);
}

static void add_buried(struct inspection *l, uint64_t id, const struct queue_burial *b)
{
    uint32_t tries;
    struct buf out = {0};
    struct bytes text = queue_message(named_queue_core(l->q), id, &tries);
    buf_printf(&out,
        "%s{\"id\":\"%llu\",\"tries\":%u,\"buried_at\":%lld,\"length\":%zu,\"reason\":", l->n++ ? "," : "",
        (unsigned long long)id, tries, (long long)(b->buried_at / USEC_PER_SEC), text.len);
    buf_append_json(&out, b->reason);
    buf_append_str(&out, ",\"message\":");
    buf_append_json(&out, text);
    buf_append_char(&out, '}');
    evbuffer_add(l->body, out.ptr, out.len);
    buf_free(&out);
}

static void dead_on(struct http_request *req, void *arg)
{
    struct inspection *l = arg;
    uint64_t id;
    const struct queue_burial *burial;
    if (!req) {
        inspection_free(l);
        return;
    }
    while (l->q && l->n < l->items && evbuffer_get_length(l->body) < REPLY_BYTES_MAX &&
           queue_next_buried(named_queue_core(l->q), l->from, &id, &burial)) {
        if (!at_hand(l, req, id, dead_on))
            return;
        add_buried(l, id, burial);
        l->from = id + 1;
    }
    evbuffer_add(l->body, "]}\n", 3);
    answer(l, req, "application/json");
}

void http_dead(struct http_request *req, void *ctx)
{
    size_t items;
    struct inspection *l = param_items(ctx, req, 100, &items) ? inspection_new(ctx, req, items) : NULL;
    if (!l)
        return;
    evbuffer_add_printf(l->body, "{\"buried\":[");
    dead_on(req, l);
}
