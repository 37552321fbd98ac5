#include "simplequeue/server/front.h"

#include "simplequeue/server/queue_app.h"
#include "base/log.h"

#include <stdio.h>
#include <stdlib.h>

void front_open(struct app *app, struct named_queue *q)
{
    struct front *front = mem_zalloc(sizeof *front);
    int n = snprintf(front->id_line, sizeof front->id_line, "X-Millrace-Queue-Id: %s\r\n", named_queue_id(q));
    front->id_line_len = (size_t)n;
    named_queue_set_data(q, front);
    waiting_queue_new(app, q);
    app_register_queue(app, q);
    const struct queue_state *s = queue_state(named_queue_core(q));
    log_info("queue open", LOG_S("queue", named_queue_name(q)), LOG_S("id", named_queue_id(q)),
        LOG_U("depth", queue_depth(named_queue_core(q))), LOG_U("next_id", s->next_id));
}

void front_count_refused(const struct named_queue *q, enum queue_result why)
{
    if (queue_is_full(why) || why == QUEUE_OVERFLOW_FAILED)
        stats_add(front_of(q)->rejected, 1);
}

static void close_one(struct app *app, struct named_queue *q)
{
    struct front *f = front_of(q);
    stats_remove_gauges(daemon_stats(app->daemon), q);
    parked_free(&f->parked);
    free(f);
    named_queue_set_data(q, NULL);
}

void front_close_all(struct app *app)
{
    for (size_t i = 0; i < queues_count(app->queues); i++)
        close_one(app, queues_at(app->queues, i));
}
