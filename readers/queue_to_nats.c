#include "config/peers.h"
#include "nats/nats_settings.h"
#include "readers/nats_publisher.h"
#include "readers/reader_program.h"

#include <malloc.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sysexits.h>
#include <zlib.h>

struct relay {
    struct daemon *daemon;
    struct reader_program *program;
    struct nats_publisher *publisher;
    struct buf body, ids;
    char opening[NAME_LEN_MAX + 1]; /* of the batch that is being published */
    char destination[QUEUEREADER_DESTINATION_DIGITS + 1];
    uint64_t clock_jumps;   /* known jumps of the wall clock */
    usec_t until;           /* time of the last request; 0: none */
    usec_t published_until; /* latest time that JetStream has; 0: none */
    bool is_ready;          /* JetStream has answered the last request */
    bool is_stating;        /* the last request is a statement */
};

static const struct option_row option_rows[] = {
    READER_OPTIONS("queue_to_nats", "2000"),
    RELAY_OPTIONS,
    NATS_OPTIONS,
    SETTING_DURATION("settle_after", "12m", 0, INT64_C(7) * 86400 * 1000, "ms",
        "time for which the queue keeps messages after JetStream has acknowledged them; at least twice the "
        "servers' sync intervals (nats-server 2.9: 5 minutes); 0 only with `sync_interval: always`"),
    SETTING_BOOL("create", "create the stream if it does not exist"),
    SETTING_INT("replicas", "3", 1, 5, "minimum number of replicas of the stream"),
    SETTING_DURATION("max_age", "7d", 1000, INT64_C(3650) * 86400 * 1000, "ms",
        "age at which a stream that `create` creates deletes messages"),
    SETTING_SIZE("max_bytes", "0", 0, INT64_MAX,
        "size at which a stream that `create` creates refuses messages; 0: unlimited"),
    {.name = NULL},
};

static int check(struct options *o, struct error *error)
{
    const char *stream = options_string(o, "stream");
    char reader[NAME_LEN_MAX + 1];
    if (reader_program_check_relay(o, error) != 0 || nats_settings_check(o, error) != 0 ||
        nats_settings_check_stream(o, "stream", error) != 0)
        return -1;
    /* Messages must be found that are older than settle_after, also some time later. */
    if (options_int(o, "max_age") < 2 * options_int(o, "settle_after"))
        return options_refuse(o, "max_age", error, "shorter than twice settle_after");
    /* The queue stays followed while messages are unsettled. So it refuses a relay to another stream. */
    snprintf(reader, sizeof reader, "queue_to_nats.%s", stream);
    if (options_inherit(o, "reader", reader, "queue_to_nats.STREAM", error) != 0)
        return -1;
    size_t len = strlen(options_string(o, "reader")), end = strlen(strchr(reader, '.'));
    if (len <= end || strcmp(options_string(o, "reader") + len - end, strchr(reader, '.')) != 0)
        return options_refuse(o, "reader", error,
            "must end in %s, so that the queue refuses a relay to another stream", strchr(reader, '.'));
    return 0;
}

/* Tells the reader the relay's trusted time, which a watermark does not exceed. The reader of the stream also limits the
 * watermark to JetStream's timestamp of message run->until_after. */
static void set_time(struct relay *r)
{
    struct queuereader *reader = reader_program_reader(r->program);
    usec_t now = daemon_trusted_time(r->daemon);
    uint64_t jumps = daemon_clock_jumps(r->daemon);
    queuereader_set_time(reader, now, jumps != r->clock_jumps);
    r->clock_jumps = jumps;
}

static void on_outcome(const struct nats_outcome *o, void *arg)
{
    struct relay *r = arg;
    struct queuereader *reader = reader_program_reader(r->program);
    struct queuereader_numbers n = queuereader_numbers(reader);
    if (o->position > 0) {
        set_time(r);
        queuereader_set_position(reader, o->position);
    }
    r->is_ready = o->result != NATS_FAILED;
    switch (o->result) {
    case NATS_ASKED:
        if (o->mark < (n.due > 0 ? n.due : n.below)) /* lost messages */
            r->published_until = 0;
        queuereader_set_destination(reader, bytes_str(r->destination));
        queuereader_set_max_bytes(reader, o->max_lines);
        queuereader_set_aged(reader, o->settled, o->aged);
        queuereader_asked(reader, o->mark, bytes_str(o->opening));
        return;
    case NATS_STORED:
        if (r->until > 0)
            r->published_until = r->until;
        if (r->is_stating)
            queuereader_stated(reader);
        else
            queuereader_delivered(reader);
        return;
    case NATS_CONFLICT:
        r->published_until = 0;
        queuereader_conflict(reader);
        return;
    case NATS_REFUSED:
        queuereader_refused(reader, o->why);
        return;
    case NATS_FAILED:
        queuereader_faulted(reader, o->why, QUEUEREADER_BACKOFF);
    }
}

static void ask(struct queuereader *qr, const char *queue_id, void *arg)
{
    struct queuereader_numbers n = queuereader_numbers(qr);
    nats_publisher_ask(((struct relay *)arg)->publisher, queue_id, n.settled, n.due);
}

/* Writes the ids of the messages as ranges, unless the ids are mark, mark + 1, and so on. */
static void write_ids(const struct queuereader_run *run, struct buf *out)
{
    const struct message *m = run->messages;
    buf_clear(out);
    bool is_plain = run->n == run->next - run->mark;
    for (size_t i = 0, end; i < run->n && !is_plain; i = end) {
        for (end = i + 1; end < run->n && m[end].id == m[i].id + (end - i);)
            end++;
        buf_printf(out, "%s%" PRIu64 "-%" PRIu64, i ? "," : "", m[i].id, m[end - 1].id);
    }
    buf_append_char(out, '\0');
}

static void publish(struct relay *r, const struct queuereader_run *run, bool is_stating)
{
    r->is_stating = is_stating;
    r->until = run->until;
    snprintf(
        r->opening, sizeof r->opening, "%s", run->opening); /* run->opening does not last until the outcome */
    const char *name = reader_program_lines(r->program, run, &r->body);
    write_ids(run, &r->ids);
    nats_publisher_send(r->publisher, &(struct nats_batch){.queue_id = run->queue_id,
                                          .mark = run->mark,
                                          .next = run->next > run->mark ? run->next : run->mark,
                                          .opening = r->opening,
                                          .until = run->until,
                                          .until_after = run->until_after,
                                          .name = name,
                                          .ids = r->ids.ptr,
                                          .lines = buf_bytes(&r->body)});
}

static void deliver(struct queuereader *qr, const struct queuereader_run *run, void *arg)
{
    (void)qr;
    publish(arg, run, false);
}

/* Publishes only `until`. Also without `until`, an accepted statement shows that the stream takes messages. */
static void state(struct queuereader *qr, const struct queuereader_run *run, void *arg)
{
    (void)qr;
    publish(arg, run, true);
}

static struct queuereader_numbers numbers(void *ctx)
{
    return queuereader_numbers(reader_program_reader(((struct relay *)ctx)->program));
}

STATS_READ(read_unsettled, numbers(ctx).unsettled)
STATS_READ(read_backlog, numbers(ctx).backlog)
STATS_READ(read_below, numbers(ctx).below)
STATS_READ(read_settled, numbers(ctx).settled)

static double read_until_age(void *ctx)
{
    usec_t until = ((struct relay *)ctx)->published_until;
    return until > 0 ? (double)(clock_wall() - until) / USEC_PER_SEC : 0;
}

STATS_READ(read_ready, ((struct relay *)ctx)->is_ready)

static int start_publisher(struct relay *r, struct options *o, struct error *error)
{
    r->publisher = nats_publisher_new(
        &(struct nats_publisher_config){
            .base = daemon_base(r->daemon),
            .name = "millrace queue_to_nats",
            .options = o,
            .stream = {.name = options_string(o, "stream"),
                .create = options_bool(o, "create"),
                .replicas = options_int(o, "replicas"),
                .max_age = options_int(o, "max_age") * USEC_PER_MSEC,
                .max_bytes = options_int(o, "max_bytes"),
                .settle_after = options_int(o, "settle_after") * USEC_PER_MSEC},
            .on_outcome = on_outcome,
            .arg = r,
        },
        error);
    return r->publisher ? EX_OK : EX_CONFIG;
}

static int start(struct daemon *d, void **ctx, struct error *error)
{
    static const struct stats_row rows[] = {
        {"backlog_messages", "Messages of the queue that are not published yet", read_backlog},
        {"unsettled_messages", "Published messages that the queue keeps for settle_after", read_unsettled},
        {"published_below", "Each message of the queue before this id is published or buried; 0: not known",
            read_below},
        {"settled_below", "The queue needs to keep no message before this id; 0: not known", read_settled},
        {"until_age_seconds",
            "Age of the time before which each message of the queue is published; 0: not known",
            read_until_age},
        {"jetstream_up", "1 if JetStream has answered the last request", read_ready},
        {0},
    };
    struct options *o = daemon_options(d);
    struct relay *r = mem_zalloc(sizeof *r);
    /* Batches reuse their memory: fresh pages for each would cost more than their copies. */
    mallopt(M_MMAP_THRESHOLD, 64 << 20);
    mallopt(M_TRIM_THRESHOLD, 64 << 20);
    const char *stream = options_string(o, "stream");
    struct queuereader_destination nats = {.ask = ask,
        .deliver = deliver,
        .state = state,
        .arg = r,
        .settle_after = options_int(o, "settle_after") * USEC_PER_MSEC,
        .lines = true};
    *ctx = r;
    r->daemon = d;
    /* A stream that is made again under its name is the same destination. */
    snprintf(r->destination, sizeof r->destination, "%08lx",
        crc32_z(0, (const Bytef *)stream, strlen(stream)) & 0xffffffff);
    int status = start_publisher(r, o, error);
    if (status != EX_OK)
        return status;
    r->program = reader_program_new(d, &nats, error);
    if (!r->program)
        return EX_CONFIG;
    stats_gauges(daemon_stats(d), rows, NULL, r);
    return EX_OK;
}

static void drain(void *ctx)
{
    reader_program_drain(((struct relay *)ctx)->program);
}

static void stop(void *ctx)
{
    struct relay *r = ctx;
    if (!r)
        return;
    stats_remove_gauges(daemon_stats(r->daemon), r);
    nats_publisher_free(&r->publisher);
    nats_Close();
    reader_program_free(&r->program);
    buf_free(&r->body);
    buf_free(&r->ids);
    free(r);
}

int main(int argc, char **argv)
{
    static const struct daemon_spec spec = {
        .name = "queue_to_nats",
        .summary = "publishes the messages of a queue to a JetStream stream, in order and without loss",
        .options = option_rows,
        .default_port = -1,
        .check = check,
        .start = start,
        .drain = drain,
        .stop = stop,
    };
    return daemon_main(&spec, argc, argv);
}
