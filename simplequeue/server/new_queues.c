#include "simplequeue/server/new_queues.h"

#include "simplequeue/server/queue_app.h"
#include "base/log.h"

/* What the daemon lacks, as against what a put asks too much. */
static bool is_lack(enum queue_result r)
{
    return r == QUEUE_LACK || r == QUEUE_NO_SPACE || r == QUEUE_TOO_MANY_QUEUES || r == QUEUE_LATCHED;
}

static void tell_unmade(struct app *app, const char *name, enum queue_result result, const char *error)
{
    struct new_queues *line = &app->new_queues;
    if (!is_lack(result))
        return;
    stats_add(line->unmade, 1);
    if (line->told & 1u << result)
        return;
    line->told |= 1u << result;
    const char *hint = refusal_of(result)->hint;
    log_error("no queue can be made: what needs a new one is refused", LOG_S("queue", name),
        LOG_S("why", error[0] ? error : queue_strerror(result)), LOG_S("hint", hint ? hint : ""));
}

static void tell_made(struct app *app)
{
    if (app->new_queues.told)
        log_info("queues can be made again");
    app->new_queues.told = 0;
}

/* NULL with the reason, told. */
static struct named_queue *make(
    struct app *app, const char *name, enum queue_result *result, char *error, size_t error_size)
{
    struct named_queue *q = queues_get(app->queues, name, app_now(), result, error, error_size);
    if (q)
        tell_made(app);
    else
        tell_unmade(app, name, *result, error);
    return q;
}

struct named_queue *new_queues_find(
    struct app *app, const char *name, const struct first_put *put, enum queue_result *result)
{
    char error[512] = "";
    struct named_queue *q = queues_find(app->queues, name);
    bool costs = queues_journals(app->queues) != NULL; /* by the time it is made a mark may have moved */
    *result = QUEUE_OK;
    if (q)
        return q;
    *result = put->mark && !costs ? QUEUE_CONFLICT : queues_may_add(app->queues, put);
    if (*result != QUEUE_OK)
        tell_unmade(app, name, *result, "");
    if (*result != QUEUE_OK || costs)
        return NULL;
    return make(app, name, result, error, sizeof error);
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
        make(app, wish->name, &result, error, sizeof error);
    else
        tell_unmade(app, wish->name, result, "");
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
