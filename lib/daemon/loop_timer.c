#include "daemon/loop_timer.h"

#include "base/bytes.h"

#include <event2/event.h>
#include <stdlib.h>

struct loop_timer {
    struct event *event;
    void (*fn)(void *arg);
    void *arg;
};

static void on_due(evutil_socket_t fd, short what, void *arg)
{
    struct loop_timer *t = arg;
    (void)fd, (void)what;
    t->fn(t->arg);
}

static struct loop_timer *timer_new(struct event_base *base, short flags, void (*fn)(void *arg), void *arg)
{
    struct loop_timer *t = mem_alloc(sizeof *t);
    *t = (struct loop_timer){event_new(base, -1, flags, on_due, t), fn, arg};
    return t;
}

struct loop_timer *loop_timer_new(struct event_base *base, void (*fn)(void *arg), void *arg)
{
    return timer_new(base, 0, fn, arg);
}

struct loop_timer *loop_timer_every(
    struct event_base *base, usec_t interval, void (*fn)(void *arg), void *arg)
{
    struct loop_timer *t = timer_new(base, EV_PERSIST, fn, arg);
    loop_timer_set(t, interval);
    return t;
}

void loop_timer_set(struct loop_timer *t, usec_t after)
{
    event_add(t->event, &(struct timeval){after / USEC_PER_SEC, after % USEC_PER_SEC});
}

void loop_timer_stop(struct loop_timer *t)
{
    event_del(t->event);
}

bool loop_timer_is_set(const struct loop_timer *t)
{
    return evtimer_pending(t->event, NULL);
}

void loop_timer_free(struct loop_timer **t)
{
    if (!*t)
        return;
    event_free((*t)->event);
    free(*t);
    *t = NULL;
}
