#include "simplequeue/server/queue_creation.h"

#include "base/log.h"
#include "base/stats.h"
#include "daemon/daemon.h"
#include "simplequeue/server/refusals.h"

#include <stdio.h>

/* Logs and counts a refusal that the operator could prevent. Excludes a put that is too large for any queue. */
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
    log_error("cannot create queues: requests that need a new queue are refused", LOG_S("queue", name),
        LOG_S("error", error[0] ? error : queue_strerror(result)), LOG_S("hint", hint ? hint : ""));
}

static void serve_line(void *arg);

static void serve_soon(struct queue_creation *c)
{
    if (!c->posted && c->line.first)
        daemon_post(c->loop->daemon, serve_line, c);
    c->posted = c->line.first != NULL;
}

/* Creates at most one queue. Checks the first put before its queue exists. In a new queue all marks are 0. */
static void serve_line(void *arg)
{
    struct queue_creation *c = arg;
    bool made = false;
    c->posted = false;
    while (c->line.first && !made) {
        struct wait *w = c->line.first;
        char error[512] = "";
        enum queue_result result = QUEUE_OK;
        bool exists = queues_find(c->loop->queues, w->name) != NULL;
        if (!exists)
            result = w->put.mark ? QUEUE_CONFLICT : queues_may_add(c->loop->queues, &w->put);
        made = !exists && result == QUEUE_OK;
        if (made)
            queues_get(c->loop->queues, w->name, queue_loop_now(), &result, error, sizeof error);
        if (result != QUEUE_OK) {
            note_unmade(c, w->name, result, error);
            wait_refuse(w, result, error[0] ? error : NULL);
            continue;
        }
        if (made && c->logged) {
            log_info("queues can be created again");
            c->logged = 0;
        }
        wait_wake(w, WAIT_RETRY);
    }
    serve_soon(c);
}

enum queue_result queue_creation_wait(struct queue_creation *c, const char *name, const struct first_put *put,
    struct http_request *req, wait_fn *retry, void *arg)
{
    enum queue_result result = queues_may_add(c->loop->queues, put);
    if (result != QUEUE_OK) {
        note_unmade(c, name, result, "");
        return result;
    }
    struct wait *w = wait_add(c->loop, &c->line, req, retry, arg);
    snprintf(w->name, sizeof w->name, "%s", name);
    w->put = *put;
    serve_soon(c);
    return QUEUE_OK;
}
