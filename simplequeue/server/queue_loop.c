#include "simplequeue/server/queue_loop.h"

#include "base/clock.h"
#include "daemon/daemon.h"

#include <assert.h>
#include <event2/event.h>

struct queue_now queue_loop_now_at(usec_t monotonic)
{
    static usec_t asked, wall;
    if (monotonic - asked >= USEC_PER_MSEC) {
        asked = monotonic;
        wall = clock_wall();
    }
    return (struct queue_now){monotonic, wall + (monotonic - asked)};
}

struct queue_now queue_loop_now(void)
{
    return queue_loop_now_at(clock_monotonic());
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
    left = left > 0 ? left : 0;
    struct timeval tv = {(time_t)(left / USEC_PER_SEC), (suseconds_t)(left % USEC_PER_SEC)};
    evtimer_add(loop->timer, &tv);
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
