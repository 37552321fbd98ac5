#include "daemon/loop_notify.h"
#include "base/bytes.h"
#include <event2/event.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct loop_notify {
    int fd;
    struct event *event; /* active when fd is readable */
    struct event *turn;  /* an event without a descriptor, which the loop's thread activates */
    pthread_t thread;    /* the loop's thread */
    bool is_running;     /* the loop's thread is in fn */
    void (*fn)(void *arg);
    void *arg;
};

/* Called when the eventfd is readable, or with fd -1 when `turn` is active. */
static void on_due(evutil_socket_t fd, short what, void *arg)
{
    struct loop_notify *n = arg;
    uint64_t count;
    (void)what;
    if (fd >= 0 && read(fd, &count, sizeof count) != (ssize_t)sizeof count)
        return;
    n->is_running = true;
    n->fn(n->arg);
    n->is_running = false;
}

struct loop_notify *loop_notify_new(struct event_base *base, void (*fn)(void *arg), void *arg)
{
    struct loop_notify *n = mem_zalloc(sizeof *n);
    n->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    n->thread = pthread_self();
    n->fn = fn;
    n->arg = arg;
    n->turn = event_new(base, -1, 0, on_due, n);
    n->event = n->fd >= 0 ? event_new(base, n->fd, EV_READ | EV_PERSIST, on_due, n) : NULL;
    if (!n->turn || !n->event || event_add(n->event, NULL) != 0)
        loop_notify_free(&n);
    return n;
}

/* The write fails only if the eventfd's counter is at its maximum, so that the loop is already being woken. */
void loop_notify_wake(void *notify)
{
    const struct loop_notify *n = notify;
    (void)!write(n->fd, &(uint64_t){1}, sizeof(uint64_t));
}

/* libevent calls an event that its own callback activates before it polls again. */
void loop_notify_defer(void *notify)
{
    const struct loop_notify *n = notify;
    if (pthread_equal(pthread_self(), n->thread) && !n->is_running)
        event_active(n->turn, 0, 0);
    else
        loop_notify_wake(notify);
}

void loop_notify_free(struct loop_notify **np)
{
    struct loop_notify *n = *np;
    if (!n)
        return;
    if (n->event)
        event_free(n->event);
    if (n->turn)
        event_free(n->turn);
    if (n->fd >= 0)
        close(n->fd);
    free(n);
    *np = NULL;
}
