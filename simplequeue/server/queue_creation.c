#include "simplequeue/server/queue_creation.h"

#include "base/log.h"
#include "base/stats.h"
#include "daemon/daemon.h"
#include "simplequeue/server/refusals.h"

#include <stdio.h>

/* Logs and counts what the operator can change, not a put that asks too much. */
static void note_unmade(
    struct queue_creation *c, const char *name, enum queue_result result, const char *error)
{
    if (result != QUEUE_NO_DESCRIPTORS && result != QUEUE_NO_SPACE && result != QUEUE_TOO_MANY_QUEUES &&
        result != QUEUE_LATCHED)
        return;
    stats_add(c->unmade, 1);
    if (c->logged & 1u << result)
        return;
    c->logged |= 1u << result;
    const char *hint = refusal_of(result)->hint;
    log_error("cannot make queues: requests that need a new one are refused", LOG_S("queue", name),
        LOG_S("error", error[0] ? error : queue_strerror(result)), LOG_S("hint", hint ? hint : ""));
}

static enum queue_result make(struct queue_creation *c, const char *name, char *error, size_t error_size)
{
    enum queue_result result;
    if (!queues_get(c->loop->queues, name, queue_loop_now(), &result, error, error_size))
        return result;
    if (c->logged)
        log_info("queues can be made again");
    c->logged = 0;
    return QUEUE_OK;
}

/* Judges the first put before its queue exists. The marks of a new queue are all 0. */
static enum queue_result may_make(const struct queue_creation *c, const struct first_put *put)
{
    return put->mark ? QUEUE_CONFLICT : queues_may_add(c->loop->queues, put);
}

/* True when it made a queue. */
static bool serve(struct queue_creation *c, struct wait *w)
{
    char error[512] = "";
    bool exists = queues_find(c->loop->queues, w->name) != NULL;
    enum queue_result result = exists ? QUEUE_OK : may_make(c, &w->put);
    bool makes = !exists && result == QUEUE_OK;
    if (makes)
        result = make(c, w->name, error, sizeof error);
    if (result == QUEUE_OK) {
        wait_wake(w, WAIT_RETRY);
    } else {
        note_unmade(c, w->name, result, error);
        wait_refuse(w, result, error[0] ? error : NULL);
    }
    return makes;
}

static void serve_line(void *arg);

static void serve_soon(struct queue_creation *c)
{
    if (!c->posted && c->line.first)
        daemon_post(c->loop->daemon, serve_line, c);
    c->posted = c->line.first != NULL;
}

static void serve_line(void *arg)
{
    struct queue_creation *c = arg;
    c->posted = false;
    while (c->line.first && !serve(c, c->line.first))
        ;
    serve_soon(c);
}

struct named_queue *queue_creation_obtain(struct queue_creation *c, const char *name,
    const struct first_put *put, struct http_request *req, wait_fn *retry, void *arg,
    enum queue_result *result)
{
    char error[512] = "";
    struct named_queue *q = queues_find(c->loop->queues, name);
    bool on_disk = queues_journals(c->loop->queues) != NULL;
    *result = QUEUE_OK;
    if (q)
        return q;
    /* On disk a mark may have moved by the time the queue is made: serve() judges it. */
    *result = on_disk ? queues_may_add(c->loop->queues, put) : may_make(c, put);
    if (*result == QUEUE_OK && !on_disk)
        *result = make(c, name, error, sizeof error);
    if (*result != QUEUE_OK) {
        note_unmade(c, name, *result, error);
        return NULL;
    }
    if (!on_disk)
        return queues_find(c->loop->queues, name);
    struct wait *w = wait_add(c->loop, &c->line, req, retry, arg);
    snprintf(w->name, sizeof w->name, "%s", name);
    w->put = *put;
    serve_soon(c);
    return NULL;
}

void queue_creation_stop(struct queue_creation *c)
{
    while (c->line.first)
        wait_refuse(c->line.first, QUEUE_CLOSED, NULL);
}
