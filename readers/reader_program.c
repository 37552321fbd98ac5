#include "readers/reader_program.h"

#include "base/amount.h"
#include "base/log.h"
#include "config/peers.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sysexits.h>

/* Maximum number of burials that are logged per minute. Further burials are only counted. */
#define BURIALS_LOGGED_MAX 100
#define MINUTE (60 * USEC_PER_SEC)
#define IDS_LOGGED_MAX ((size_t)1000) /* bytes */

struct reader_program {
    struct daemon *daemon;
    struct queuereader *reader; /* NULL: the program has a dispatcher */
    struct dispatcher *dispatcher;
    bool stopped;
    bool redelivers; /* the program stopped too early, and some messages will be delivered again */
    usec_t minute;   /* start of the current minute of burials */
    uint64_t burials, burials_not_logged; /* burials in the current minute */
    bool may_lose;                        /* the destination is JetStream: no program sets marks there */
    char name[NAME_LEN_MAX + 1];          /* of the producer */
};

int reader_program_check(struct options *o, struct error *error)
{
    if (options_check_name(o, "queue", error) || options_check_name(o, "reader", error) ||
        peer_check(o, "simplequeue", error))
        return -1;
    if (options_int(o, "backoff_min") <= options_int(o, "backoff_max"))
        return 0;
    return options_refuse(o, "backoff_min", error, "greater than backoff_max");
}

int reader_program_check_batch(struct options *o, struct error *error)
{
    if (reader_program_check(o, error) != 0)
        return -1;
    if (!options_is_set(o, "items") || options_int(o, "batch") <= options_int(o, "items"))
        return 0;
    return options_refuse(o, "batch", error,
        "must not exceed items (%lld), because a batch belongs to one lease",
        (long long)options_int(o, "items"));
}

int reader_program_check_relay(struct options *o, struct error *error)
{
    if (reader_program_check(o, error) != 0 || options_check_name(o, "stream", error) != 0)
        return -1;
    return options_check_name(o, "name", error);
}

const char *reader_program_lines(
    struct reader_program *p, const struct queuereader_run *run, struct buf *lines)
{
    const struct options *o = daemon_options(p->daemon);
    const char *name = options_string(o, "name"), *queue = options_string(o, "queue");
    int host = NAME_LEN_MAX - 1 - (int)strlen(queue); /* maximum bytes of the host's name */
    p->name[0] = '\0';
    if (run->host[0] && host > 0)
        snprintf(p->name, sizeof p->name, "%.*s.%s", host, run->host, queue);
    buf_clear(lines);
    for (size_t i = 0; i < run->n; i++) {
        buf_append_bytes(lines, run->messages[i].text);
        buf_append_char(lines, '\n');
    }
    return name ? name : p->name;
}

static struct queuereader_numbers numbers_of(const struct reader_program *p)
{
    return p->reader ? queuereader_numbers(p->reader) : dispatcher_numbers(p->dispatcher);
}

#define NUMBER(member) STATS_READ(read_##member, numbers_of(ctx).member)
NUMBER(reserved)
NUMBER(delivered)
NUMBER(buried)
NUMBER(runs)
NUMBER(refused)
NUMBER(conflicts)
NUMBER(superseded)
NUMBER(acks_refused)
NUMBER(queue_faults)
NUMBER(deliveries_failed)

static void register_stats(struct reader_program *p)
{
    static const struct stats_row rows[] = {
        {"messages_reserved_total", "Messages received from the queue", read_reserved},
        {"messages_delivered_total", "Messages delivered", read_delivered},
        {"messages_buried_total", "Messages buried", read_buried},
        {"deliveries_total", "Successful deliveries of one or more messages", read_runs},
        {"deliveries_refused_total", "Deliveries refused and halved", read_refused},
        {"mark_conflicts_total", "Deliveries whose mark was not that of the destination", read_conflicts},
        {"superseded_total", "Takeovers by another process of this reader's name", read_superseded},
        {"acks_refused_total", "Acknowledgements that the queue refused permanently", read_acks_refused},
        {"queue_faults_total", "Failed requests to the queue", read_queue_faults},
        {"deliveries_failed_total", "Deliveries that failed and are retried", read_deliveries_failed},
        {0},
    };
    stats_gauges(daemon_stats(p->daemon), rows, NULL, p);
}

static void on_trouble(const char *trouble, void *arg)
{
    struct reader_program *p = arg;
    if (trouble) {
        daemon_set_not_ready(p->daemon, NOTICE_RECOVERING, PEER_REMEDY, trouble);
        log_warn("waiting", LOG_S("error", trouble));
        daemon_notify_parent();
    } else if (!daemon_is_draining(p->daemon)) {
        daemon_set_ready(p->daemon);
    }
}

static void report_burials_not_logged(struct reader_program *p)
{
    if (p->burials_not_logged)
        log_warn("more messages buried", LOG_S("queue", options_string(daemon_options(p->daemon), "queue")),
            LOG_U("messages", p->burials_not_logged));
    p->burials_not_logged = 0;
}

static void on_buried(const struct message *m, void *arg)
{
    struct reader_program *p = arg;
    usec_t now = clock_monotonic();
    if (now - p->minute >= MINUTE) {
        report_burials_not_logged(p);
        p->minute = now;
        p->burials = 0;
    }
    if (p->burials++ < BURIALS_LOGGED_MAX)
        log_warn("buried", LOG_S("queue", options_string(daemon_options(p->daemon), "queue")),
            LOG_U("id", m->id), LOG_S("reason", m->reason));
    else
        p->burials_not_logged++;
}

static void log_failing(const char *why, void *arg)
{
    (void)arg;
    if (why)
        log_warn("some deliveries fail and are repeated", LOG_S("error", why));
    else
        log_info("no delivery has failed for a minute");
}

static void warn_redelivery(const struct reader_program *p, const char *why, struct bytes ids)
{
    log_warn("delivered messages may be delivered again", LOG_S("error", why),
        LOG_S("queue", options_string(daemon_options(p->daemon), "queue")),
        LOG_B("ids", bytes_of(ids.ptr, ids.len < IDS_LOGGED_MAX ? ids.len : IDS_LOGGED_MAX)));
}

static void on_ack_lost(const char *why, struct bytes ids, void *arg)
{
    warn_redelivery(arg, why, ids);
}

static void warn_unacknowledged(struct reader_program *p)
{
    struct buf ids = {0};
    if (p->dispatcher) {
        dispatcher_unacknowledged(p->dispatcher, &ids);
        p->redelivers = p->redelivers || dispatcher_has_lost_acks(p->dispatcher);
    }
    if (ids.len > 0) {
        warn_redelivery(p, "the queue did not accept the acknowledgement of these messages", buf_bytes(&ids));
        p->redelivers = true;
    }
    buf_free(&ids);
}

/* Writes how the operator continues with the messages from id `from` on. */
static void describe_way_on(
    const struct reader_program *p, const struct queuereader_old_copy *copy, uint64_t from, struct buf *out)
{
    struct options *o = daemon_options(p->daemon);
    if (p->may_lose) {
        char *options = daemon_tool_options(p->daemon, peer_url(o, "simplequeue"));
        buf_printf(out,
            "run: millrace queue settle %" PRIu64 " --mark=%" PRIu64 " --opening=%s --queue=%s%s; then start "
            "simplequeue once with --restored%c",
            from, copy->mark_id, copy->opening, options_string(o, "queue"), options, '\0');
        free(options);
        return;
    }
    char *options = daemon_tool_options(p->daemon, peer_url(o, "pubsub"));
    buf_printf(out, "run: millrace producers --stream=%s --set=%s --mark=%" PRIu64 "%s%c",
        options_string(o, "stream"), copy->queue_id, from, options, '\0');
    free(options);
}

/* Writes the id at which the copies differ, and how the operator continues. Called only for a relay: other
 * programs have no stream. */
static void describe_old_copy(const struct reader_program *p, struct buf *out)
{
    struct queuereader_old_copy copy = queuereader_old_copy(p->reader);
    const char *stream = options_string(daemon_options(p->daemon), "stream");
    uint64_t from = copy.differs_from;
    if (copy.is_ahead) {
        from = copy.acked_below ? copy.acked_below : 1;
        buf_printf(out,
            "the mark of queue %s in stream %s is at id %" PRIu64
            ", ahead of the queue, whose next id is %" PRIu64 ". Another program has raised the mark. ",
            copy.queue_id, stream, copy.mark_id, copy.differs_from);
        if (!p->may_lose) {
            char *options = daemon_tool_options(p->daemon, peer_url(daemon_options(p->daemon), "pubsub"));
            buf_printf(out, "To look at the mark, run: millrace producers --stream=%s --producer=%s%s. ",
                stream, copy.queue_id, options);
            free(options);
        }
        buf_printf(out, "To publish the messages from id %" PRIu64 " on, which were not settled, ", from);
    } else {
        buf_printf(out,
            "the queue is an old copy: stream %s already has messages up to id %" PRIu64
            " from another copy of queue %s. Messages of this copy from id %" PRIu64
            " on%s%s, are not published. ",
            stream, copy.mark_id - 1, copy.queue_id, from,
            copy.began[0] ? ", in the opening that began at " : "", copy.began);
        if (!copy.is_certain)
            buf_printf(out,
                "This id was found by the clocks: compare this time with the time of the restore. "
                "The openings of this copy: %s. ",
                copy.openings);
        buf_append_str(out, "To publish them, ");
    }
    describe_way_on(p, &copy, from, out);
}

/* Writes the ids of the missing messages, and the command with which the operator continues without these messages. */
static void describe_old_destination(const struct reader_program *p, struct buf *out)
{
    struct queuereader_old_destination old = queuereader_old_destination(p->reader);
    struct options *o = daemon_options(p->daemon);
    const char *queue = options_string(o, "queue");
    char *options = daemon_tool_options(p->daemon, peer_url(o, "simplequeue"));
    uint64_t first = old.mark_id ? old.mark_id : 1, n = old.acked_below - first;
    buf_printf(out,
        "stream %s is an old copy: %" PRIu64 " %s, ids %" PRIu64 " to %" PRIu64
        ", published to it and removed from queue %s, %s missing from the stream. Restore a newer copy of "
        "pubsub's directory. To continue without these messages, run: millrace producers --queue=%s --set=%s "
        "--mark=%" PRIu64 "%s%c",
        options_string(o, "stream"), n, plural(n, "message", "messages"), first, old.acked_below - 1, queue,
        plural(n, "is", "are"), queue, old.destination, first, options, '\0');
    free(options);
}

static void on_stopped(enum queuereader_end end, void *arg)
{
    struct reader_program *p = arg;
    p->stopped = true;
    if (p->reader && !queuereader_has_unfollowed(p->reader))
        log_warn("the queue stays followed (see millrace help readers)",
            LOG_S("queue", options_string(daemon_options(p->daemon), "queue")));
    bool hands_over = p->reader && options_bool(daemon_options(p->daemon), "hand_over");
    if (hands_over && end == QUEUEREADER_STOPPED && !queuereader_has_unfollowed(p->reader)) {
        log_error("the queue is not handed over: repeat the command",
            LOG_S("queue", options_string(daemon_options(p->daemon), "queue")));
        p->redelivers = true;
        daemon_set_status(p->daemon, EX_TEMPFAIL);
    } else if (hands_over && end == QUEUEREADER_STOPPED) {
        log_info(
            "the queue is handed over", LOG_S("queue", options_string(daemon_options(p->daemon), "queue")));
    }
    if (end == QUEUEREADER_STOPPED && !daemon_is_draining(p->daemon)) { /* after hand_over */
        daemon_begin_stop(p->daemon);
        return;
    }
    if (end == QUEUEREADER_STOPPED) {
        warn_unacknowledged(p);
        daemon_set_status(p->daemon, p->redelivers ? EX_TEMPFAIL : EX_OK);
        daemon_drained(p->daemon);
        return;
    }
    struct buf text = {0};
    if (end == QUEUEREADER_OLD_COPY)
        describe_old_copy(p, &text);
    if (end == QUEUEREADER_OLD_DESTINATION)
        describe_old_destination(p, &text);
    const char *why = text.len ? text.ptr : queuereader_end_text(end);
    /* Only the operator can decide how to continue. */
    daemon_give_up(p->daemon, EX_DATAERR, "cannot go on", "", why);
    buf_free(&text);
}

static struct queuereader_config reader_config(struct reader_program *p, const char *token)
{
    struct options *o = daemon_options(p->daemon);
    return (struct queuereader_config){
        .base = daemon_base(p->daemon),
        .queue_url = peer_url(o, "simplequeue"),
        .queue = options_string(o, "queue"),
        .reader = options_string(o, "reader"),
        .auth_token = token,
        .items = (uint64_t)options_int(o, "items"),
        .wait = options_int(o, "wait") * USEC_PER_MSEC,
        .timeout = options_int(o, "queue_timeout") * USEC_PER_MSEC,
        .backoff_min = options_int(o, "backoff_min") * USEC_PER_MSEC,
        .backoff_max = options_int(o, "backoff_max") * USEC_PER_MSEC,
        .on_stopped = on_stopped,
        .on_trouble = on_trouble,
        .on_buried = on_buried,
        .arg = p,
    };
}

/* Returns the caller's config with the values of READER_BATCH_OPTIONS. */
static struct dispatcher_config dispatcher_config(
    const struct options *o, const struct dispatcher_config *given, const struct queuereader_config *reader)
{
    struct dispatcher_config config = *given;
    config.reader = *reader;
    config.reader.lease = options_int(o, "lease") * USEC_PER_MSEC;
    config.max_items = (size_t)options_int(o, "batch");
    config.rate = (uint64_t)options_int(o, "rate");
    config.poison_limit = (uint64_t)options_int(o, "poison_limit");
    config.drain = options_int(o, "drain_timeout") * USEC_PER_MSEC;
    config.on_failing = log_failing;
    config.on_ack_lost = on_ack_lost;
    if (!options_is_set(o, "items") && config.max_items > reader->items)
        config.reader.items = config.max_items;
    return config;
}

static struct reader_program *program_new(struct daemon *d, const struct queuereader_destination *destination,
    const struct dispatcher_config *dispatcher, struct error *error)
{
    char *token;
    if (daemon_read_token(options_string(daemon_options(d), "queue_token_file"), &token, error) != 0)
        return NULL;
    struct reader_program *p = mem_zalloc(sizeof *p);
    p->daemon = d;
    struct queuereader_config reader = reader_config(p, token);
    if (dispatcher) {
        struct dispatcher_config config = dispatcher_config(daemon_options(d), dispatcher, &reader);
        p->dispatcher = dispatcher_new(&config);
    } else {
        reader.destination = *destination;
        reader.destination.hand_over = options_bool(daemon_options(d), "hand_over");
        p->may_lose = destination->settle_after > 0;
        p->reader = queuereader_new(&reader);
    }
    free(token);
    register_stats(p);
    daemon_set_not_ready(d, NOTICE_RECOVERING, PEER_REMEDY,
        p->reader ? queuereader_trouble(p->reader) : dispatcher_trouble(p->dispatcher));
    return p;
}

struct reader_program *reader_program_new(
    struct daemon *d, const struct queuereader_destination *destination, struct error *error)
{
    return program_new(d, destination, NULL, error);
}

struct reader_program *reader_program_new_dispatcher(
    struct daemon *d, const struct dispatcher_config *config, struct error *error)
{
    return program_new(d, NULL, config, error);
}

struct dispatcher *reader_program_dispatcher(struct reader_program *p)
{
    return p->dispatcher;
}

struct queuereader *reader_program_reader(struct reader_program *p)
{
    return p->reader;
}

static void stop_reader(struct reader_program *p)
{
    if (p->reader)
        queuereader_stop(p->reader);
    else
        dispatcher_stop(p->dispatcher);
}

void reader_program_drain(struct reader_program *p)
{
    if (p->stopped)
        daemon_drained(p->daemon);
    else
        stop_reader(p);
}

bool reader_program_cut_short(struct reader_program *p, bool run)
{
    p->redelivers = p->redelivers || run;
    if (!p->stopped)
        stop_reader(p);
    return !p->stopped;
}

bool reader_program_abort(struct reader_program *p)
{
    return reader_program_cut_short(p, dispatcher_abort(p->dispatcher));
}

void reader_program_free(struct reader_program **p)
{
    if (!*p)
        return;
    if ((*p)->dispatcher)
        dispatcher_abort((*p)->dispatcher);
    if (!(*p)->stopped)
        warn_unacknowledged(*p);
    report_burials_not_logged(*p);
    stats_remove_gauges(daemon_stats((*p)->daemon), *p);
    queuereader_free(&(*p)->reader);
    dispatcher_free(&(*p)->dispatcher);
    free(*p);
    *p = NULL;
}
