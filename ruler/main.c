/* ruler: connects the rules, the source of metrics, and the queues for alerts to the event loop. */
#include "base/log.h"
#include "config/peers.h"
#include "daemon/daemon_directory.h"
#include "http/client/http_pool.h"
#include "ruler/evaluator.h"
#include "ruler/outgoing.h"
#include "stream/slot_outbox.h"

#include <assert.h>
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <sysexits.h>

#define SAVE_EVERY                                                                                           \
    (60 * USEC_PER_SEC) /* keeps the stored time of the last evaluation about right for a kill */
#define PUBLISH_MAX ((size_t)8 << 20)
#define SOURCE_CONNECTIONS 16

struct wiring {
    struct ruler ruler;
    struct http_pool *source, *pubsub, *queue;
    struct evaluator *evaluator;
    struct outbox *outbox;
    struct outgoing *ways[ALERT_WAYS]; /* NULL: not configured */
};
static_assert(offsetof(struct wiring, ruler) == 0, "handlers get the address of its first member");

/* Stores changes, then sends messages. */
static void work(void *ctx)
{
    struct wiring *w = ctx;
    struct ruler *r = &w->ruler;
    int64_t now = ruler_now(r);
    unsigned ways = 0;
    for (size_t i = 0; i < ALERT_WAYS; i++)
        ways |= w->ways[i] ? 1U << i : 0;
    r->is_changed = silences_update(&r->silences, now) || r->is_changed;
    for (size_t i = 0; i < r->book->n; i++)
        r->is_changed = alerts_tidy(&r->book->all[i].alerts, ways, now) || r->is_changed;
    if (r->is_changed || clock_monotonic() - r->saved_at > SAVE_EVERY)
        ruler_save(r);
    for (size_t i = 0; i < ALERT_WAYS; i++)
        outgoing_work(w->ways[i]);
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
    struct rule_book *old;
    struct sample_lines lines = {0};
    struct error error;
    for (size_t i = 0; i < ALERT_WAYS; i++)
        outgoing_cancel(w->ways[i]);
    if (ruler_read_rules(&w->ruler, &old, &error) != 0)
        return;
    evaluator_set(w->evaluator, w->ruler.book);
    rule_book_continue(w->ruler.book, old, &lines);
    if (w->outbox && lines.n > 0)
        outbox_add(w->outbox, 0, ruler_now(&w->ruler), &lines.text, lines.n);
    buf_free(&lines.text);
    rule_book_free(&old);
    log_info("rules read", LOG_U("groups", w->ruler.book->groups.n));
}

static struct http_pool *open_pool(
    struct daemon *d, const char *peer, const char *token, const char *timeout, struct error *error)
{
    struct options *o = daemon_options(d);
    return daemon_pool_new(d, options_string(o, token),
        &(struct http_pool_config){.url = peer_url(o, peer),
            .max_connections = SOURCE_CONNECTIONS,
            .timeout = options_int(o, timeout) * USEC_PER_MSEC,
            .backoff_min = options_int(o, "backoff_min") * USEC_PER_MSEC,
            .backoff_max = options_int(o, "backoff_max") * USEC_PER_MSEC},
        error);
}

static int open_peers(struct wiring *w, struct options *o, struct error *error)
{
    struct daemon *d = w->ruler.daemon;
    w->source = open_pool(d, "metricdb", "metricdb_token_file", "query_timeout", error);
    w->pubsub = w->source ? open_pool(d, "pubsub", "pubsub_token_file", "request_timeout", error) : NULL;
    w->queue = w->pubsub ? open_pool(d, "simplequeue", "queue_token_file", "request_timeout", error) : NULL;
    if (!w->queue)
        return EX_CONFIG;
    if (options_text(o, "stream"))
        w->outbox = outbox_new(&(struct outbox_config){.base = daemon_base(d),
            .pool = w->pubsub,
            .stream = options_string(o, "stream"),
            .producer = options_string(o, "producer"),
            .pieces = "evaluations",
            .max_bytes = (size_t)options_int(o, "buffer_bytes"),
            .publish_max = PUBLISH_MAX,
            .backoff_min = options_int(o, "backoff_min") * USEC_PER_MSEC,
            .backoff_max = options_int(o, "backoff_max") * USEC_PER_MSEC,
            .stats = daemon_stats(d),
            .on_change = on_stream,
            .arg = w});
    for (size_t i = 0; i < ALERT_WAYS; i++)
        w->ways[i] = outgoing_new(&w->ruler, (enum alert_way)i, w->queue);
    return EX_OK;
}

static double count_alerts(const struct wiring *w, enum alert_state state)
{
    const struct rule_book *b = w->ruler.book;
    size_t n = 0;
    for (size_t i = 0; i < b->n; i++)
        n += alerts_count(&b->all[i].alerts, state);
    return (double)n;
}

STATS_READ(firing, count_alerts(ctx, ALERT_FIRING))
STATS_READ(pending, count_alerts(ctx, ALERT_PENDING))

static double count_rules(void *ctx)
{
    const struct rule_book *b = ((struct wiring *)ctx)->ruler.book;
    return (double)(b->n - 1 - b->groups.n);
}

static double failing_rules(void *ctx)
{
    const struct rule_book *b = ((struct wiring *)ctx)->ruler.book;
    size_t n = 0;
    for (size_t i = 0; i < b->n; i++)
        n += b->all[i].error != NULL;
    return (double)n;
}

STATS_READ(count_silences, ((struct wiring *)ctx)->ruler.silences.n)

static const struct stats_row gauges[] = {
    {"rules", "Rules of all groups", count_rules},
    {"rules_failing", "Rules whose last evaluation failed", failing_rules},
    {"alerts_firing", "Alerts that fire", firing},
    {"alerts_pending", "Alerts that wait for their `for`", pending},
    {"silences", "Silences that have not ended", count_silences},
    {0},
};

static int start(struct daemon *d, void **ctx, struct error *error)
{
    struct options *o = daemon_options(d);
    struct wiring *w = mem_zalloc(sizeof *w);
    struct rule_book *none;
    *ctx = w;
    w->ruler.daemon = d;
    if (ruler_read_rules(&w->ruler, &none, error) != 0)
        return EX_CONFIG;
    if (daemon_lock_directory(options_string(o, "data_dir"), error) != 0)
        return daemon_start_status(errno);
    w->ruler.state_path = mem_printf("%s/state.json", options_string(o, "data_dir"));
    int status = ruler_restore(&w->ruler, error);
    if (status == EX_OK)
        status = open_peers(w, o, error);
    if (status != EX_OK)
        return status;
    stats_gauges(daemon_stats(d), gauges, NULL, w);
    w->evaluator = evaluator_new(&(struct evaluator_config){.daemon = d,
        .pool = w->source,
        .outbox = w->outbox,
        .timeout = options_int(o, "query_timeout") * USEC_PER_MSEC,
        .on_end = work,
        .arg = w});
    evaluator_set(w->evaluator, w->ruler.book);
    daemon_set_tick(d, USEC_PER_SEC, work);
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
    bool has_started = w->evaluator != NULL;
    evaluator_free(&w->evaluator);
    for (size_t i = 0; i < ALERT_WAYS; i++)
        outgoing_free(&w->ways[i]);
    outbox_free(&w->outbox);
    if (has_started)
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
