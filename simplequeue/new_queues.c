#include "new_queues.h"

#include "app.h"

struct named_queue *new_queues_find(
    struct app *app, const char *name, const struct first_put *put, enum queue_result *result)
{
    char error[512];
    struct named_queue *q = queues_find(app->queues, name);
    bool costs = queues_journals(app->queues) != NULL; /* by the time it is made a mark may have moved */
    *result = QUEUE_OK;
    if (q)
        return q;
    *result = put->mark && !costs ? QUEUE_CONFLICT : queues_may_add(app->queues, put);
    if (*result != QUEUE_OK || costs)
        return NULL;
    return queues_get(app->queues, name, app_now(), result, error, sizeof error);
}

static struct queue_wish *line_take(struct new_queues *line)
{
    struct queue_wish *wish = line->first;
    line->first = wish->next;
    if (!line->first)
        line->last = NULL;
    return wish;
}

/* True when it took the disk's time. */
static bool grant(struct app *app, struct queue_wish *wish)
{
    char error[512] = "";
    enum queue_result result = QUEUE_OK;
    bool is_new = !queues_find(app->queues, wish->name);
    if (is_new)
        result = wish->put.mark ? QUEUE_CONFLICT : queues_may_add(app->queues, &wish->put);
    bool makes = is_new && result == QUEUE_OK;
    if (makes)
        queues_get(app->queues, wish->name, app_now(), &result, error, sizeof error);
    wish->told(wish, result, error);
    return makes;
}

/* Posted while there is a line. */
static void make_next(void *arg)
{
    struct app *app = arg;
    struct new_queues *line = &app->new_queues;
    while (line->first && !grant(app, line_take(line)))
        ;
    if (line->first)
        daemon_post(app->daemon, make_next, app);
}

void new_queues_ask(struct app *app, struct queue_wish *wish)
{
    struct new_queues *line = &app->new_queues;
    wish->next = NULL;
    if (line->last)
        line->last->next = wish;
    else
        line->first = wish;
    line->last = wish;
    if (line->first == wish)
        daemon_post(app->daemon, make_next, app);
}

void new_queues_close(struct app *app)
{
    while (app->new_queues.first) {
        struct queue_wish *wish = line_take(&app->new_queues);
        wish->told(wish, QUEUE_CLOSED, "");
    }
}
