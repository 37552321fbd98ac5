#include "ruler/outgoing.h"

#include "base/backoff.h"
#include "base/log.h"
#include "daemon/loop_timer.h"
#include "http/client/http_pool.h"
#include "stream/publisher.h"

#include <stdio.h>
#include <stdlib.h>

#define PUT_MAX ((size_t)8 << 20)       /* bytes of messages in a request */
#define MATCH_PAUSE (5 * USEC_PER_MSEC) /* between two steps of matching alerts with silences */

struct outgoing {
    struct ruler *ruler;
    struct message_rules rules;
    const char *queue;
    int64_t heartbeat, beat_at; /* the interval of Watchdog (0: none), and the last one that is stored */
    bool has_beat, is_busy;
    struct message_batch batch;
    struct publisher *publisher;
    struct loop_timer *timer;
    struct backoff backoff;
    struct stats_counter *stored, *failed;
};

static void on_outcome(const struct publisher_outcome *outcome, void *arg)
{
    struct outgoing *o = arg;
    struct ruler *r = o->ruler;
    bool is_stored = outcome->result == PUBLISHER_STORED;
    char *trouble = is_stored ? NULL : mem_printf("alerts wait for the queue: %s", outcome->why);
    o->is_busy = false;
    if (is_stored) {
        backoff_succeeded(&o->backoff);
        stats_add(o->stored, bytes_count_lines(buf_bytes(&o->batch.lines)));
        o->beat_at = o->has_beat ? ruler_now(r) : o->beat_at;
        r->is_changed = true;
    } else {
        stats_add(o->failed, 1);
        log_warn("alerts not stored in the queue", LOG_S("queue", o->queue), LOG_S("error", outcome->why));
        loop_timer_set(o->timer, outcome->wait > 0 ? outcome->wait : backoff_failed(&o->backoff));
    }
    alert_messages_end(&o->batch, o->rules.way, is_stored, ruler_now(r));
    daemon_set_notice(r->daemon, ruler_queue_settings[o->rules.way], NOTICE_ALARM, PEER_REMEDY, trouble);
    free(trouble);
}

static void set_valid_for(struct outgoing *o)
{
    const struct rule_groups *g = &o->ruler->book->groups;
    int64_t longest = o->rules.repeat;
    for (size_t i = 0; i < g->n; i++)
        longest = g->all[i].interval > longest ? g->all[i].interval : longest;
    o->rules.valid_for = 4 * longest;
}

void outgoing_work(struct outgoing *o)
{
    if (!o || o->is_busy || loop_timer_is_set(o->timer))
        return;
    const struct rule_book *book = o->ruler->book;
    int64_t now = ruler_now(o->ruler);
    for (size_t i = 0; i < book->n; i++)
        alert_messages_add(&o->batch, &book->all[i].alerts);
    set_valid_for(o);
    if (!alert_messages_begin(&o->batch, &o->rules, &o->ruler->silences, now, PUT_MAX))
        loop_timer_set(o->timer, MATCH_PAUSE);
    o->has_beat = o->heartbeat > 0 && (now - o->beat_at >= o->heartbeat || now < o->beat_at);
    if (o->has_beat)
        alert_messages_heartbeat(&o->batch, now);
    o->is_busy = o->batch.lines.len > 0;
    if (o->is_busy)
        publisher_send(o->publisher, &(struct publisher_run){.next = 1, .lines = buf_bytes(&o->batch.lines)});
    else
        alert_messages_end(&o->batch, o->rules.way, false, now);
}

static void on_timer(void *arg)
{
    outgoing_work(arg);
}

void outgoing_cancel(struct outgoing *o)
{
    if (o && o->is_busy)
        publisher_cancel(o->publisher);
}

struct outgoing *outgoing_new(struct ruler *r, enum alert_way way, struct http_pool *pool)
{
    struct options *s = daemon_options(r->daemon);
    struct stats *stats = daemon_stats(r->daemon);
    const char *queue = options_text(s, ruler_queue_settings[way]);
    char labels[NAME_LEN_MAX + 16];
    if (!queue)
        return NULL;
    struct outgoing *o = mem_zalloc(sizeof *o);
    *o = (struct outgoing){.ruler = r, .queue = queue};
    o->rules = (struct message_rules){.way = way, .group_by = options_string(s, "group_by")};
    if (way == WAY_NOTICES) {
        o->rules.wait = options_int(s, "group_wait");
        o->rules.interval = options_int(s, "group_interval");
        o->rules.repeat = options_int(s, "repeat_interval");
        o->heartbeat = options_int(s, "heartbeat");
    } else {
        o->rules.repeat = options_int(s, "resend_delay");
    }
    backoff_init(&o->backoff, options_int(s, "backoff_min") * USEC_PER_MSEC,
        options_int(s, "backoff_max") * USEC_PER_MSEC, (uint64_t)clock_wall());
    o->timer = loop_timer_new(daemon_base(r->daemon), on_timer, o);
    o->publisher = publisher_new(
        &(struct publisher_config){.pool = pool, .queue = queue, .on_outcome = on_outcome, .arg = o});
    snprintf(labels, sizeof labels, "queue=\"%s\"", queue);
    o->stored = stats_counter(
        stats, "messages_stored_total", labels, "Messages about alerts that a queue has stored");
    o->failed = stats_counter(
        stats, "puts_failed_total", labels, "Failed puts of messages about alerts; they are repeated");
    return o;
}

void outgoing_free(struct outgoing **op)
{
    struct outgoing *o = *op;
    if (!o)
        return;
    outgoing_cancel(o);
    publisher_free(&o->publisher);
    loop_timer_free(&o->timer);
    free(o);
    *op = NULL;
}
