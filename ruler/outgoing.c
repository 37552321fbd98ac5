#include "ruler/outgoing.h"

#include "base/backoff.h"
#include "base/log.h"
#include "http/client/http_pool.h"
#include "stream/publisher.h"

#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>

struct outgoing {
    struct outgoing_config config;
    struct publisher *publisher;
    struct event *timer;
    struct backoff backoff;
    bool is_busy;
    uint64_t n; /* lines of the request in progress */
    struct stats_counter *stored, *failed;
};

static void on_outcome(const struct publisher_outcome *outcome, void *arg)
{
    struct outgoing *o = arg;
    bool is_stored = outcome->result == PUBLISHER_STORED;
    usec_t wait = outcome->wait;
    o->is_busy = false;
    if (is_stored) {
        backoff_succeeded(&o->backoff);
        stats_add(o->stored, o->n);
    } else {
        stats_add(o->failed, 1);
        log_warn(
            "alerts not stored in the queue", LOG_S("queue", o->config.queue), LOG_S("error", outcome->why));
        wait = wait > 0 ? wait : backoff_failed(&o->backoff);
        event_add(o->timer, &(struct timeval){wait / USEC_PER_SEC, wait % USEC_PER_SEC});
    }
    o->config.on_end(is_stored, is_stored ? NULL : outcome->why, o->config.arg);
}

void outgoing_work(struct outgoing *o)
{
    if (o->is_busy || evtimer_pending(o->timer, NULL))
        return;
    struct bytes lines = o->config.compose(o->config.arg);
    if (lines.len == 0)
        return;
    o->is_busy = true;
    o->n = bytes_count_lines(lines);
    publisher_send(o->publisher, &(struct publisher_run){.next = 1, .lines = lines});
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what;
    outgoing_work(arg);
}

void outgoing_cancel(struct outgoing *o)
{
    if (o->is_busy)
        publisher_cancel(o->publisher);
}

bool outgoing_is_busy(const struct outgoing *o)
{
    return o->is_busy;
}

struct outgoing *outgoing_new(const struct outgoing_config *config)
{
    struct outgoing *o = mem_zalloc(sizeof *o);
    char labels[NAME_LEN_MAX + 16];
    o->config = *config;
    backoff_init(&o->backoff, config->backoff_min, config->backoff_max, (uint64_t)clock_wall());
    o->timer = evtimer_new(config->base, on_timer, o);
    o->publisher = publisher_new(&(struct publisher_config){
        .pool = config->pool, .queue = config->queue, .on_outcome = on_outcome, .arg = o});
    snprintf(labels, sizeof labels, "queue=\"%s\"", config->queue);
    o->stored = stats_counter(
        config->stats, "messages_stored_total", labels, "Messages about alerts that a queue has stored");
    o->failed = stats_counter(config->stats, "puts_failed_total", labels,
        "Failed puts of messages about alerts; they are repeated");
    return o;
}

void outgoing_free(struct outgoing **op)
{
    struct outgoing *o = *op;
    if (!o)
        return;
    outgoing_cancel(o);
    publisher_free(&o->publisher);
    event_free(o->timer);
    free(o);
    *op = NULL;
}
