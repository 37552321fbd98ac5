#include "simplequeue/server/queue_health.h"

#include "base/log.h"
#include "daemon/daemon.h"
#include "simplequeue/server/served_queue.h"

#define LOG_AGAIN (10 * USEC_PER_SEC)

static void stop_waits(void *loop)
{
    wait_stop(loop);
}

/* With failed storage the daemon is not ready: a reader would do work that it cannot acknowledge. */
static void watch_storage(struct queue_loop *loop, const struct named_queue *q)
{
    const char *error = loop->storage_failed ? NULL : named_queue_failure(q);
    if (!error)
        return;
    loop->storage_failed = true;
    log_error("storage failed: nothing is written any more", LOG_S("error", error));
    daemon_set_not_ready(loop->daemon, "storage failed: %s", error);
    daemon_post(loop->daemon, stop_waits, loop);
}

/* On a disk that is nearly full short messages may fit and long ones not, in turns: logged at intervals. */
static void watch_space(const struct named_queue *q)
{
    struct served_queue *served = served_of(q);
    bool full = named_queue_disk_is_full(q);
    if (full == served->disk_full_logged || (full && queue_loop_now().monotonic < served->log_disk_full_at))
        return;
    served->disk_full_logged = full;
    if (full) {
        served->log_disk_full_at = queue_loop_now().monotonic + LOG_AGAIN;
        log_error("the disk is full: puts are refused", LOG_S("queue", named_queue_name(q)));
    } else {
        log_info("the disk has room: puts are accepted again", LOG_S("queue", named_queue_name(q)));
    }
}

void queue_health_note(struct queue_loop *loop, const struct named_queue *q)
{
    watch_storage(loop, q);
    watch_space(q);
}
