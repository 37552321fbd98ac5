#include "simplequeue/server/served_queue.h"

#include "base/log.h"
#include "base/stats.h"
#include "daemon/daemon.h"

#include <stdio.h>
#include <stdlib.h>

#define LOG_AGAIN (10 * USEC_PER_SEC)

void served_queue_open(struct named_queue *q)
{
    struct served_queue *served = mem_zalloc(sizeof *served);
    int n =
        snprintf(served->id_line, sizeof served->id_line, "X-Millrace-Queue-Id: %s\r\n", named_queue_id(q));
    served->id_line_len = (size_t)n;
    named_queue_set_data(q, served);
    log_info("queue open", LOG_S("queue", named_queue_name(q)), LOG_S("id", named_queue_id(q)),
        LOG_U("depth", queue_depth(named_queue_core(q))),
        LOG_U("next_id", queue_state(named_queue_core(q))->next_id));
}

void served_queue_count_refused(const struct named_queue *q, enum queue_result why)
{
    if (queue_is_full(why) || why == QUEUE_OVERFLOW_FAILED)
        stats_add(served_of(q)->rejected, 1);
}

static void stop_waits(void *loop)
{
    wait_stop(loop);
}

/* Logs a full disk at intervals: when it is nearly full, short messages may fit and long ones not, in turns. With failed storage the
 * daemon is not ready: a reader would do work that it cannot acknowledge. */
void served_queue_note_health(struct queue_loop *loop, const struct named_queue *q)
{
    struct served_queue *served = served_of(q);
    const char *error = loop->storage_failed ? NULL : named_queue_failure(q);
    bool full = named_queue_disk_is_full(q);
    if (error) {
        loop->storage_failed = true;
        log_error("storage failed: nothing is written any more", LOG_S("error", error));
        daemon_set_not_ready(loop->daemon, "storage failed: %s", error);
        daemon_post(loop->daemon, stop_waits, loop);
    }
    if (full && !served->disk_full_logged && queue_loop_now().monotonic >= served->log_disk_full_at) {
        served->disk_full_logged = true;
        served->log_disk_full_at = queue_loop_now().monotonic + LOG_AGAIN;
        log_error("the disk is full: puts are refused", LOG_S("queue", named_queue_name(q)));
    } else if (!full && served->disk_full_logged) {
        served->disk_full_logged = false;
        log_info("the disk has room: puts are accepted again", LOG_S("queue", named_queue_name(q)));
    }
}

void served_queue_close(struct named_queue *q, struct stats *stats)
{
    struct served_queue *served = served_of(q);
    stats_remove_gauges(stats, q);
    free(served->eviction);
    free(served);
    named_queue_set_data(q, NULL);
}
