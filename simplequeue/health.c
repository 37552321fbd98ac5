#include "health.h"

#include "app.h"
#include "log.h"

/* Failed storage makes the daemon unhealthy, but it goes on serving what it has. */
static void watch_storage(struct app *app)
{
    const char *why = app->storage_failed ? NULL : queues_failure(app->queues);
    if (!why)
        return;
    app->storage_failed = true;
    log_error("storage failed: nothing is written any more", LOG_S("reason", why));
    daemon_set_not_ready(app->daemon, "storage failed: %s", why);
}

/* Puts are refused, and taken again, without anybody's doing: the log says from when to when. */
static void watch_space(struct app *app)
{
    for (size_t i = 0; i < queues_count(app->queues); i++) {
        struct named_queue *q = queues_at(app->queues, i);
        bool full = named_queue_disk_is_full(q), *told = &front_of(q)->told_full;
        if (full && !*told)
            log_error("the disk is full: puts are refused", LOG_S("queue", named_queue_name(q)));
        else if (!full && *told)
            log_info("the disk has room: puts are taken again", LOG_S("queue", named_queue_name(q)));
        *told = full;
    }
}

void health_update(struct app *app)
{
    watch_storage(app);
    watch_space(app);
}
