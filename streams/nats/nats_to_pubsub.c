#include "base/backoff.h"
#include "base/bit_ranges.h"
#include "base/log.h"
#include "config/peers.h"
#include "daemon/daemon.h"
#include "daemon/loop_timer.h"
#include "http/client/http_pool.h"
#include "nats/nats_settings.h"
#include "stream/publisher.h"
#include "json/json_fields.h"
#include "streams/nats/nats_reader.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sysexits.h>

#define POLL (100 * USEC_PER_MSEC) /* interval between two reads of queues without new messages */
#define ASK_EVERY USEC_PER_SEC     /* interval at which an idle cell checks whether pubsub has restarted */
#define FIND_EVERY USEC_PER_SEC    /* interval at which a cell looks for new queues */
#define CHANGE_EVERY (2 * USEC_PER_SEC) /* holes of many queues cost few connections */
#define RECORDS_EVERY USEC_PER_SEC      /* interval at which a cell looks for partitions that have moved */
#define PUBLISH_TIMEOUT (5 * USEC_PER_SEC)
#define BACKOFF_MIN (50 * USEC_PER_MSEC)
#define BACKOFF_MAX (2 * USEC_PER_SEC)
/* The subjects of the notices. */
#define OF_PUBSUB "pubsub"
#define OF_NATS "jetstream"
#define OF_HOLE "hole"
#define OF_LAG "lag"
#define OF_MOVE "move"

struct cell {
    struct daemon *daemon;
    struct http_pool *pubsub; /* a pool with one server, which stores the marks */
    struct publisher *publisher;
    struct nats_client *nats;
    struct nats_reader reader;
    struct copier *copier;
    struct loop_timer *timer; /* starts the next request */
    bool is_busy;             /* a request is in progress */
    bool is_stopping;
    bool has_run;   /* `run` is not stored yet */
    bool is_record; /* `run` stores the partitions of the setting */
    usec_t asked_at, found_at,
        records_at;      /* last question to pubsub; last reads of subjects, of records; 0: none */
    uint64_t partitions; /* of the setting */
    char set[17];        /* these in `run` */
    usec_t reported_at;
    usec_t changed_at; /* to another server, because of a hole; 0: not yet */
    size_t n_waiting;  /* queues that waited then */
    bool is_failing;   /* the latest request failed */
    struct copy_step step;
    struct publisher_run run;
    struct backoff backoff;
    usec_t lag_limit;
    uint64_t mean_bytes; /* of the messages of the JetStream stream */
    usec_t max_age;      /* of these messages; 0: not known yet */
    struct stats_counter *lines, *batches;
};

static const struct option_row option_rows[] = {
    PEER_OPTIONS("pubsub", "pubsub", ""),
    SETTING_STRING("stream", "stream of pubsub to publish to", .fallback = "clicks", .inherits = "streams",
        .flags = OPTION_FIRST),
    SETTING_STRING("nats_stream", "stream of JetStream to read (default: the name of `stream`)"),
    SETTING_STRING("partitions",
        "partitions that this cell copies at first, such as 0-15 or 0-7,32, or none; no other cell may copy "
        "them. `millrace cell move` moves a partition",
        .fallback = "0-63", .flags = OPTION_LIST),
    SETTING_DURATION("lag_limit", "10m", 0, INT64_C(7) * 86400 * 1000, "ms",
        "lag at which /health becomes 503; keep it below settle_after of queue_to_nats; 0: unlimited"),
    NATS_OPTIONS,
    {.name = NULL},
};

static int read_partitions(const struct options *o, uint64_t *set, struct error *error)
{
    struct bytes word;
    *set = 0;
    if (strcmp(options_string(o, "partitions"), "none") == 0)
        return 0;
    if (!bit_ranges_read(options_string(o, "partitions"), set, &word))
        return options_refuse(o, "partitions", error, "%.*s is not a range from 0 to %d, such as 0-15",
            (int)word.len, word.ptr, NATS_PARTITIONS - 1);
    return *set ? 0 : options_refuse(o, "partitions", error, "names no partition");
}

static int check(struct options *o, struct error *error)
{
    uint64_t partitions;
    if (options_check_name(o, "stream", error) != 0 ||
        options_inherit(o, "nats_stream", options_string(o, "stream"), "stream", error) != 0 ||
        read_partitions(o, &partitions, error) != 0 || nats_settings_check(o, error) != 0 ||
        nats_settings_check_stream(o, "nats_stream", error) != 0)
        return -1;
    return peer_check(o, "pubsub", error);
}

/* Reports queues that wait, and the lag, at most once a second. */
static void report(struct cell *c)
{
    char text[100] = "";
    const char *why;
    usec_t now = clock_monotonic();
    if (now - c->reported_at < USEC_PER_SEC)
        return;
    c->reported_at = now;
    size_t n = copier_waiting(c->copier, &why);
    if (n > c->n_waiting)
        log_warn("a queue waits", LOG_S("error", why));
    c->n_waiting = n;
    daemon_set_notice(c->daemon, OF_HOLE, NOTICE_REFUSING,
        "if messages are missing, wait for twice settle_after: the relay publishes lost messages again", why);
    usec_t behind = copier_lag(c->copier, clock_wall()).time;
    bool is_far = c->lag_limit > 0 && behind > c->lag_limit;
    snprintf(text, sizeof text, "%" PRId64 " s behind the JetStream stream, more than lag_limit",
        behind / USEC_PER_SEC);
    daemon_set_notice(c->daemon, OF_LAG, NOTICE_REFUSING,
        "remove the other causes; the messages must be copied before max_age of the stream",
        is_far ? text : NULL);
}

/* Ends a request. The next one follows after `wait`. */
static void request_done(struct cell *c, usec_t wait)
{
    c->is_busy = false;
    report(c);
    if (c->is_stopping)
        daemon_drained(c->daemon);
    else
        loop_timer_set(c->timer, wait);
}

static void request_failed(struct cell *c, const char *of, const char *why)
{
    char text[ERROR_TEXT];
    snprintf(text, sizeof text, "%s: %s", of, why);
    if (daemon_is_ready(c->daemon))
        daemon_set_notice(c->daemon, of, NOTICE_REFUSING, PEER_REMEDY, text);
    else
        daemon_set_not_ready(c->daemon, NOTICE_RECOVERING, PEER_REMEDY, text);
    if (!c->is_failing)
        log_warn("waiting", LOG_S("error", text));
    c->is_failing = true;
    request_done(c, backoff_failed(&c->backoff));
}

static void set_up(struct cell *c, const char *of)
{
    daemon_set_notice(c->daemon, of, NOTICE_REFUSING, NULL, NULL);
    backoff_succeeded(&c->backoff);
    c->is_failing = false;
}

/* On the thread of nats_client. */
static void perform(void *arg)
{
    struct cell *c = arg;
    if (c->step.action == COPY_READ)
        nats_reader_read(&c->reader, c->nats, &c->step);
    else
        nats_reader_find(&c->reader, c->nats);
}

static void see_stream(struct cell *c)
{
    const jsStreamStateSubjects *subjects = c->reader.subjects;
    c->found_at = clock_monotonic();
    c->mean_bytes = c->reader.mean_bytes;
    c->max_age = c->reader.max_age;
    copier_see(c->copier, &c->reader.state);
    for (unsigned i = 0; i < NATS_PARTITIONS && subjects; i++)
        if (c->reader.claims[i].is_owner && c->reader.claims[i].found > c->reader.claims[i].number)
            copier_claimed(c->copier, i, c->reader.claims[i].found);
    if (subjects)
        copier_find(c->copier);
    for (int i = 0; subjects && i < subjects->Count; i++)
        copier_found(c->copier, subjects->List[i].Subject);
    if (!daemon_is_ready(c->daemon))
        daemon_set_ready(c->daemon);
}

static void see_read(struct cell *c)
{
    usec_t now = daemon_trusted_time(c->daemon);
    stats_add(c->batches, c->reader.read.n);
    copier_read(c->copier, &c->reader.read);
    c->has_run = copier_run(c->copier, &c->run);
    c->run.until = c->run.until < now ? c->run.until : now;
    bool wants_server = copier_wants_server(c->copier) && !c->has_run;
    if (wants_server && (c->changed_at == 0 || clock_monotonic() - c->changed_at > CHANGE_EVERY)) {
        nats_client_disconnect(c->nats); /* the next connection is to the next server */
        c->changed_at = clock_monotonic();
        c->found_at = 0;
    }
}

static void on_nats(void *arg)
{
    struct cell *c = arg;
    const char *error = nats_client_error(c->nats);
    if (error[0]) {
        c->found_at = 0;
        request_failed(c, OF_NATS, error);
        return;
    }
    set_up(c, OF_NATS);
    if (c->step.action == COPY_READ)
        see_read(c);
    else
        see_stream(c);
    request_done(c, 0);
}

/* pubsub has another mark, or has restarted, perhaps from a backup. */
static void begin_again(struct cell *c, const char *why)
{
    if (c->asked_at > 0)
        log_info("asks for the marks again", LOG_S("reason", why));
    copier_begin(c->copier);
    c->has_run = c->is_record = false;
    c->records_at = 0;
    /* A restored record may be the same one, although another cell has claimed the partition meanwhile. */
    c->reader.is_changed = true;
    c->found_at = 0;
}

/* Sets which partitions the cell copies. */
static void see_records(struct cell *c, const struct partitions *records)
{
    char moving[200] = "";
    for (unsigned i = 0; i < NATS_PARTITIONS; i++) {
        const struct partition *p = &records->list[i];
        bool is_owner = p->number > 0 ? p->state == PARTITION_OWNED : c->partitions >> i & 1;
        if (copier_own(c->copier, i, is_owner, p->number)) {
            c->reader.claims[i] = (struct nats_claim){.is_owner = is_owner, .number = p->number};
            c->reader.is_changed = true;
            c->found_at = 0;
        }
        if (p->state == PARTITION_LEAVING)
            snprintf(moving, sizeof moving,
                "partition %u is on its way to cell %s: millrace cell move %u --to=%s", i, p->cell, i,
                p->cell);
    }
    daemon_set_notice(c->daemon, OF_MOVE, NOTICE_WARNING, "", moving[0] ? moving : NULL);
    if (records->set == c->partitions)
        return;
    snprintf(c->set, sizeof c->set, "%016" PRIx64, c->partitions);
    c->run = (struct publisher_run){.producer = PARTITIONS_PRODUCER,
        .mark = records->set_mark,
        .next = records->set_mark + 1,
        .opening = c->set};
    c->has_run = c->is_record = true;
}

static void on_records(enum http_client_result result, const struct http_reply_view *reply, void *arg)
{
    struct cell *c = arg;
    struct partitions records;
    char why[200];
    if (result == HTTP_CLIENT_CANCELLED)
        return;
    snprintf(why, sizeof why, "%s", http_client_strerror(result));
    if (result == HTTP_CLIENT_OK)
        http_pool_describe(reply, why, sizeof why);
    if (result != HTTP_CLIENT_OK || (reply->status != 200 && reply->status != 404)) {
        request_failed(c, OF_PUBSUB, why);
        return;
    }
    /* 404: the stream does not exist yet */
    struct json_doc *doc = reply->status == 200 ? json_doc_parse(reply->body) : NULL;
    partitions_read(doc, &records);
    json_doc_free(&doc);
    set_up(c, OF_PUBSUB);
    c->records_at = clock_monotonic();
    see_records(c, &records);
    request_done(c, 0);
}

static void ask_records(struct cell *c)
{
    char target[2 * NAME_LEN_MAX];
    snprintf(target, sizeof target, "/producers?stream=%s" PARTITIONS_QUERY,
        options_string(daemon_options(c->daemon), "stream"));
    (void)http_pool_request(http_pool_single(c->pubsub),
        &(struct http_call_spec){
            .method = "GET", .target = target, .may_resend = true, .arg = c, .on_done = on_records});
}

static void on_outcome(const struct publisher_outcome *o, void *arg)
{
    struct cell *c = arg;
    bool is_failed = o->result == PUBLISHER_FAILED;
    bool is_refused = o->result == PUBLISHER_REFUSED ||
                      (is_failed && c->has_run && !c->is_record && (o->status == 409 || o->status == 413));
    if (is_failed && !is_refused) {
        request_failed(c, OF_PUBSUB, o->why);
        return;
    }
    set_up(c, OF_PUBSUB);
    if (o->is_new_era || o->result == PUBLISHER_CONFLICT) {
        begin_again(c, o->is_new_era ? "pubsub has a new era" : o->why);
    } else if (o->result == PUBLISHER_ASKED) {
        if (c->step.action == COPY_ASK)
            copier_asked(c->copier, o->mark, o->opening);
    } else if (is_refused) {
        copier_refused(c->copier, o->why);
        c->has_run = false;
    } else if (c->is_record) {
        c->has_run = c->is_record = false;
    } else {
        stats_add(c->lines, copier_stored(c->copier));
        c->has_run = false;
    }
    c->asked_at = clock_monotonic();
    request_done(c, o->result == PUBLISHER_CONFLICT ? backoff_failed(&c->backoff) : 0);
}

/* Starts the next request. */
static void on_timer(void *arg)
{
    struct cell *c = arg;
    usec_t now = clock_monotonic();
    c->is_busy = true;
    c->step = (struct copy_step){.action = COPY_IDLE};
    bool is_free = !c->has_run && c->asked_at > 0;
    bool reads_records = is_free && (c->records_at == 0 || now - c->records_at > RECORDS_EVERY);
    bool finds = is_free && !reads_records && (c->found_at == 0 || now - c->found_at > FIND_EVERY);
    if (is_free && !reads_records && !finds)
        c->step = copier_next(c->copier);
    if (c->has_run)
        publisher_send(c->publisher, &c->run);
    else if (reads_records)
        ask_records(c);
    else if (finds || c->step.action == COPY_READ)
        nats_client_start(c->nats);
    else if (c->step.action == COPY_ASK)
        publisher_ask(c->publisher, c->step.queue_id);
    else if (c->asked_at == 0 || now - c->asked_at > ASK_EVERY)
        publisher_ask(c->publisher, "nats_to_pubsub"); /* shows the era */
    else
        request_done(c, POLL);
}

static struct copy_lag lag(void *cell)
{
    return copier_lag(((struct cell *)cell)->copier, clock_wall());
}

STATS_READ(read_lag_messages, lag(ctx).messages)
STATS_READ(read_lag_bytes, lag(ctx).messages *((struct cell *)ctx)->mean_bytes)
STATS_READ(read_lag_seconds, (double)lag(ctx).time / USEC_PER_SEC)

static double read_waiting(void *cell)
{
    const char *why;
    return (double)copier_waiting(((struct cell *)cell)->copier, &why);
}

STATS_READ(read_unread, copier_unread(((struct cell *)ctx)->copier))
STATS_READ(read_max_age, (double)((struct cell *)ctx)->max_age / USEC_PER_SEC)

static void register_stats(struct cell *c)
{
    static const struct stats_row rows[] = {
        {"lag_messages", "Messages of the JetStream stream behind the position of the slowest queue",
            read_lag_messages},
        {"lag_bytes", "Bytes of these messages, estimated from the mean of the stream", read_lag_bytes},
        {"lag_seconds", "Age of the time up to which all queues are copied", read_lag_seconds},
        {"waiting_queues", "Queues that wait because of a hole or a refused message", read_waiting},
        {"unread_queues", "Queues that are not read yet since the start; lag_seconds does not include them",
            read_unread},
        {"stream_max_age_seconds", "Time for which the JetStream stream keeps a message; 0: not known",
            read_max_age},
        {0},
    };
    struct stats *stats = daemon_stats(c->daemon);
    stats_gauges(stats, rows, NULL, c);
    c->lines = stats_counter(stats, "lines_stored_total", NULL, "Lines stored in the stream");
    c->batches = stats_counter(stats, "messages_read_total", NULL, "Messages read from JetStream");
}

static void extra_stats(void *ctx, bool json, struct buf *out)
{
    const struct cell *c = ctx;
    char partitions[BIT_RANGES_TEXT];
    if (c && c->copier)
        buf_printf(out,
            json ? ",\"nats_stream\":\"%s\",\"partitions\":\"%s\"" : "nats_stream: %s\npartitions: %s\n",
            c->reader.stream, bit_ranges_write(copier_partitions(c->copier), partitions));
}

static int start_publisher(struct cell *c, struct options *o, struct error *error)
{
    struct http_pool_config pool = {
        .url = peer_url(o, "pubsub"), .max_connections = 1, .timeout = PUBLISH_TIMEOUT};
    c->pubsub = daemon_pool_new(c->daemon, options_string(o, "pubsub_token_file"), &pool, error);
    if (!c->pubsub)
        return EX_CONFIG;
    c->publisher = publisher_new(&(struct publisher_config){
        .pool = c->pubsub, .stream = options_string(o, "stream"), .on_outcome = on_outcome, .arg = c});
    return EX_OK;
}

static int start(struct daemon *d, void **ctx, struct error *error)
{
    struct options *o = daemon_options(d);
    struct cell *c = mem_zalloc(sizeof *c);
    *ctx = c;
    c->daemon = d;
    c->lag_limit = options_int(o, "lag_limit") * USEC_PER_MSEC;
    backoff_init(&c->backoff, BACKOFF_MIN, BACKOFF_MAX, (uint64_t)clock_wall());
    if (read_partitions(o, &c->partitions, error) != 0)
        return EX_CONFIG;
    c->copier = copier_new(clock_wall());
    int status = start_publisher(c, o, error);
    if (status != EX_OK)
        return status;
    c->reader.stream = options_string(o, "nats_stream");
    c->nats = nats_client_new(&(struct nats_client_config){.base = daemon_base(d),
                                  .name = "millrace nats_to_pubsub",
                                  .options = o,
                                  .perform = perform,
                                  .on_done = on_nats,
                                  .arg = c},
        error);
    if (!c->nats)
        return EX_CONFIG;
    register_stats(c);
    c->timer = loop_timer_new(daemon_base(d), on_timer, c);
    loop_timer_set(c->timer, 0);
    return EX_OK;
}

static void drain(void *ctx)
{
    struct cell *c = ctx;
    c->is_stopping = true;
    loop_timer_stop(c->timer);
    if (!c->is_busy)
        daemon_drained(c->daemon);
}

static void stop(void *ctx)
{
    struct cell *c = ctx;
    if (!c)
        return;
    stats_remove_gauges(daemon_stats(c->daemon), c);
    nats_client_free(&c->nats);
    nats_reader_forget(&c->reader);
    nats_Close();
    publisher_free(&c->publisher);
    http_pool_free(&c->pubsub);
    loop_timer_free(&c->timer);
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
        .extra_stats = extra_stats,
    };
    return daemon_main(&spec, argc, argv);
}
