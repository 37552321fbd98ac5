/* ruler: connects the rules, the source of metrics, and the queues for alerts to the event loop. */
#include "base/log.h"
#include "config/peers.h"
#include "http/client/http_pool.h"
#include "ruler/evaluator.h"
#include "ruler/outgoing.h"
#include "ruler/ruler_server.h"
#include "ruler/ruler_settings.h"
#include "stream/slot_outbox.h"

#include <assert.h>
#include <errno.h>
#include <event2/event.h>
#include <stddef.h>
#include <stdlib.h>
#include <sysexits.h>

#define SAVE_EVERY                                                                                           \
    (60 * USEC_PER_SEC)           /* so that the time of the last evaluation is about right after a kill */
#define PUT_MAX ((size_t)8 << 20) /* bytes of messages in a request */
#define PUBLISH_MAX ((size_t)8 << 20)

/* A way out for alerts. */
struct way {
    struct wiring *wiring;
    enum alert_way way;
    struct outgoing *outgoing; /* NULL: not configured */
    struct message_batch batch;
};

struct wiring {
    struct ruler ruler;
    struct message_rules rules;
    struct http_pool *source, *pubsub, *queue;
    struct evaluator *evaluator;
    struct outbox *outbox;
    struct way ways[ALERT_WAYS];
    unsigned way_set; /* of 1 << WAY */
    int64_t heartbeat_at;
    struct event *tick;
};
static_assert(offsetof(struct wiring, ruler) == 0, "handlers get the address of its first member");

static void note_change(struct alert_list *list, void *arg)
{
    struct wiring *w = arg;
    alerts_set_back(list, ruler_now(&w->ruler));
    alerts_forget_sent(list, w->way_set);
    w->ruler.is_changed = w->ruler.is_changed || list->is_changed;
    list->is_changed = false;
}

/* Stores changes, then sends messages. */
static void work(struct wiring *w)
{
    w->ruler.is_changed = silences_expire(&w->ruler.silences, ruler_now(&w->ruler)) || w->ruler.is_changed;
    rule_book_each(w->ruler.book, note_change, w);
    if (w->ruler.is_changed || clock_monotonic() - w->ruler.saved_at > SAVE_EVERY)
        ruler_save(&w->ruler);
    for (size_t i = 0; i < ALERT_WAYS; i++)
        if (w->ways[i].outgoing)
            outgoing_work(w->ways[i].outgoing);
}

static void on_evaluated(void *arg)
{
    work(arg);
}

static void on_tick(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what;
    work(arg);
}

static void collect(struct alert_list *list, void *arg)
{
    struct message_batch *b = arg;
    for (size_t i = 0; i < list->n; i++)
        *ARRAY_ADD(b->all, b->n, b->cap) = list->all[i];
}

static struct bytes compose(void *arg)
{
    struct way *way = arg;
    struct wiring *w = way->wiring;
    int64_t now = ruler_now(&w->ruler);
    rule_book_each(w->ruler.book, collect, &way->batch);
    alert_messages_begin(&way->batch, way->way, &w->rules, &w->ruler.silences, now, PUT_MAX);
    if (way->way == WAY_NOTICES && w->rules.heartbeat > 0 &&
        (now - w->heartbeat_at >= w->rules.heartbeat || now < w->heartbeat_at))
        alert_messages_heartbeat(&way->batch, now);
    if (way->batch.lines.len == 0)
        alert_messages_end(&way->batch, way->way, false, now);
    return buf_bytes(&way->batch.lines);
}

static void on_put(bool is_stored, const char *trouble, void *arg)
{
    static const char *const subjects[ALERT_WAYS] = {"alertmanager_queue", "notice_queue"};
    struct way *way = arg;
    struct wiring *w = way->wiring;
    int64_t now = ruler_now(&w->ruler);
    w->heartbeat_at = is_stored && way->batch.has_heartbeat ? now : w->heartbeat_at;
    w->ruler.is_changed = w->ruler.is_changed || is_stored;
    alert_messages_end(&way->batch, way->way, is_stored, now);
    char *text = trouble ? mem_printf("alerts wait for the queue: %s", trouble) : NULL;
    daemon_set_notice(w->ruler.daemon, subjects[way->way], NOTICE_ALARM, PEER_REMEDY, text);
    free(text);
}

static void on_stream(const char *trouble, void *arg)
{
    struct wiring *w = arg;
    char *text = trouble ? mem_printf("recorded samples wait for pubsub: %s", trouble) : NULL;
    daemon_set_notice(w->ruler.daemon, "pubsub", NOTICE_ALARM, PEER_REMEDY, text);
    free(text);
    if (daemon_is_draining(w->ruler.daemon) && outbox_is_empty(w->outbox))
        daemon_drained(w->ruler.daemon);
}

/* Reads the rule files again. The alerts continue. */
static void hangup(void *ctx)
{
    struct wiring *w = ctx;
    struct rule_groups groups = {0};
    struct error error;
    struct buf state = {0};
    int rc = ruler_read_rules(daemon_options(w->ruler.daemon), &groups, &error);
    daemon_set_notice(w->ruler.daemon, "files", NOTICE_WARNING,
        "correct the file; then reload with SIGHUP; the earlier rules stay", rc == 0 ? NULL : error.text);
    if (rc != 0)
        return;
    for (size_t i = 0; i < ALERT_WAYS; i++)
        if (w->ways[i].outgoing)
            outgoing_cancel(w->ways[i].outgoing);
    w->rules = ruler_message_rules(daemon_options(w->ruler.daemon), &groups);
    struct rule_book *book = rule_book_new(&groups, w->ruler.book->failure_for);
    ruler_print_state(&w->ruler, &state);
    struct json_doc *d = json_doc_parse(buf_bytes(&state));
    rule_book_restore(book, d, ruler_now(&w->ruler));
    json_doc_free(&d);
    buf_free(&state);
    evaluator_set(w->evaluator, book);
    rule_book_free(&w->ruler.book);
    w->ruler.book = book;
    log_info("rules read", LOG_U("groups", book->groups.n));
}

static struct http_pool *open_pool(
    struct wiring *w, const char *url, const char *token, usec_t timeout, struct error *error)
{
    struct options *o = daemon_options(w->ruler.daemon);
    return daemon_pool_new(w->ruler.daemon, options_string(o, token),
        &(struct http_pool_config){.url = url,
            .max_connections = token[0] == 'm' ? 16 : 2,
            .timeout = timeout,
            .backoff_min = options_int(o, "backoff_min") * USEC_PER_MSEC,
            .backoff_max = options_int(o, "backoff_max") * USEC_PER_MSEC},
        error);
}

static int open_peers(struct wiring *w, struct options *o, struct error *error)
{
    usec_t timeout = options_int(o, "request_timeout") * USEC_PER_MSEC,
           min = options_int(o, "backoff_min") * USEC_PER_MSEC,
           max = options_int(o, "backoff_max") * USEC_PER_MSEC;
    struct daemon *d = w->ruler.daemon;
    w->source = open_pool(w, peer_url(o, "metricdb"), "metricdb_token_file",
        options_int(o, "query_timeout") * USEC_PER_MSEC, error);
    w->pubsub = open_pool(w, peer_url(o, "pubsub"), "pubsub_token_file", timeout, error);
    w->queue = open_pool(w, peer_url(o, "simplequeue"), "queue_token_file", timeout, error);
    if (!w->source || !w->pubsub || !w->queue)
        return EX_CONFIG;
    if (options_text(o, "stream"))
        w->outbox = outbox_new(&(struct outbox_config){.base = daemon_base(d),
            .pool = w->pubsub,
            .stream = options_string(o, "stream"),
            .producer = options_string(o, "producer"),
            .pieces = "evaluations",
            .max_bytes = (size_t)options_int(o, "buffer_bytes"),
            .publish_max = PUBLISH_MAX,
            .backoff_min = min,
            .backoff_max = max,
            .stats = daemon_stats(d),
            .on_change = on_stream,
            .arg = w});
    for (size_t i = 0; i < ALERT_WAYS; i++) {
        struct way *way = &w->ways[i];
        const char *queue = options_text(o, ruler_queue_settings[i]);
        *way = (struct way){.wiring = w, .way = (enum alert_way)i};
        if (!queue)
            continue;
        w->way_set |= 1U << i;
        way->outgoing = outgoing_new(&(struct outgoing_config){.base = daemon_base(d),
            .pool = w->queue,
            .queue = queue,
            .backoff_min = min,
            .backoff_max = max,
            .stats = daemon_stats(d),
            .compose = compose,
            .on_end = on_put,
            .arg = way});
    }
    return EX_OK;
}

struct tally {
    enum alert_state state;
    size_t n;
};

static void count_list(struct alert_list *list, void *arg)
{
    struct tally *t = arg;
    for (size_t i = 0; i < list->n; i++)
        t->n += list->all[i]->state == t->state;
}

static double count_alerts(const struct wiring *w, enum alert_state state)
{
    struct tally t = {state, 0};
    rule_book_each(w->ruler.book, count_list, &t);
    return (double)t.n;
}

static double firing(void *ctx)
{
    return count_alerts(ctx, ALERT_FIRING);
}

static double pending(void *ctx)
{
    return count_alerts(ctx, ALERT_PENDING);
}

static double count_rules(void *ctx)
{
    const struct rule_groups *g = &((struct wiring *)ctx)->ruler.book->groups;
    size_t n = 0;
    for (size_t i = 0; i < g->n; i++)
        n += g->all[i].n_rules;
    return (double)n;
}

static double failing_rules(void *ctx)
{
    const struct rule_book *b = ((struct wiring *)ctx)->ruler.book;
    size_t n = 0;
    for (size_t i = 0; i < b->groups.n; i++)
        for (size_t k = 0; k < b->groups.all[i].n_rules; k++)
            n += b->runs[i].rules[k].error != NULL;
    return (double)n;
}

static double count_silences(void *ctx)
{
    return (double)((struct wiring *)ctx)->ruler.silences.n;
}

static int start(struct daemon *d, void **ctx, struct error *error)
{
    static const struct stats_row rows[] = {
        {"rules", "Rules of all groups", count_rules},
        {"rules_failing", "Rules whose last evaluation failed", failing_rules},
        {"alerts_firing", "Alerts that fire", firing},
        {"alerts_pending", "Alerts that wait for their `for`", pending},
        {"silences", "Silences that have not ended", count_silences},
        {0},
    };
    struct options *o = daemon_options(d);
    struct wiring *w = mem_zalloc(sizeof *w);
    struct rule_groups groups = {0};
    *ctx = w;
    w->ruler.daemon = d;
    if (ruler_read_rules(o, &groups, error) != 0)
        return EX_CONFIG;
    w->rules = ruler_message_rules(o, &groups);
    w->ruler.book = rule_book_new(&groups, options_int(o, "failure_for"));
    if (daemon_lock_directory(options_string(o, "data_dir"), error) != 0)
        return daemon_start_status(errno);
    w->ruler.state_path = mem_printf("%s/state.json", options_string(o, "data_dir"));
    int status = ruler_restore(&w->ruler, error);
    if (status == EX_OK)
        status = open_peers(w, o, error);
    if (status != EX_OK)
        return status;
    stats_gauges(daemon_stats(d), rows, NULL, w);
    w->evaluator = evaluator_new(&(struct evaluator_config){.daemon = d,
        .pool = w->source,
        .outbox = w->outbox,
        .timeout = options_int(o, "query_timeout") * USEC_PER_MSEC,
        .on_end = on_evaluated,
        .arg = w});
    evaluator_set(w->evaluator, w->ruler.book);
    w->tick = event_new(daemon_base(d), -1, EV_PERSIST, on_tick, w);
    event_add(w->tick, &(struct timeval){1, 0});
    daemon_set_ready(d);
    return EX_OK;
}

/* Publishes the evaluations that have ended. */
static void drain(void *ctx)
{
    struct wiring *w = ctx;
    evaluator_stop(w->evaluator);
    if (!w->outbox || outbox_is_empty(w->outbox))
        daemon_drained(w->ruler.daemon);
}

static void stop(void *ctx)
{
    struct wiring *w = ctx;
    if (!w)
        return;
    if (w->tick)
        event_free(w->tick);
    evaluator_free(&w->evaluator);
    for (size_t i = 0; i < ALERT_WAYS; i++)
        outgoing_free(&w->ways[i].outgoing);
    outbox_free(&w->outbox);
    if (w->tick) /* the start was complete */
        ruler_save(&w->ruler);
    http_pool_free(&w->source);
    http_pool_free(&w->pubsub);
    http_pool_free(&w->queue);
    stats_remove_gauges(daemon_stats(w->ruler.daemon), w);
    rule_book_free(&w->ruler.book);
    silences_free(&w->ruler.silences);
    free(w->ruler.state_path);
    free(w);
}

int main(int argc, char **argv)
{
    static const struct daemon_spec spec = {
        .name = "ruler",
        .summary =
            "evaluates rules over metrics, records their results in a stream and puts alerts into queues",
        .options = ruler_settings,
        .default_port = PORT_RULER,
        .routes = ruler_routes,
        .check = ruler_check_settings,
        .start = start,
        .hangup = hangup,
        .drain = drain,
        .stop = stop,
    };
    return daemon_main(&spec, argc, argv);
}
