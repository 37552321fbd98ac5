#include "simplequeue/server/queue_health.h"

#include "simplequeue/server/queue_server.h"
#include "base/log.h"
#include "simplequeue/server/long_poll.h"

#define LOG_AGAIN (10 * USEC_PER_SEC)

/* They ask again, and are told. */
static void answer_waiters(void *arg)
{
    long_poll_drain(arg);
}

/* With failed storage the daemon is not ready any more: who reserved would do work whose acknowledgement cannot be kept. */
static void watch_storage(struct queue_server *server, const struct named_queue *q)
{
    const char *why = server->storage_failed ? NULL : named_queue_failure(q);
    if (!why)
        return;
    server->storage_failed = true;
    log_error("storage failed: nothing is written any more", LOG_S("reason", why));
    daemon_set_not_ready(server->daemon, "storage failed: %s", why);
    daemon_post(server->daemon, answer_waiters, server);
}

/* Puts are refused, and taken again, without anybody's doing: the log says from when to when. But on a disk that is nearly full
 * short messages may find room and long ones none, in turns. */
static void watch_space(const struct named_queue *q)
{
    struct served_queue *served = served_of(q);
    bool full = named_queue_disk_is_full(q);
    if (full == served->disk_full_logged || (full && server_now().monotonic < served->log_disk_full_at))
        return;
    served->disk_full_logged = full;
    if (full) {
        served->log_disk_full_at = server_now().monotonic + LOG_AGAIN;
        log_error("the disk is full: puts are refused", LOG_S("queue", named_queue_name(q)));
    } else {
        log_info("the disk has room: puts are taken again", LOG_S("queue", named_queue_name(q)));
    }
}

void health_note(struct queue_server *server, const struct named_queue *q)
{
    watch_storage(server, q);
    watch_space(q);
}
