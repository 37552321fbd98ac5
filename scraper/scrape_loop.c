#include "scraper/scrape_loop.h"

#include "base/heap.h"
#include "base/log.h"
#include "base/rate_limit.h"
#include "daemon/daemon.h"
#include "daemon/loop_timer.h"
#include "http/client/http_client.h"
#include "scraper/metadata.h"
#include "scraper/target_names.h"
#include "stream/slot_outbox.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define LOOK_EVERY USEC_PER_SEC /* the longest sleep, so that a jump of the clock is noticed */
#define LOG_RATE 10             /* lines a second */
#define READ_SIZE ((size_t)16 * 1024)
#define ERROR_REPLY_MAX ((size_t)1024) /* of a reply with an error status */

/* A target in the list. */
struct watched {
    struct scrape_loop *loop;
    struct target *target;
    struct heap_node due;      /* the next slot, milliseconds of trusted time */
    struct heap_node deadline; /* of the request in progress, microseconds of the monotonic clock */
    bool is_listed, is_moved;  /* not listed, because the target belongs to another scraper */
    struct http_client *client;
    char *url; /* the address of the client */
    unsigned refusals;
    struct http_call *call; /* NULL: none in progress */
    struct buf page;
    const char *fault; /* why the loop cancels the request */
    usec_t began;
    int64_t slot; /* of the request in progress, then of the last scrape; 0: none */
    struct known_series known;
    bool is_up;
    double seconds;
    uint64_t samples, comments;
    char error[200]; /* of the last scrape; "": none */
};

struct scrape_loop {
    struct scrape_loop_config config;
    struct loop_timer *timer;
    struct heap due, deadlines;
    struct watched **all; /* in the order of ids */
    size_t n;
    size_t pages;   /* bytes of pages in progress */
    int64_t latest; /* the latest slot of all targets that has been served */
    bool is_stopped;
    struct rate_limit log_limit; /* of lines about failed scrapes */
    struct metadata *metadata;
    struct stats_counter *scrapes, *failed, *skipped, *samples, *duplicates;
};

#define OF(node, member) ((struct watched *)(void *)((char *)(node)-offsetof(struct watched, member)))

static int64_t now_ms(const struct scrape_loop *l)
{
    return daemon_trusted_time(l->config.daemon) / USEC_PER_MSEC;
}

static void clear_page(struct watched *w)
{
    w->loop->pages -= w->page.len;
    buf_free(&w->page);
}

static void watched_free(struct watched *w)
{
    heap_remove(&w->loop->due, &w->due);
    heap_remove(&w->loop->deadlines, &w->deadline);
    http_client_free(&w->client); /* on_done ignores a cancelled call without a fault */
    clear_page(w);
    free(w->url);
    known_series_free(&w->known);
    target_release(w->target);
    free(w);
}

static void set_error(struct watched *w, const char *why)
{
    usec_t now = clock_monotonic();
    struct rate_limit *limit = &w->loop->log_limit;
    bool is_news = *why && (w->is_up || w->error[0] == '\0');
    snprintf(w->error, sizeof w->error, "%.*s", (int)sizeof w->error - 1, why);
    if (!is_news || rate_limit_when(limit, 1, now) > now)
        return;
    rate_limit_spend(limit, 1, now);
    log_warn(
        "scrape failed", LOG_B("target", bytes_of(w->target->id, w->target->n_url)), LOG_S("error", why));
}

/* Returns NULL, or the reason why the reply has no page that can be read. */
static const char *fault_of(const struct watched *w, enum http_client_result result,
    const struct http_reply_view *reply, enum exposition_format *format)
{
    static char text[100];
    const struct scrape_loop_config *c = &w->loop->config;
    if (w->fault)
        return w->fault;
    if (result != HTTP_CLIENT_OK)
        return http_client_strerror(result);
    snprintf(text, sizeof text, "answered %d", reply->status);
    if (reply->status != 200)
        return text;
    const char *type = http_reply_header(reply, "Content-Type");
    if (exposition_format_of(type, format))
        return NULL;
    *format = c->fallback;
    snprintf(text, sizeof text, "unknown Content-Type \"%.40s\"; set fallback_format", type);
    return c->has_fallback ? NULL : text;
}

/* Ends a scrape. `reply` is NULL only with a fault. */
static void finish(struct watched *w, enum http_client_result result, const struct http_reply_view *reply)
{
    struct scrape_loop *l = w->loop;
    struct scrape s = {.slot = w->slot, .seconds = (double)(clock_monotonic() - w->began) / USEC_PER_SEC};
    enum exposition_format format = EXPOSITION_TEXT;
    struct error error = {0};
    const char *fault = fault_of(w, result, reply, &format);
    if (!fault &&
        scrape_read(&s, format, buf_bytes(&w->page), &l->config.rules, &w->target->labels, &error) != 0)
        fault = error.text;
    if (s.is_up && s.comments != w->comments) {
        w->comments = s.comments;
        metadata_read(&l->metadata, buf_bytes(&w->page));
    }
    set_error(w, fault ? fault : "");
    clear_page(w);
    scrape_end(&s, &w->target->labels, &w->known);
    stats_add(l->scrapes, 1);
    stats_add(l->failed, fault != NULL);
    stats_add(l->samples, s.samples);
    stats_add(l->duplicates, s.duplicates);
    w->is_up = s.is_up;
    w->seconds = s.seconds;
    w->samples = s.samples;
    outbox_add(l->config.outbox, w->target->hash, s.slot, &s.out, s.lines);
    scrape_free(&s);
}

static void on_done(enum http_client_result result, const struct http_reply_view *reply, void *arg)
{
    struct watched *w = arg;
    w->call = NULL;
    w->refusals += result == HTTP_CLIENT_REFUSED;
    heap_remove(&w->loop->deadlines, &w->deadline);
    if (result == HTTP_CLIENT_CANCELLED && !w->fault) /* the loop stops */
        clear_page(w);
    else
        finish(w, result, reply);
}

static void cancel(struct watched *w, const char *fault)
{
    w->fault = fault;
    http_call_cancel(w->call);
}

static void on_body(struct http_call *call, struct bytes piece, void *arg)
{
    struct watched *w = arg;
    struct scrape_loop *l = w->loop;
    (void)call;
    if (piece.len > l->config.body_max - w->page.len) {
        cancel(w, "the page is longer than body_size_limit");
    } else if (l->pages + piece.len > l->config.pages_max) {
        cancel(w, "the pages in progress need more than buffer_bytes");
    } else {
        l->pages += piece.len;
        buf_append_bytes(&w->page, piece);
    }
}

/* Returns the address whose turn it is. After a refused connection the next scrape uses the next address. */
static struct bytes pick_address(const struct watched *w, const char *addresses)
{
    struct bytes address = BYTES_NONE;
    unsigned n = 1;
    for (const char *p = addresses; *p != '\0'; p++)
        n += *p == ' ';
    for (unsigned i = 0; i <= w->refusals % n; i++)
        bytes_next_word(&addresses, " ", &address);
    return address;
}

/* Opens a client of the target's address, also if its name has a new address. Returns false if the name has none. */
static bool open_client(struct watched *w)
{
    struct scrape_loop *l = w->loop;
    const struct target *t = w->target;
    const char *found = t->name ? target_names_find(l->config.names, t->name) : t->address;
    if (!found)
        return false;
    struct bytes address = pick_address(w, found);
    char *url = t->name ? mem_printf("%.*s:%d", (int)address.len, address.ptr, t->port) : mem_strdup(found);
    if (w->url && strcmp(w->url, url) != 0)
        http_client_free(&w->client);
    free(w->url);
    w->url = url;
    if (!w->client)
        w->client = http_client_new(&(struct http_client_config){.base = daemon_base(l->config.daemon),
            .url = url,
            .host = t->name ? t->address : NULL,
            .max_connections = 1,
            .read_size = READ_SIZE,
            .max_reply = ERROR_REPLY_MAX,
            .cut_reply = true,
            .auth_token = l->config.token});
    return true;
}

static void begin(struct watched *w, int64_t slot)
{
    struct target *t = w->target;
    char headers[200];
    w->slot = slot;
    w->began = clock_monotonic();
    w->fault = NULL;
    if (!open_client(w)) {
        w->fault = "the name of the host has no address";
        finish(w, HTTP_CLIENT_REFUSED, NULL);
        return;
    }
    snprintf(headers, sizeof headers,
        "Accept: "
        "application/openmetrics-text;version=1.0.0;q=0.6,text/plain;version=0.0.4;q=0.5,*/*;q=0.1\r\n"
        "X-Prometheus-Scrape-Timeout-Seconds: %" PRId64 ".%03" PRId64 "\r\n",
        t->timeout / 1000, t->timeout % 1000);
    w->call = http_client_request(w->client, &(struct http_call_spec){.method = "GET",
                                                 .target = t->path,
                                                 .headers = headers,
                                                 .timeout = t->timeout * USEC_PER_MSEC,
                                                 .may_resend = true,
                                                 .arg = w,
                                                 .on_body = on_body,
                                                 .on_done = on_done});
    int64_t left = slot + t->interval - now_ms(w->loop);
    heap_put(&w->loop->deadlines, &w->deadline,
        w->began + (left < t->timeout ? left : t->timeout) * USEC_PER_MSEC);
}

/* Forgets a target that is not listed. Publishes its stale markers, unless another scraper has it. */
static void vanish(struct watched *w, int64_t slot)
{
    struct scrape_loop *l = w->loop;
    struct scrape s = {.slot = slot};
    size_t i = 0;
    while (l->all[i] != w)
        i++;
    memmove(l->all + i, l->all + i + 1, (--l->n - i) * sizeof(struct watched *));
    if (!w->is_moved)
        scrape_vanish(&s, &w->known);
    if (s.lines > 0)
        outbox_add(l->config.outbox, w->target->hash, slot, &s.out, s.lines);
    scrape_free(&s);
    watched_free(w);
}

static void serve(struct watched *w, int64_t now)
{
    struct scrape_loop *l = w->loop;
    int64_t interval = w->target->interval, slot = target_slot(w->target, now);
    uint64_t missed = slot > w->due.priority ? (uint64_t)((slot - w->due.priority) / interval) : 0;
    heap_put(&l->due, &w->due, slot + interval);
    if (!share_is_certain(l->config.share, clock_boot())) {
        stats_add(l->skipped, missed + 1);
        return;
    }
    l->latest = slot > l->latest ? slot : l->latest;
    if (!w->is_listed) {
        vanish(w, slot);
        return;
    }
    stats_add(l->skipped, missed + (w->call != NULL));
    if (!w->call)
        begin(w, slot);
}

static void on_timer(void *arg)
{
    struct scrape_loop *l = arg;
    struct heap_node *node;
    int64_t now = now_ms(l);
    usec_t monotonic = clock_monotonic(), sleep = LOOK_EVERY;
    if (l->is_stopped)
        return;
    while ((node = heap_first(&l->deadlines)) && node->priority <= monotonic)
        cancel(OF(node, deadline), "no complete page in time");
    while ((node = heap_first(&l->due)) && node->priority <= now)
        serve(OF(node, due), now);
    if (node && (node->priority - now) * USEC_PER_MSEC < sleep)
        sleep = (node->priority - now) * USEC_PER_MSEC;
    node = heap_first(&l->deadlines);
    if (node && node->priority - monotonic < sleep)
        sleep = node->priority - monotonic;
    sleep = sleep > 0 ? sleep : 0;
    loop_timer_set(l->timer, sleep);
}

static struct watched *watch(struct scrape_loop *l, struct target *t, int64_t now)
{
    struct watched *w = mem_zalloc(sizeof *w);
    w->loop = l;
    w->target = t;
    t->users++;
    heap_node_init(&w->due);
    heap_node_init(&w->deadline);
    /* The target may have left the list before the clock was set back. Then its times must not come again. */
    heap_put(&l->due, &w->due, target_slot(t, now > l->latest ? now : l->latest) + t->interval);
    if (t->name)
        target_names_find(l->config.names, t->name); /* begins to resolve the name before the first slot */
    return w;
}

/* Gives a watched target its new entry of the list, which may have another interval. */
static void renew(struct watched *w, struct target *t, int64_t now)
{
    bool is_moved = w->target->interval != t->interval;
    t->users++;
    target_release(w->target);
    w->target = t;
    int64_t next = target_slot(t, now > w->slot ? now : w->slot) + t->interval;
    if (is_moved)
        heap_put(&w->loop->due, &w->due, next);
}

void scrape_loop_set(struct scrape_loop *l, const struct target_list *list)
{
    struct watched **old = l->all;
    size_t n_old = l->n, i = 0, k = 0;
    int64_t now = now_ms(l);
    l->all = mem_alloc((list->n + n_old + 1) * sizeof(struct watched *));
    for (l->n = 0; i < list->n || k < n_old; l->n++) {
        int order = i == list->n ? 1 : k == n_old ? -1 : strcmp(list->all[i]->id, old[k]->target->id);
        struct watched *w = order < 0 ? watch(l, list->all[i], now) : old[k++];
        w->is_listed = order <= 0;
        w->is_moved = !w->is_listed && !share_has(l->config.share, w->target->hash);
        if (order <= 0)
            renew(w, list->all[i++], now);
        l->all[l->n] = w;
    }
    free(old);
    on_timer(l);
}

void scrape_loop_take_back(struct scrape_loop *l, uint64_t hash, struct bytes lines)
{
    if (!memmem(lines.ptr, lines.len, "\"stale\"", strlen("\"stale\"")))
        return;
    for (size_t i = 0; i < l->n; i++)
        if (l->all[i]->target->hash == hash)
            scrape_take_back(lines, &l->all[i]->known);
}

void scrape_loop_stop(struct scrape_loop *l)
{
    l->is_stopped = true;
    loop_timer_stop(l->timer);
    for (size_t i = 0; i < l->n; i++)
        if (l->all[i]->call)
            http_call_cancel(l->all[i]->call);
}

void scrape_loop_print(const struct scrape_loop *l, struct buf *out)
{
    for (size_t i = 0; i < l->n; i++) {
        const struct watched *w = l->all[i];
        const struct target *t = w->target;
        buf_append_str(out, i == 0 ? "[" : ",\n");
        buf_append_str(out, "{\"url\":");
        buf_append_json(out, bytes_of(t->id, t->n_url));
        buf_printf(out, ",\"labels\":%s,\"listed\":%s,\"up\":%s", t->id + t->n_url + 1,
            w->is_listed ? "true" : "false", w->is_up ? "true" : "false");
        buf_printf(out,
            ",\"interval\":%.3f,\"slot\":%.3f,\"seconds\":%.6f,\"samples\":%" PRIu64 ",\"error\":",
            (double)t->interval / 1000, (double)w->slot / 1000, w->seconds, w->samples);
        buf_append_json(out, bytes_str(w->error));
        buf_append_char(out, '}');
    }
    buf_append_str(out, l->n == 0 ? "[]\n" : "]\n");
}

void scrape_loop_print_metadata(
    const struct scrape_loop *l, struct bytes metric, uint64_t limit, struct buf *out)
{
    metadata_print(l->metadata, metric, limit, out);
}

STATS_READ(count_targets, ((struct scrape_loop *)ctx)->n)

static double count_up(void *ctx)
{
    const struct scrape_loop *l = ctx;
    size_t n = 0;
    for (size_t i = 0; i < l->n; i++)
        n += l->all[i]->is_up;
    return (double)n;
}

STATS_READ(count_pages, ((struct scrape_loop *)ctx)->pages)

struct scrape_loop *scrape_loop_new(const struct scrape_loop_config *config)
{
    static const struct stats_row rows[] = {
        {"targets", "Targets of this scraper", count_targets},
        {"targets_up", "Targets whose last scrape succeeded", count_up},
        {"page_bytes", "Bytes of the pages in progress", count_pages},
        {0},
    };
    struct scrape_loop *l = mem_zalloc(sizeof *l);
    struct stats *s = daemon_stats(config->daemon);
    l->config = *config;
    rate_limit_init(&l->log_limit, LOG_RATE);
    l->timer = loop_timer_new(daemon_base(config->daemon), on_timer, l);
    stats_gauges(s, rows, NULL, l);
    l->scrapes = stats_counter(s, "scrapes_total", NULL, "Scrapes that have ended");
    l->failed = stats_counter(s, "scrapes_failed_total", NULL, "Scrapes that failed: up is 0");
    l->skipped = stats_counter(s, "scrapes_skipped_total", NULL,
        "Slots without a scrape, because the scraper was late or its lease of the targets uncertain");
    l->samples = stats_counter(s, "samples_scraped_total", NULL, "Samples of the pages");
    l->duplicates = stats_counter(s, "samples_duplicate_total", NULL,
        "Samples dropped because the page, or the scraper itself, has the series already");
    on_timer(l);
    return l;
}

void scrape_loop_free(struct scrape_loop **lp)
{
    struct scrape_loop *l = *lp;
    if (!l)
        return;
    stats_remove_gauges(daemon_stats(l->config.daemon), l);
    for (size_t i = 0; i < l->n; i++)
        watched_free(l->all[i]);
    free(l->all);
    loop_timer_free(&l->timer);
    metadata_free(&l->metadata);
    heap_free(&l->due);
    heap_free(&l->deadlines);
    free(l);
    *lp = NULL;
}
