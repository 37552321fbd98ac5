/* DUMP, DEAD, PRODUCER and PRODUCERS return messages and marks. POST PRODUCERS sets a mark. If the next message is
 * spilled, the request waits in the queue's line of loads, and then continues with this message. */
#include "simplequeue/server/http_common.h"

#include <stdlib.h>

struct inspection;
/* Appends messages with ids of at least i->from, and finally the end of the reply, to the body. QUEUE_LOADING: the next
 * message is being loaded from disk. */
typedef enum queue_result inspect_fn(struct inspection *i);

struct inspection {
    struct queue_server *server;
    struct http_request *req;
    struct named_queue *q;
    inspect_fn *inspect;
    const char *type;
    uint64_t from;   /* id at which the inspection continues */
    size_t n, items; /* number of messages in the body, and the maximum number */
    struct buf body;
};

/* Continues the inspection. Returns true if the request is answered and the inspection is freed. */
static bool go_on(struct inspection *i, struct wait *w)
{
    enum queue_result r = i->inspect(i);
    if (r == QUEUE_LOADING) {
        http_set_held_bytes(i->req, i->body.cap); /* these bytes count towards max_buffered */
        return false;
    }
    if (w)
        wait_leave(w);
    if (r == QUEUE_OK) {
        add_queue_id(i->req, i->q);
        http_reply_buf(i->req, 200, i->type, &i->body);
    } else {
        reply_refused(i->server, i->req, r, 0);
    }
    buf_free(&i->body);
    free(i);
    return true;
}

static bool retry_inspection(struct wait *w, enum wait_event event)
{
    struct inspection *i = w->arg;
    if (event != WAIT_GONE)
        return go_on(i, w);
    wait_leave(w);
    buf_free(&i->body);
    free(i);
    return true;
}

static void inspect(struct inspection like, struct bytes head, struct bytes empty)
{
    struct inspection *i;
    if (!may_inspect(like.server, like.req) || !param_existing_queue(like.server, like.req, &like.q) ||
        !http_param_u64(like.req, "from", 1, 1, UINT64_MAX - 1, &like.from))
        return;
    if (!like.q) {
        http_reply(like.req, 200, like.type, empty);
        return;
    }
    i = mem_alloc(sizeof *i);
    *i = like;
    buf_append_bytes(&i->body, head);
    if (!go_on(i, NULL))
        wait_add(&i->server->loop, &served_of(i->q)->loads, i->req, retry_inspection, i);
}

static enum queue_result add_ready(struct inspection *i)
{
    uint64_t id;
    for (; queue_next_ready(named_queue_core(i->q), i->from, &id); i->from = id + 1) {
        enum queue_result r = named_queue_prepare_message(i->q, id);
        i->from = id;
        if (r != QUEUE_OK)
            return r;
        struct bytes text = queue_message(named_queue_core(i->q), id, NULL);
        bool is_over = i->body.len + text.len > REPLY_BYTES_MAX || !http_has_memory(i->req);
        if (i->body.len && is_over) {
            http_add_header(i->req, "X-Millrace-Next", "%llu", (unsigned long long)id);
            break;
        }
        buf_append_bytes(&i->body, text);
        buf_append_char(&i->body, '\n');
    }
    return QUEUE_OK;
}

void http_dump(struct http_request *req, void *ctx)
{
    struct inspection i = {
        .server = ctx, .req = req, .inspect = add_ready, .type = "application/octet-stream"};
    inspect(i, BYTES_NONE, BYTES_NONE);
}

static enum queue_result add_buried(struct inspection *i)
{
    uint64_t id;
    const struct queue_burial *burial;
    while (i->n < i->items && i->body.len < REPLY_BYTES_MAX &&
           queue_next_buried(named_queue_core(i->q), i->from, &id, &burial)) {
        enum queue_result r = named_queue_prepare_message(i->q, id);
        i->from = id;
        if (r != QUEUE_OK)
            return r;
        uint32_t tries;
        struct bytes text = queue_message(named_queue_core(i->q), id, &tries);
        buf_printf(&i->body, "%s{\"id\":\"%llu\",\"tries\":%u,\"buried_at\":%lld,\"length\":%zu,\"reason\":",
            i->n++ ? "," : "", (unsigned long long)id, tries, (long long)(burial->buried_at / USEC_PER_SEC),
            text.len);
        buf_append_json(&i->body, burial->reason);
        buf_append_str(&i->body, ",\"message\":");
        buf_append_json(&i->body, text);
        buf_append_char(&i->body, '}');
        i->from = id + 1;
    }
    buf_append_str(&i->body, "]}\n");
    return QUEUE_OK;
}

void http_dead(struct http_request *req, void *ctx)
{
    struct inspection i = {.server = ctx, .req = req, .inspect = add_buried, .type = "application/json"};
    if (http_method(req) == HTTP_DELETE_)
        http_discard(req, ctx);
    else if (param_items(ctx, req, 100, &i.items))
        inspect(i, BYTES_LITERAL("{\"buried\":["), BYTES_LITERAL("{\"buried\":[]}\n"));
}

/* The mark of an unknown producer is 0. */
void http_producer(struct http_request *req, void *ctx)
{
    struct queue_server *server = ctx;
    char name[NAME_LEN_MAX + 1], producer[NAME_LEN_MAX + 1];
    bool known = false;
    if (!may_inspect(server, req) || !param_queue(req, name) ||
        !http_param_name(req, "producer", NULL, producer))
        return;
    const struct named_queue *q = queues_find(server->queues, name);
    uint64_t mark = q ? named_queue_mark(q, producer, &known) : 0;
    struct bytes opening = q ? named_queue_opening(q, producer) : BYTES_NONE;
    if (q)
        add_queue_id(req, q);
    http_replyf(req, 200, "application/json",
        "{\"queue\":\"%s\",\"producer\":\"%s\",\"mark\":\"%llu\",\"opening\":\"%.*s\",\"known\":%s}\n", name,
        producer, (unsigned long long)mark, (int)opening.len, opening.len ? opening.ptr : "",
        known ? "true" : "false");
}

static void append_producer(const struct journal_producer *p, void *arg)
{
    struct buf *out = arg;
    buf_printf(out, "%s{\"producer\":\"%.*s\",\"mark\":\"%llu\",\"opening\":\"%.*s\"}",
        out->ptr[out->len - 1] == '[' ? "\n" : ",\n", (int)p->name.len, p->name.ptr,
        (unsigned long long)p->mark, (int)p->tag.len, p->tag.len ? p->tag.ptr : "");
}

static void mark_set(const struct queue_outcome *outcome, void *arg)
{
    struct pending *p = arg;
    if (p->req && outcome->result == QUEUE_OK)
        http_producer(p->req, p->server);
    else if (p->req)
        reply_refused(p->server, p->req, outcome->result, 0);
    pending_free(p);
}

/* Sets a producer's mark, or removes the producer. */
static void set_mark(struct queue_server *server, struct http_request *req, struct named_queue *q)
{
    char producer[NAME_LEN_MAX + 1];
    bool removes = http_method(req) == HTTP_DELETE_, known;
    struct queue_put put = {.sets_mark = true};
    struct bytes text;
    if (!q)
        http_problem(req, 404, "unknown-queue", NULL, "the queue does not exist");
    else if (!removes && !http_param(req, "mark", &text))
        http_problem(req, 400, "missing-parameter", NULL, "mark is missing");
    else if (http_param_name(req, "producer", NULL, producer) &&
             (removes || http_param_u64(req, "mark", 0, 0, UINT64_MAX, &put.next))) {
        (void)named_queue_mark(q, producer, &known);
        if (removes && !known) {
            http_problem(req, 404, "unknown-producer", NULL, "the queue has no producer %s", producer);
            return;
        }
        put.producer = bytes_str(producer);
        struct pending *p = pending_new(server, req, q);
        enum queue_result r = named_queue_put(q, &put, queue_loop_now(), mark_set, p, NULL);
        if (r != QUEUE_OK)
            pending_refuse(p, r, 0);
    }
}

void http_producers(struct http_request *req, void *ctx)
{
    struct queue_server *server = ctx;
    char name[NAME_LEN_MAX + 1];
    if (!may_inspect(server, req) || !param_queue(req, name))
        return;
    struct named_queue *q = queues_find(server->queues, name);
    if (http_method(req) != HTTP_GET_) { /* the request may lower the mark */
        if (http_require_local(req))
            set_mark(server, req, q);
        return;
    }
    struct buf out = {0};
    if (q)
        add_queue_id(req, q);
    buf_printf(&out, "{\"queue\":\"%s\",\"producers\":[", name);
    if (q)
        named_queue_producers(q, append_producer, &out);
    buf_append_str(&out, "]}\n");
    http_reply_buf(req, 200, "application/json", &out);
    buf_free(&out);
}
