#include "http/client/http_pool.h"
#include "config/peers.h"
#include "readers/reader_program.h"
#include "stream/publisher.h"

#include <stdlib.h>
#include <sysexits.h>

/* Maximum size of a publish (bytes), well below pubsub's default max_body. */
#define PUBLISH_MAX ((size_t)4 << 20)

struct relay {
    struct daemon *daemon;
    struct reader_program *program;
    struct http_pool *pubsub; /* a pool with one server, which stores the marks */
    struct publisher *publisher;
    struct buf body;
};

static const struct option_row option_rows[] = {
    READER_OPTIONS("queue_to_pubsub", "2000"),
    PEER_OPTIONS("pubsub", "pubsub", ""),
    RELAY_OPTIONS,
    READER_MS("publish_timeout", "3s", 10, 600000, "timeout of a publish"),
    {.name = NULL},
};

static int check(struct options *o, struct error *error)
{
    if (reader_program_check_relay(o, error) != 0)
        return -1;
    return peer_check(o, "pubsub", error);
}

static void on_outcome(const struct publisher_outcome *o, void *arg)
{
    struct relay *r = arg;
    struct queuereader *reader = reader_program_reader(r->program);
    const struct publisher_destination *pubsub = publisher_destination(r->publisher);
    queuereader_set_time(reader, pubsub->time, o->is_new_era);
    queuereader_set_destination(reader, bytes_str(pubsub->id));
    if (o->result == PUBLISHER_ASKED)
        queuereader_asked(reader, o->mark, o->opening);
    else if (o->result == PUBLISHER_CONFLICT ||
             o->is_duplicate) /* the stored publish may be of another reader (reader_plan.h, rule 1) */
        queuereader_conflict(reader);
    else if (o->result == PUBLISHER_STORED)
        queuereader_delivered(reader);
    else if (o->result == PUBLISHER_STATED)
        queuereader_stated(reader);
    else if (o->result == PUBLISHER_REFUSED)
        queuereader_refused(reader, o->why);
    else
        queuereader_faulted(reader, o->why, o->wait > 0 ? o->wait : QUEUEREADER_BACKOFF);
}

static void ask(struct queuereader *qr, const char *queue_id, void *arg)
{
    (void)qr;
    publisher_ask(((struct relay *)arg)->publisher, queue_id);
}

/* Publishes messages, or only `until`. A publish contains `until` even if it is not known, so that pubsub knows that
 * this producer sends `until`. */
static void publish(struct queuereader *qr, const struct queuereader_run *run, void *arg)
{
    (void)qr;
    struct relay *r = arg;
    const char *name = reader_program_lines(r->program, run, &r->body);
    publisher_send(r->publisher, &(struct publisher_run){.producer = run->queue_id,
                                     .mark = run->mark,
                                     .next = run->next,
                                     .lines = buf_bytes(&r->body),
                                     .opening = run->opening,
                                     .states = true,
                                     .until = run->until,
                                     .name = name});
}

static int start(struct daemon *d, void **ctx, struct error *error)
{
    struct options *o = daemon_options(d);
    struct relay *r = mem_zalloc(sizeof *r);
    struct queuereader_destination pubsub = {
        .ask = ask, .deliver = publish, .state = publish, .arg = r, .lines = true, .max_bytes = PUBLISH_MAX};
    *ctx = r;
    r->daemon = d;
    struct http_pool_config pool = {
        .url = peer_url(o, "pubsub"),
        .max_connections = 1,
        .timeout = options_int(o, "publish_timeout") * USEC_PER_MSEC,
        .backoff_min = options_int(o, "backoff_min") * USEC_PER_MSEC,
        .backoff_max = options_int(o, "backoff_max") * USEC_PER_MSEC,
    };
    r->pubsub = daemon_pool_new(d, options_string(o, "pubsub_token_file"), &pool, error);
    if (!r->pubsub)
        return EX_CONFIG;
    r->publisher = publisher_new(&(struct publisher_config){
        .pool = r->pubsub, .stream = options_string(o, "stream"), .on_outcome = on_outcome, .arg = r});
    r->program = reader_program_new(d, &pubsub, error);
    return r->program ? 0 : EX_CONFIG;
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
    publisher_free(&r->publisher);
    http_pool_free(&r->pubsub);
    reader_program_free(&r->program);
    buf_free(&r->body);
    free(r);
}

int main(int argc, char **argv)
{
    static const struct daemon_spec spec = {
        .name = "queue_to_pubsub",
        .summary = "publishes the messages of a queue to a stream, exactly once and in order",
        .options = option_rows,
        .default_port = -1,
        .check = check,
        .start = start,
        .drain = drain,
        .stop = stop,
    };
    return daemon_main(&spec, argc, argv);
}
