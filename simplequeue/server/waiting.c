#include "simplequeue/server/waiting.h"

#include "simplequeue/server/queue_app.h"

#include <stdlib.h>

#define LOADING_RECHECK (100 * USEC_PER_MSEC)

static void line_add(struct waiting_line *line, struct waiter *w)
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
    struct waiting_line *line = w->line;
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

void waiting_free(struct waiter *w)
{
    if (w->line)
        w->app->waiting.n--;
    line_remove(w);
    heap_remove(&w->app->waiting.deadlines, &w->deadline);
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
    waiting_free(w);
    return req;
}

static void answer_nothing(struct waiter *w)
{
    struct named_queue *q = queues_find(w->app->queues, w->queue);
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
    struct app *app = w->app;
    struct queue *core = named_queue_core(q);
    struct id_ranges ids = {0};
    uint64_t lease = queue_reserve(core, w->reader, w->items, APP_REPLY_BYTES, now + w->lease, &ids);
    if (!lease)
        return false;
    frame_messages(core, &ids, &app->frames);
    id_ranges_free(&ids);
    struct http_request *req = leave(w, q);
    http_add_header_u64(req, "X-Millrace-Lease", lease);
    http_reply_buf(req, 200, "application/octet-stream", &app->frames);
    app_arm(app);
    return true;
}

bool waiting_answer_stale(struct waiter *w, struct named_queue *q)
{
    uint64_t latest = q ? queue_epoch(named_queue_core(q), w->reader) : 0;
    if (!w->epoch || w->epoch == latest)
        return false;
    reply_stale(leave(w, q), latest);
    return true;
}

void waiting_refuse_stale(struct named_queue *q)
{
    const struct waiting_line *line = &front_of(q)->line;
    struct waiter *after;
    for (struct waiter *w = line->first; w; w = after) {
        after = w->after;
        waiting_answer_stale(w, q);
    }
}

/* True when the waiter was answered. */
static bool try_answer(struct waiter *w, struct named_queue *q, usec_t now)
{
    if (waiting_answer_stale(w, q))
        return true;
    if (!queue_admits(named_queue_core(q), w->reader)) {
        reply_held(leave(w, NULL), q);
        return true;
    }
    enum queue_result r = named_queue_prepare(q, w->items, APP_REPLY_BYTES);
    if (r == QUEUE_OK)
        return answer_messages(w, q, now);
    if (r != QUEUE_LOADING)
        reply_refused(w->app, leave(w, q), r, 0);
    return r != QUEUE_LOADING;
}

static bool is_loading(struct waiter *w)
{
    struct named_queue *q = queues_find(w->app->queues, w->queue);
    return q && named_queue_prepare(q, w->items, APP_REPLY_BYTES) == QUEUE_LOADING;
}

static void on_gone(struct http_request *req, void *arg)
{
    (void)req;
    waiting_free(arg);
}

void waiting_reserve(struct waiter *w, struct queue_now now)
{
    struct app *app = w->app;
    struct named_queue *q = queues_find(app->queues, w->queue);
    struct waiting_line *line = q ? &front_of(q)->line : &app->waiting.strays;
    heap_node_init(&w->deadline);
    if (waiting_answer_stale(w, q))
        return;
    if (q && !line->first && try_answer(w, q, now.monotonic))
        return;
    if ((w->wait == 0 || daemon_is_draining(app->daemon)) && !is_loading(w)) {
        answer_nothing(w);
        return;
    }
    line_add(line, w);
    app->waiting.n++;
    heap_put(&app->waiting.deadlines, &w->deadline, now.monotonic + w->wait);
    http_on_gone(w->req, on_gone, w);
    http_set_long_poll(w->req);
    app_arm(app);
}

void waiting_queue_new(struct app *app, struct named_queue *q)
{
    struct waiting_line *line = &front_of(q)->line;
    struct waiter *after;
    for (struct waiter *w = app->waiting.strays.first; w; w = after) {
        after = w->after;
        if (strcmp(w->queue, named_queue_name(q)) != 0)
            continue;
        line_remove(w);
        line_add(line, w);
    }
}

void waiting_serve(struct named_queue *q)
{
    struct front *front = front_of(q);
    parked_resume(&front->parked);
    struct waiting_line *line = &front->line;
    usec_t now = line->first ? app_now().monotonic : 0;
    while (line->first && queue_state(named_queue_core(q))->n[MESSAGE_READY] > 0)
        if (!try_answer(line->first, q, now))
            return;
}

void waiting_tick(struct app *app, usec_t monotonic)
{
    struct heap_node *first;
    while ((first = heap_first(&app->waiting.deadlines)) && first->priority <= monotonic) {
        struct waiter *w = (struct waiter *)(void *)first;
        if (is_loading(w))
            heap_put(&app->waiting.deadlines, first, monotonic + LOADING_RECHECK);
        else
            answer_nothing(w);
    }
}

bool waiting_next_deadline(const struct app *app, usec_t *deadline)
{
    const struct heap_node *first = heap_first(&app->waiting.deadlines);
    if (first)
        *deadline = first->priority;
    return first != NULL;
}

void waiting_drain(struct app *app)
{
    struct heap_node *first;
    while ((first = heap_first(&app->waiting.deadlines)))
        answer_nothing((struct waiter *)(void *)first);
}
