#include "simplequeue/server/queue_health.h"

#include "simplequeue/server/queue_app.h"
#include "base/log.h"
#include "simplequeue/server/waiting.h"

#define TELL_AGAIN (10 * USEC_PER_SEC)

/* They ask again, and are told. */
static void answer_waiters(void *arg)
{
    waiting_drain(arg);
}

/* With failed storage the daemon is not ready any more: who reserved would do work whose acknowledgement cannot be kept. */
static void watch_storage(struct app *app, const struct named_queue *q)
{
    const char *why = app->storage_failed ? NULL : named_queue_failure(q);
    if (!why)
        return;
    app->storage_failed = true;
    log_error("storage failed: nothing is written any more", LOG_S("reason", why));
    daemon_set_not_ready(app->daemon, "storage failed: %s", why);
    daemon_post(app->daemon, answer_waiters, app);
}

/* Puts are refused, and taken again, without anybody's doing: the log says from when to when. But on a disk that is nearly full
 * short messages may find room and long ones none, in turns. */
static void watch_space(const struct named_queue *q)
{
    struct front *front = front_of(q);
    bool full = named_queue_disk_is_full(q);
    if (full == front->told_full || (full && app_now().monotonic < front->tell_full_at))
        return;
    front->told_full = full;
    if (full) {
        front->tell_full_at = app_now().monotonic + TELL_AGAIN;
        log_error("the disk is full: puts are refused", LOG_S("queue", named_queue_name(q)));
    } else {
        log_info("the disk has room: puts are taken again", LOG_S("queue", named_queue_name(q)));
    }
}

void health_note(struct app *app, const struct named_queue *q)
{
    watch_storage(app, q);
    watch_space(q);
}
