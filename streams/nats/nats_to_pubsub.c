#include "base/backoff.h"
#include "base/log.h"
#include "base/url.h"
#include "config/peers.h"
#include "daemon/daemon.h"
#include "http/client/http_pool.h"
#include "json/json_fields.h"
#include "nats/nats_settings.h"
#include "stream/publisher.h"
#include "streams/nats/nats_reader.h"

#include <errno.h>
#include <event2/event.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sysexits.h>

#define POLL (100 * USEC_PER_MSEC) /* between two looks at partitions without new messages */
#define ASK_EVERY USEC_PER_SEC     /* an idle cell looks whether pubsub has restarted */
#define STREAM_NAME_MAX 48         /* as in queue_to_nats */
#define BACKOFF_MIN (50 * USEC_PER_MSEC)
#define BACKOFF_MAX (2 * USEC_PER_SEC)
/* The subjects of the notices. */
#define OF_PUBSUB "pubsub"
#define OF_NATS "jetstream"
#define OF_HOLE "hole"
#define OF_LAG "lag"

enum step {
    STEP_ASK,     /* learns pubsub's era */
    STEP_LIST,    /* reads the marks */
    STEP_READ,    /* reads from JetStream */
    STEP_PUBLISH, /* publishes what was read */
};

struct cell {
    struct daemon *daemon;
    struct http_pool *pubsub; /* a pool with one server, which stores the marks */
    struct publisher *publisher;
    struct nats_reader *reader;
    struct copier *copier;
    struct event *timer;  /* starts the next step */
    struct event *ticker; /* reports the state each second */
    struct http_call *list;
    enum step step;
    bool is_busy; /* the step is in progress */
    bool is_stopping;
    bool has_marks; /* the copier has pubsub's marks */
    bool has_run;   /* `run` is not stored yet */
    usec_t asked_at;
    struct copy_run run;
    struct backoff backoff;
    usec_t lag_limit;
    struct stats_counter *lines, *batches;
};

/* clang-format off */
static const struct option_row option_rows[] = {
    PEER_OPTIONS("pubsub", "pubsub", ""),
    {.name = "stream", .type = OPTION_STRING, .fallback = "clicks", .inherits = "streams", .flags = OPTION_FIRST,
        .help = "stream of pubsub to publish to"},
    {.name = "nats_stream", .type = OPTION_STRING,
        .help = "stream of JetStream to read (default: the name of `stream`)"},
    {.name = "partitions", .type = OPTION_STRING, .fallback = "0-63", .flags = OPTION_LIST,
        .help = "partitions that this cell copies, such as 0-15 or 0-7,32; no other cell may copy them"},
    {.name = "accept_loss", .type = OPTION_STRING, .flags = OPTION_LIST,
        .help = "QUEUEID:A-B, separated by spaces or commas: continue without the messages A to B - 1 of a queue, as "
                "/health proposes"},
    {.name = "lag_limit", .type = OPTION_DURATION, .fallback = "10m", .max = INT64_C(7) * 86400 * 1000, .unit = "ms",
        .help = "lag at which /health becomes 503; keep it below settle_after of queue_to_nats; 0: unlimited"},
    NATS_OPTIONS,
    {.name = NULL},
};
/* clang-format on */

/* Reads "A-B" or "A". */
static bool read_range(struct bytes text, uint64_t *first, uint64_t *last)
{
    const char *dash = memchr(text.ptr, '-', text.len);
    size_t n = dash ? (size_t)(dash - text.ptr) : text.len;
    if (!bytes_to_u64(bytes_of(text.ptr, n), first))
        return false;
    *last = *first;
    return !dash || bytes_to_u64(bytes_of(dash + 1, text.len - n - 1), last);
}

static int read_partitions(const struct options *o, uint64_t *set, struct error *error)
{
    const char *rest = options_string(o, "partitions");
    uint64_t first, last;
    struct bytes word;
    *set = 0;
    while (bytes_next_word(&rest, " ,", &word)) {
        if (!read_range(word, &first, &last) || first > last || last >= NATS_PARTITIONS)
            return options_refuse(o, "partitions", error, "%.*s is not a range from 0 to %d, such as 0-15",
                (int)word.len, word.ptr, NATS_PARTITIONS - 1);
        for (uint64_t i = first; i <= last; i++)
            *set |= UINT64_C(1) << i;
    }
    return *set ? 0 : options_refuse(o, "partitions", error, "names no partition");
}

static int check(struct options *o, struct error *error)
{
    uint64_t partitions;
    if (options_check_name(o, "stream", error) != 0 ||
        options_inherit(o, "nats_stream", options_string(o, "stream"), "stream", error) != 0 ||
        read_partitions(o, &partitions, error) != 0 || nats_settings_check(o, error) != 0 ||
        peer_check(o, "pubsub", error) != 0)
        return -1;
    const char *nats = options_string(o, "nats_stream");
    if (!bytes_is_name(bytes_str(nats)) || strlen(nats) > STREAM_NAME_MAX || strchr(nats, '.'))
        return options_refuse(
            o, "nats_stream", error, "not a name of JetStream: [A-Za-z0-9_-]{1,%d}", STREAM_NAME_MAX);
    if (!copier_check_losses(options_string(o, "accept_loss")))
        return options_refuse(o, "accept_loss", error, "not of the form QUEUEID:A-B");
    return 0;
}

static void set_timer(struct cell *c, usec_t wait)
{
    struct timeval tv = {.tv_sec = wait / USEC_PER_SEC, .tv_usec = wait % USEC_PER_SEC};
    evtimer_add(c->timer, &tv);
}

/* Ends a step. The next step follows after `wait`. */
static void step_done(struct cell *c, enum step next, usec_t wait)
{
    c->is_busy = false;
    c->step = next;
    if (c->is_stopping)
        daemon_drained(c->daemon);
    else
        set_timer(c, wait);
}

static void step_failed(struct cell *c, enum step next, const char *of, const char *why)
{
    char text[ERROR_TEXT];
    snprintf(text, sizeof text, "%s: %s", of, why);
    daemon_set_notice(c->daemon, of, NOTICE_REFUSING, PEER_REMEDY, text);
    step_done(c, next, backoff_failed(&c->backoff));
}

static void set_up(struct cell *c, const char *of)
{
    daemon_set_notice(c->daemon, of, NOTICE_REFUSING, NULL, NULL);
    backoff_succeeded(&c->backoff);
}

static bool see_producer(const struct json_doc *producer, size_t i, void *arg)
{
    struct cell *c = arg;
    uint64_t mark = 0;
    (void)i;
    if (json_doc_u64(producer, "/mark", &mark))
        copier_listed(
            c->copier, json_doc_text(producer, "/producer"), mark, json_doc_text(producer, "/opening"));
    return true;
}

static void on_list(enum http_client_result result, const struct http_reply_view *reply, void *arg)
{
    struct cell *c = arg;
    struct json_doc *doc = NULL;
    c->list = NULL;
    if (result == HTTP_CLIENT_CANCELLED)
        return;
    copier_begin(c->copier);
    bool is_known = result == HTTP_CLIENT_OK && reply->status == 200;
    bool is_new = result == HTTP_CLIENT_OK && reply->status == 404; /* pubsub has no such stream yet */
    if (is_known)
        doc = json_doc_parse(reply->body);
    if (is_new || (doc && json_doc_at(doc, "/producers").type == JSON_ARRAY &&
                      json_doc_each(doc, "/producers", see_producer, c))) {
        c->has_marks = true;
        step_done(c, STEP_READ, 0);
    } else {
        step_failed(c, STEP_ASK, OF_PUBSUB, "it does not list the producers of the stream");
    }
    json_doc_free(&doc);
}

static void start_list(struct cell *c)
{
    struct buf target = {0};
    buf_append_str(&target, "/producers?stream=");
    url_encode(bytes_str(options_string(daemon_options(c->daemon), "stream")), &target);
    buf_append_char(&target, '\0');
    c->list = http_pool_request(http_pool_single(c->pubsub),
        &(struct http_call_spec){.method = "GET", .target = target.ptr, .arg = c, .on_done = on_list});
    buf_free(&target);
}

static void on_read(const struct nats_read_outcome *o, void *arg)
{
    struct cell *c = arg;
    if (o->result == NATS_READ_FAILED) {
        step_failed(c, STEP_READ, OF_NATS, o->why);
        return;
    }
    set_up(c, OF_NATS);
    stats_add(c->batches, o->read.n);
    if (!daemon_is_ready(c->daemon))
        daemon_set_ready(c->daemon);
    copier_read(c->copier, &o->read);
    step_done(c, STEP_PUBLISH, 0);
}

static void start_read(struct cell *c)
{
    struct copy_source source = copier_source(c->copier);
    if (source.is_idle) {
        bool asks = clock_monotonic() - c->asked_at > ASK_EVERY;
        step_done(c, asks ? STEP_ASK : STEP_READ, POLL);
        return;
    }
    nats_reader_read(c->reader, &source);
}

/* The time that is stated: no later than this host's trusted time. */
static usec_t until_of(struct cell *c)
{
    usec_t now = daemon_trusted_time(c->daemon);
    return c->run.until < now ? c->run.until : now;
}

static void start_publish(struct cell *c)
{
    if (!c->has_run && !copier_run(c->copier, &c->run)) {
        step_done(c, STEP_READ, 0);
        return;
    }
    c->has_run = true;
    publisher_send(c->publisher, &(struct publisher_run){.producer = c->run.queue_id,
                                     .mark = c->run.mark,
                                     .next = c->run.next,
                                     .lines = c->run.lines,
                                     .opening = c->run.opening,
                                     .states = true,
                                     .until = until_of(c),
                                     .name = c->run.name});
}

/* Forgets the marks and what was read, because pubsub has other marks or has restarted, perhaps from a backup. */
static void begin_again(struct cell *c, const char *why)
{
    log_info("reads the marks again", LOG_S("reason", why));
    c->has_run = c->has_marks = false;
    step_done(c, STEP_ASK, backoff_failed(&c->backoff));
}

static void on_outcome(const struct publisher_outcome *o, void *arg)
{
    struct cell *c = arg;
    if (o->result == PUBLISHER_FAILED || o->result == PUBLISHER_REFUSED) {
        step_failed(c, c->step, OF_PUBSUB, o->why);
    } else if (o->result == PUBLISHER_ASKED) {
        c->asked_at = clock_monotonic();
        c->has_marks = c->has_marks && !o->is_new_era;
        set_up(c, OF_PUBSUB);
        step_done(c, c->has_marks ? STEP_READ : STEP_LIST, 0);
    } else if (o->result == PUBLISHER_CONFLICT || o->is_new_era) {
        begin_again(c, o->is_new_era ? "pubsub has a new era" : o->why);
    } else {
        set_up(c, OF_PUBSUB);
        c->has_run = false;
        stats_add(c->lines, copier_stored(c->copier));
        step_done(c, STEP_PUBLISH, 0);
    }
}

static void on_timer(evutil_socket_t fd, short events, void *arg)
{
    struct cell *c = arg;
    (void)fd;
    (void)events;
    c->is_busy = true;
    switch (c->step) {
    case STEP_ASK:
        publisher_ask(c->publisher, "nats_to_pubsub");
        return;
    case STEP_LIST:
        start_list(c);
        return;
    case STEP_READ:
        start_read(c);
        return;
    case STEP_PUBLISH:
        start_publish(c);
    }
}

static struct copy_lag lag(const struct cell *c)
{
    return copier_lag(c->copier, clock_wall());
}

/* Reports partitions that wait, and the lag. */
static void on_ticker(evutil_socket_t fd, short events, void *arg)
{
    struct cell *c = arg;
    char text[100] = "";
    const char *why;
    (void)fd;
    (void)events;
    (void)copier_waiting(c->copier, &why);
    daemon_set_notice(c->daemon, OF_HOLE, NOTICE_REFUSING,
        "wait until the relay publishes the messages again, or restart with this accept_loss", why);
    usec_t behind = lag(c).time;
    bool is_far = c->lag_limit > 0 && behind > c->lag_limit;
    snprintf(text, sizeof text, "%" PRId64 " s behind the JetStream stream, more than lag_limit",
        behind / USEC_PER_SEC);
    daemon_set_notice(c->daemon, OF_LAG, NOTICE_REFUSING,
        "end the other reasons; the messages must be copied before max_age of the stream",
        is_far ? text : NULL);
}

static double read_lag_messages(void *c)
{
    return (double)lag(c).messages;
}

static double read_lag_bytes(void *c)
{
    return (double)lag(c).bytes;
}

static double read_lag_seconds(void *c)
{
    return (double)lag(c).time / USEC_PER_SEC;
}

static double read_waiting(void *c)
{
    const char *why;
    return (double)copier_waiting(((struct cell *)c)->copier, &why);
}

static void register_stats(struct cell *c)
{
    static const struct stats_row rows[] = {
        {"lag_messages", "Messages of JetStream that are not copied yet", read_lag_messages},
        {"lag_bytes", "Bytes of these messages, estimated from the messages that were copied",
            read_lag_bytes},
        {"lag_seconds", "Age of the time up to which all partitions are copied", read_lag_seconds},
        {"waiting_partitions", "Partitions that wait because of a hole or a refused message", read_waiting},
        {0},
    };
    struct stats *stats = daemon_stats(c->daemon);
    stats_gauges(stats, rows, NULL, c);
    c->lines = stats_counter(stats, "lines_stored_total", NULL, "Lines stored in the stream");
    c->batches = stats_counter(stats, "messages_read_total", NULL, "Messages read from JetStream");
}

static int start_reader(struct cell *c, struct options *o, struct error *error)
{
    natsOptions *options = nats_settings_new(o, "millrace nats_to_pubsub", error);
    if (!options)
        return EX_CONFIG;
    c->reader = nats_reader_new(&(struct nats_reader_config){.base = daemon_base(c->daemon),
        .options = options,
        .stream = options_string(o, "nats_stream"),
        .timeout = options_int(o, "nats_timeout") * USEC_PER_MSEC,
        .consumers_made = stats_counter(
            daemon_stats(c->daemon), "consumers_made_total", NULL, "Consumers made at a cursor"),
        .on_outcome = on_read,
        .arg = c});
    return c->reader ? EX_OK : error_set(error, EX_OSERR, "thread: %s", strerror(errno));
}

static int start_publisher(struct cell *c, struct options *o, struct error *error)
{
    struct http_pool_config pool = {.url = peer_url(o, "pubsub"), .max_connections = 1};
    c->pubsub = daemon_pool_new(c->daemon, options_string(o, "pubsub_token_file"), &pool, error);
    if (!c->pubsub)
        return EX_CONFIG;
    c->publisher = publisher_new(&(struct publisher_config){
        .pool = c->pubsub, .stream = options_string(o, "stream"), .on_outcome = on_outcome, .arg = c});
    return EX_OK;
}

static int start(struct daemon *d, void **ctx, struct error *error)
{
    static const struct timeval second = {.tv_sec = 1};
    struct options *o = daemon_options(d);
    struct cell *c = mem_zalloc(sizeof *c);
    uint64_t partitions;
    *ctx = c;
    c->daemon = d;
    c->lag_limit = options_int(o, "lag_limit") * USEC_PER_MSEC;
    backoff_init(&c->backoff, BACKOFF_MIN, BACKOFF_MAX, (uint64_t)clock_wall());
    if (read_partitions(o, &partitions, error) != 0)
        return EX_CONFIG;
    c->copier = copier_new(partitions, options_string(o, "accept_loss"), clock_wall());
    int status = start_publisher(c, o, error);
    if (status == EX_OK)
        status = start_reader(c, o, error);
    if (status != EX_OK)
        return status;
    register_stats(c);
    c->timer = evtimer_new(daemon_base(d), on_timer, c);
    c->ticker = event_new(daemon_base(d), -1, EV_PERSIST, on_ticker, c);
    event_add(c->ticker, &second);
    set_timer(c, 0);
    return EX_OK;
}

static void drain(void *ctx)
{
    struct cell *c = ctx;
    c->is_stopping = true;
    evtimer_del(c->timer);
    if (!c->is_busy)
        daemon_drained(c->daemon);
}

static void stop(void *ctx)
{
    struct cell *c = ctx;
    if (!c)
        return;
    stats_remove_gauges(daemon_stats(c->daemon), c);
    nats_reader_free(&c->reader);
    nats_Close();
    if (c->list)
        http_call_cancel(c->list);
    publisher_free(&c->publisher);
    http_pool_free(&c->pubsub);
    if (c->timer)
        event_free(c->timer);
    if (c->ticker)
        event_free(c->ticker);
    copier_free(&c->copier);
    free(c);
}

int main(int argc, char **argv)
{
    static const struct daemon_spec spec = {
        .name = "nats_to_pubsub",
        .summary = "copies partitions of a JetStream stream to a stream, exactly once and in the order of "
                   "each queue",
        .options = option_rows,
        .default_port = -1,
        .check = check,
        .start = start,
        .drain = drain,
        .stop = stop,
    };
    return daemon_main(&spec, argc, argv);
}
