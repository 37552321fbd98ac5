#include "simplequeue/server/served_queue.h"

#include "simplequeue/server/queue_server.h"
#include "base/log.h"

#include <stdio.h>
#include <stdlib.h>

void served_queue_open(struct queue_server *server, struct named_queue *q)
{
    struct served_queue *served = mem_zalloc(sizeof *served);
    int n =
        snprintf(served->id_line, sizeof served->id_line, "X-Millrace-Queue-Id: %s\r\n", named_queue_id(q));
    served->id_line_len = (size_t)n;
    named_queue_set_data(q, served);
    long_poll_queue_new(server, q);
    server_register_queue(server, q);
    const struct queue_state *s = queue_state(named_queue_core(q));
    log_info("queue open", LOG_S("queue", named_queue_name(q)), LOG_S("id", named_queue_id(q)),
        LOG_U("depth", queue_depth(named_queue_core(q))), LOG_U("next_id", s->next_id));
}

void served_queue_count_refused(const struct named_queue *q, enum queue_result why)
{
    if (queue_is_full(why) || why == QUEUE_OVERFLOW_FAILED)
        stats_add(served_of(q)->rejected, 1);
}

static void close_one(struct queue_server *server, struct named_queue *q)
{
    struct served_queue *f = served_of(q);
    stats_remove_gauges(daemon_stats(server->daemon), q);
    load_wait_free(&f->loads);
    free(f);
    named_queue_set_data(q, NULL);
}

void served_queue_close_all(struct queue_server *server)
{
    for (size_t i = 0; i < queues_count(server->queues); i++)
        close_one(server, queues_at(server->queues, i));
}
