#include "simplequeue/server/served_queue.h"

#include "base/log.h"
#include "base/stats.h"

#include <stdio.h>
#include <stdlib.h>

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

void served_queue_stop(struct named_queue *q)
{
    while (served_of(q)->puts.first)
        wait_refuse(served_of(q)->puts.first, QUEUE_CLOSED, NULL);
}

void served_queue_close(struct named_queue *q, struct stats *stats)
{
    struct served_queue *served = served_of(q);
    stats_remove_gauges(stats, q);
    free(served->eviction);
    free(served);
    named_queue_set_data(q, NULL);
}
