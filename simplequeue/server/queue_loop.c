#include "simplequeue/server/queue_loop.h"

#include "base/clock.h"
#include "daemon/daemon.h"
#include "daemon/loop_timer.h"

#include <assert.h>
#include <stdlib.h>

struct queue_now queue_loop_now(void)
{
    return (struct queue_now){clock_monotonic(), clock_wall()};
}

void queue_loop_arm(struct queue_loop *loop)
{
    usec_t first = INT64_MAX;
    const struct heap_node *wait = heap_first(&loop->waits);
    queues_next_deadline(loop->queues, &first);
    if (wait && wait->priority < first)
        first = wait->priority;
    if (first >= loop->armed)
        return;
    loop->armed = first;
    usec_t left = first - clock_monotonic();
    loop_timer_set(loop->timer, left > 0 ? left : 0);
}

void queue_loop_begin(struct queue_loop *loop)
{
    loop->working++;
}

void queue_loop_end(struct queue_loop *loop)
{
    assert(loop->working > 0);
    loop->working--;
    queue_loop_check_drained(loop);
}

void queue_loop_check_drained(struct queue_loop *loop)
{
    if (loop->drained || loop->working > 0 || !daemon_is_draining(loop->daemon))
        return;
    loop->drained = true;
    daemon_drained(loop->daemon);
}

static void link_last(struct wait *w, struct wait_line *line)
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

static void unlink_wait(struct wait *w)
{
    struct wait_line *line = w->line;
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

static void on_gone(struct http_request *req, void *arg)
{
    struct wait *w = arg;
    (void)req;
    w->req = NULL;
    wait_wake(w, WAIT_GONE);
}

struct wait *wait_add(
    struct queue_loop *loop, struct wait_line *line, struct http_request *req, wait_fn *retry, void *arg)
{
    struct wait *w = mem_zalloc(sizeof *w);
    *w = (struct wait){.loop = loop, .req = req, .retry = retry, .arg = arg};
    heap_node_init(&w->deadline);
    link_last(w, line);
    queue_loop_begin(loop);
    if (req)
        http_on_gone(req, on_gone, w);
    return w;
}

void wait_set_deadline(struct wait *w, usec_t deadline)
{
    heap_put(&w->loop->waits, &w->deadline, deadline);
    queue_loop_arm(w->loop);
}

void wait_move(struct wait *w, struct wait_line *line)
{
    unlink_wait(w);
    link_last(w, line);
}

struct http_request *wait_leave(struct wait *w)
{
    unlink_wait(w);
    heap_remove(&w->loop->waits, &w->deadline);
    if (w->req)
        http_on_gone(w->req, NULL, NULL);
    return w->req;
}

bool wait_wake(struct wait *w, enum wait_event event)
{
    if (!w->retry(w, event)) {
        assert(w->line && event <= WAIT_EXPIRED);
        return false;
    }
    assert(!w->line);
    queue_loop_end(w->loop);
    free(w);
    return true;
}

bool wait_refuse(struct wait *w, enum queue_result result, const char *error)
{
    w->result = result;
    w->error = error;
    return wait_wake(w, WAIT_REFUSED);
}

void wait_wake_all(struct wait_line *line, enum wait_event event)
{
    size_t n = 0;
    struct wait *after;
    for (const struct wait *w = line->first; w; w = w->after)
        n++;
    for (struct wait *w = line->first; w && n > 0; w = after, n--) {
        after = w->after;
        wait_wake(w, event);
    }
}

void wait_refuse_all(struct wait_line *line, enum queue_result result)
{
    while (line->first)
        wait_refuse(line->first, result, NULL);
}

void wait_tick(struct queue_loop *loop, usec_t monotonic)
{
    struct heap_node *first;
    while ((first = heap_first(&loop->waits)) && first->priority <= monotonic)
        if (!wait_wake((struct wait *)(void *)first, WAIT_EXPIRED))
            heap_put(&loop->waits, first, monotonic + WAIT_RECHECK_TIME);
}

void wait_stop(struct queue_loop *loop)
{
    struct heap_node *first;
    while ((first = heap_first(&loop->waits)))
        wait_wake((struct wait *)(void *)first, WAIT_STOPPED);
}
