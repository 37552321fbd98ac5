#include "simplequeue/server/long_poll.h"

#include "simplequeue/server/queue_server.h"

#include <stdlib.h>

#define LOADING_RECHECK (100 * USEC_PER_MSEC)

static void line_add(struct poll_line *line, struct waiter *w)
{
    w->line = line;
    w->before = line->last;
    w->after = NULL;
    if (line->last)
        line->last->after = w;
    else
        line->first = w;
    line->last = w;
}

static void line_remove(struct waiter *w)
{
    struct poll_line *line = w->line;
    if (!line)
        return;
    if (w->before)
        w->before->after = w->after;
    else
        line->first = w->after;
    if (w->after)
        w->after->before = w->before;
    else
        line->last = w->before;
    w->line = NULL;
}

void long_poll_free(struct waiter *w)
{
    if (w->line)
        w->server->polls.n--;
    line_remove(w);
    heap_remove(&w->server->polls.deadlines, &w->deadline);
    free(w);
}

/* The waiter is done: what it asked of, to be answered. */
static struct http_request *leave(struct waiter *w, struct named_queue *q)
{
    struct http_request *req = w->req;
    if (q)
        add_queue_id(req, q);
    if (w->acks)
        http_add_header_u64(req, "X-Millrace-Acked", w->acked);
    long_poll_free(w);
    return req;
}

static void answer_nothing(struct waiter *w)
{
    struct named_queue *q = queues_find(w->server->queues, w->queue);
    http_reply(leave(w, q), 200, "application/octet-stream", BYTES_NONE);
}

static void frame_messages(struct queue *core, const struct id_ranges *ids, struct buf *out)
{
    for (size_t r = 0; r < ids->n; r++)
        for (uint64_t id = ids->at[r].first; id <= ids->at[r].last; id++) {
            uint32_t tries;
            struct bytes text = queue_message(core, id, &tries);
            buf_append_u64(out, id);
            buf_append_char(out, ' ');
            buf_append_u64(out, tries);
            buf_append_char(out, ' ');
            buf_append_u64(out, text.len);
            buf_append_char(out, '\n');
            buf_append_bytes(out, text);
            buf_append_char(out, '\n');
        }
}

/* Leases what is ready and answers with it; false when nothing is ready. */
static bool answer_messages(struct waiter *w, struct named_queue *q, usec_t now)
{
    struct queue_server *server = w->server;
    struct queue *core = named_queue_core(q);
    struct id_ranges ids = {0};
    uint64_t lease = queue_reserve(core, w->reader, w->items, REPLY_BYTES_MAX, now + w->lease, &ids);
    if (!lease)
        return false;
    frame_messages(core, &ids, &server->frames);
    id_ranges_free(&ids);
    struct http_request *req = leave(w, q);
    http_add_header_u64(req, "X-Millrace-Lease", lease);
    http_reply_buf(req, 200, "application/octet-stream", &server->frames);
    server_arm(server);
    return true;
}

bool long_poll_answer_stale(struct waiter *w, struct named_queue *q)
{
    uint64_t latest = q ? queue_epoch(named_queue_core(q), w->reader) : 0;
    if (!w->epoch || w->epoch == latest)
        return false;
    reply_stale(leave(w, q), latest);
    return true;
}

void long_poll_refuse_stale(struct named_queue *q)
{
    const struct poll_line *line = &served_of(q)->line;
    struct waiter *after;
    for (struct waiter *w = line->first; w; w = after) {
        after = w->after;
        long_poll_answer_stale(w, q);
    }
}

/* True when the waiter was answered. */
static bool try_answer(struct waiter *w, struct named_queue *q, usec_t now)
{
    if (long_poll_answer_stale(w, q))
        return true;
    if (!queue_admits(named_queue_core(q), w->reader)) {
        reply_held(leave(w, NULL), q);
        return true;
    }
    enum queue_result r = named_queue_prepare(q, w->items, REPLY_BYTES_MAX);
    if (r == QUEUE_OK)
        return answer_messages(w, q, now);
    if (r != QUEUE_LOADING)
        reply_refused(w->server, leave(w, q), r, 0);
    return r != QUEUE_LOADING;
}

static bool is_loading(struct waiter *w)
{
    struct named_queue *q = queues_find(w->server->queues, w->queue);
    return q && named_queue_prepare(q, w->items, REPLY_BYTES_MAX) == QUEUE_LOADING;
}

static void on_gone(struct http_request *req, void *arg)
{
    (void)req;
    long_poll_free(arg);
}

void long_poll_reserve(struct waiter *w, struct queue_now now)
{
    struct queue_server *server = w->server;
    struct named_queue *q = queues_find(server->queues, w->queue);
    struct poll_line *line = q ? &served_of(q)->line : &server->polls.strays;
    heap_node_init(&w->deadline);
    if (long_poll_answer_stale(w, q))
        return;
    if (q && !line->first && try_answer(w, q, now.monotonic))
        return;
    if ((w->wait == 0 || daemon_is_draining(server->daemon)) && !is_loading(w)) {
        answer_nothing(w);
        return;
    }
    line_add(line, w);
    server->polls.n++;
    heap_put(&server->polls.deadlines, &w->deadline, now.monotonic + w->wait);
    http_on_gone(w->req, on_gone, w);
    http_set_long_poll(w->req);
    server_arm(server);
}

void long_poll_queue_new(struct queue_server *server, struct named_queue *q)
{
    struct poll_line *line = &served_of(q)->line;
    struct waiter *after;
    for (struct waiter *w = server->polls.strays.first; w; w = after) {
        after = w->after;
        if (strcmp(w->queue, named_queue_name(q)) != 0)
            continue;
        line_remove(w);
        line_add(line, w);
    }
}

void long_poll_serve(struct named_queue *q)
{
    struct served_queue *served = served_of(q);
    load_wait_resume(&served->loads);
    struct poll_line *line = &served->line;
    usec_t now = line->first ? server_now().monotonic : 0;
    while (line->first && queue_state(named_queue_core(q))->n[MESSAGE_READY] > 0)
        if (!try_answer(line->first, q, now))
            return;
}

void long_poll_tick(struct queue_server *server, usec_t monotonic)
{
    struct heap_node *first;
    while ((first = heap_first(&server->polls.deadlines)) && first->priority <= monotonic) {
        struct waiter *w = (struct waiter *)(void *)first;
        if (is_loading(w))
            heap_put(&server->polls.deadlines, first, monotonic + LOADING_RECHECK);
        else
            answer_nothing(w);
    }
}

bool long_poll_next_deadline(const struct queue_server *server, usec_t *deadline)
{
    const struct heap_node *first = heap_first(&server->polls.deadlines);
    if (first)
        *deadline = first->priority;
    return first != NULL;
}

void long_poll_drain(struct queue_server *server)
{
    struct heap_node *first;
    while ((first = heap_first(&server->polls.deadlines)))
        answer_nothing((struct waiter *)(void *)first);
}
