#include "simplequeue/server/queue_creation.h"

#include "simplequeue/server/queue_server.h"
#include "base/log.h"

/* What the daemon lacks, as against what a put asks too much. */
static bool is_lack(enum queue_result r)
{
    return r == QUEUE_NO_DESCRIPTORS || r == QUEUE_NO_SPACE || r == QUEUE_TOO_MANY_QUEUES ||
           r == QUEUE_LATCHED;
}

static void log_unmade(
    struct queue_server *server, const char *name, enum queue_result result, const char *error)
{
    struct queue_creation *line = &server->creation;
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

static void log_made(struct queue_server *server)
{
    if (server->creation.told)
        log_info("queues can be made again");
    server->creation.told = 0;
}

/* NULL with the reason, told. */
static struct named_queue *make(
    struct queue_server *server, const char *name, enum queue_result *result, char *error, size_t error_size)
{
    struct named_queue *q = queues_get(server->queues, name, server_now(), result, error, error_size);
    if (q)
        log_made(server);
    else
        log_unmade(server, name, *result, error);
    return q;
}

struct named_queue *queue_creation_find(
    struct queue_server *server, const char *name, const struct first_put *put, enum queue_result *result)
{
    char error[512] = "";
    struct named_queue *q = queues_find(server->queues, name);
    bool costs = queues_journals(server->queues) != NULL; /* by the time it is made a mark may have moved */
    *result = QUEUE_OK;
    if (q)
        return q;
    *result = put->mark && !costs ? QUEUE_CONFLICT : queues_may_add(server->queues, put);
    if (*result != QUEUE_OK)
        log_unmade(server, name, *result, "");
    if (*result != QUEUE_OK || costs)
        return NULL;
    return make(server, name, result, error, sizeof error);
}

static struct queue_wish *line_take(struct queue_creation *line)
{
    struct queue_wish *wish = line->first;
    line->first = wish->next;
    if (!line->first)
        line->last = NULL;
    return wish;
}

/* True when it took the disk's time. */
static bool grant(struct queue_server *server, struct queue_wish *wish)
{
    char error[512] = "";
    enum queue_result result = QUEUE_OK;
    bool is_new = !queues_find(server->queues, wish->name);
    if (is_new)
        result = wish->put.mark ? QUEUE_CONFLICT : queues_may_add(server->queues, &wish->put);
    bool makes = is_new && result == QUEUE_OK;
    if (makes)
        make(server, wish->name, &result, error, sizeof error);
    else
        log_unmade(server, wish->name, result, "");
    wish->told(wish, result, error);
    return makes;
}

/* Posted while there is a line. */
static void make_next(void *arg)
{
    struct queue_server *server = arg;
    struct queue_creation *line = &server->creation;
    while (line->first && !grant(server, line_take(line)))
        ;
    if (line->first)
        daemon_post(server->daemon, make_next, server);
}

void queue_creation_ask(struct queue_server *server, struct queue_wish *wish)
{
    struct queue_creation *line = &server->creation;
    wish->next = NULL;
    if (line->last)
        line->last->next = wish;
    else
        line->first = wish;
    line->last = wish;
    if (line->first == wish)
        daemon_post(server->daemon, make_next, server);
}

void queue_creation_close(struct queue_server *server)
{
    while (server->creation.first) {
        struct queue_wish *wish = line_take(&server->creation);
        wish->told(wish, QUEUE_CLOSED, "");
    }
}
