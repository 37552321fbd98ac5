#include "ruler/evaluator.h"

#include "base/log.h"
#include "base/url.h"
#include "base/xxh3.h"
#include "daemon/daemon.h"
#include "daemon/loop_timer.h"
#include "http/client/http_pool.h"
#include "stream/slot_outbox.h"

#include <inttypes.h>
#include <stdlib.h>

#define SLEEP_MAX 1000 /* milliseconds; the longest sleep, so that a jump of the clock is noticed */

struct turn {
    struct evaluator *evaluator;
    struct group_run *run;
    struct loop_timer *timer;
    uint64_t hash;
    struct http_call *call; /* NULL: no evaluation in progress */
    int64_t seen, slot;     /* the latest slot, and that of the latest evaluation; 0: none yet */
    size_t at;              /* index of the rule in progress */
    usec_t began;
    struct sample_lines lines;
};

struct evaluator {
    struct evaluator_config config;
    struct turn *turns;
    size_t n;
    /* Lines of slots at or below it are dropped: the latest slot before the clock was set back. */
    int64_t floor;
    struct stats_counter *evaluations, *failures, *skipped;
};

static void ask(struct turn *t);

/* Logs failures that have lasted for failure_for, so not those of a start before the source is ready. */
static void log_failures(const struct group_run *g, int64_t slot)
{
    const struct alert_list *list = &g->failures->alerts;
    for (size_t i = 0; i < list->n; i++) {
        const struct alert *a = list->all[i];
        struct bytes rule = label_set_get(&a->sample.labels, BYTES_LITERAL("rule")),
                     why = label_set_get(&a->sample.annotations, BYTES_LITERAL("error"));
        if (a->state == ALERT_FIRING && a->at[FIRED_AT] == slot)
            log_warn("rule cannot be evaluated", LOG_S("group", g->group->name), LOG_B("rule", rule),
                LOG_B("error", why));
    }
}

static void finish(struct turn *t)
{
    struct evaluator *e = t->evaluator;
    rule_book_end(t->run, t->slot);
    log_failures(t->run, t->slot);
    if (e->config.outbox && t->lines.n > 0 && t->slot > e->floor)
        outbox_add(e->config.outbox, 0, t->slot, &t->lines.text, t->lines.n);
    buf_free(&t->lines.text);
    t->lines.n = 0;
    e->config.on_end(e->config.arg);
}

static void on_done(enum http_client_result outcome, const struct http_reply_view *reply, void *arg)
{
    struct turn *t = arg;
    struct rule_run *rule = &t->run->rules[t->at];
    struct query_result result = {0};
    struct error error;
    t->call = NULL;
    if (outcome == HTTP_CLIENT_CANCELLED)
        return;
    int rc = outcome == HTTP_CLIENT_OK ? query_result_read(reply->body, reply->status, &result, &error)
                                       : error_set(&error, -1, "%s", http_client_strerror(outcome));
    rule_book_take(t->run, t->at, t->slot, &result, rc == 0 ? NULL : error.text, &t->lines);
    rule->seconds = (double)(clock_monotonic() - t->began) / USEC_PER_SEC;
    query_result_free(&result);
    stats_add(t->evaluator->evaluations, 1);
    stats_add(t->evaluator->failures, rule->error != NULL);
    if (++t->at < t->run->group->n_rules)
        ask(t);
    else
        finish(t);
}

static void ask(struct turn *t)
{
    const struct evaluator_config *c = &t->evaluator->config;
    struct buf body = {0};
    int64_t time = t->slot - t->run->group->offset;
    buf_append_str(&body, "query=");
    url_encode(bytes_str(t->run->rules[t->at].rule->expr), &body);
    buf_printf(&body, "&time=%" PRId64 ".%03" PRId64, time / 1000, time % 1000);
    t->began = clock_monotonic();
    t->call =
        http_pool_request(http_pool_single(c->pool), &(struct http_call_spec){.method = "POST",
                                                         .target = "/api/v1/query",
                                                         .content_type = "application/x-www-form-urlencoded",
                                                         .body = buf_bytes(&body),
                                                         .timeout = c->timeout,
                                                         .may_resend = true,
                                                         .arg = t,
                                                         .on_done = on_done});
    buf_free(&body);
}

static void on_timer(void *arg)
{
    struct turn *t = arg;
    int64_t now = daemon_trusted_time(t->evaluator->config.daemon) / USEC_PER_MSEC;
    int64_t interval = t->run->group->interval, offset = (int64_t)(t->hash % (uint64_t)interval);
    int64_t slot = (now - offset) / interval * interval + offset, sleep = slot + interval - now;
    if (t->seen - slot > interval) { /* the clock was set back */
        t->evaluator->floor = t->seen > t->evaluator->floor ? t->seen : t->evaluator->floor;
        t->seen = slot - interval;
    }
    if (slot > t->seen) {
        uint64_t missed = t->slot > 0 ? (uint64_t)((slot - t->seen) / interval - 1) : 0;
        stats_add(t->evaluator->skipped, missed + (t->call != NULL));
        t->seen = slot;
        if (!t->call && t->run->group->n_rules > 0) {
            t->slot = slot;
            t->at = 0;
            ask(t);
        }
    }
    sleep = sleep < 1 ? 1 : sleep > SLEEP_MAX ? SLEEP_MAX : sleep;
    loop_timer_set(t->timer, sleep * USEC_PER_MSEC);
}

static void free_turns(struct evaluator *e)
{
    evaluator_stop(e);
    for (size_t i = 0; i < e->n; i++) {
        loop_timer_free(&e->turns[i].timer);
        buf_free(&e->turns[i].lines.text);
    }
    free(e->turns);
    e->turns = NULL;
    e->n = 0;
}

void evaluator_set(struct evaluator *e, struct rule_book *book)
{
    free_turns(e);
    e->n = book->groups.n;
    e->turns = mem_zalloc((e->n + 1) * sizeof *e->turns);
    for (size_t i = 0; i < e->n; i++) {
        struct turn *t = &e->turns[i];
        const struct rule_group *g = book->runs[i].group;
        char *id = mem_printf("%s;%s", g->file, g->name);
        t->evaluator = e;
        t->run = &book->runs[i];
        t->seen = t->run->failures->last;
        t->hash = XXH3_64bits(id, strlen(id));
        t->timer = loop_timer_new(daemon_base(e->config.daemon), on_timer, t);
        free(id);
        loop_timer_set(t->timer, 0);
    }
}

void evaluator_stop(struct evaluator *e)
{
    for (size_t i = 0; i < e->n; i++) {
        loop_timer_stop(e->turns[i].timer);
        if (e->turns[i].call)
            http_call_cancel(e->turns[i].call);
    }
}

struct evaluator *evaluator_new(const struct evaluator_config *config)
{
    struct evaluator *e = mem_zalloc(sizeof *e);
    struct stats *s = daemon_stats(config->daemon);
    e->config = *config;
    e->evaluations = stats_counter(s, "evaluations_total", NULL, "Evaluations of rules");
    e->failures = stats_counter(s, "evaluation_failures_total", NULL, "Evaluations of rules that failed");
    e->skipped = stats_counter(s, "evaluations_skipped_total", NULL,
        "Slots of groups that were skipped, because the previous evaluation was still running");
    return e;
}

void evaluator_free(struct evaluator **ep)
{
    struct evaluator *e = *ep;
    if (!e)
        return;
    free_turns(e);
    free(e);
    *ep = NULL;
}
