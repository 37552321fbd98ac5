#include "daemon.h"
#include "http_client.h"
#include "log.h"
#include "queuereader.h"

#include <event2/event.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sysexits.h>

/* One publish; far under pubsub's default max_body. */
#define MAX_PUBLISH ((size_t)4 << 20)

struct relay {
    struct daemon *daemon;
    struct queuereader *reader;
    struct http_client *pubsub;
    const char *stream; /* a name: needs no encoding */
    struct buf body;
    bool stopped;
};

static const struct option_row option_rows[] = {
    {.name = "queue_url",
        .type = OPTION_STRING,
        .help = "where simplequeue is (default: the configuration's)"},
    {.name = "pubsub_url", .type = OPTION_STRING, .help = "where pubsub is (default: the configuration's)"},
    {.name = "queue", .type = OPTION_STRING, .fallback = "default", .help = "the queue that is read"},
    {.name = "stream",
        .type = OPTION_STRING,
        .fallback = "clicks",
        .help = "the stream that is published to"},
    {.name = "reader",
        .type = OPTION_STRING,
        .fallback = "queue_to_pubsub",
        .help = "this reader's name at the queue"},
    {.name = "items",
        .type = OPTION_INT,
        .fallback = "500",
        .min = 1,
        .max = 100000,
        .help = "messages a lease"},
    {.name = "lease",
        .type = OPTION_DURATION,
        .fallback = "30s",
        .min = 100,
        .max = 3600000,
        .unit = "ms",
        .help = "how long messages are leased; extended while they are worked on"},
    {.name = "wait",
        .type = OPTION_DURATION,
        .fallback = "20s",
        .min = 1,
        .max = 600000,
        .unit = "ms",
        .help = "how long one request waits for messages"},
    {.name = "queue_timeout",
        .type = OPTION_DURATION,
        .fallback = "10s",
        .min = 10,
        .max = 600000,
        .unit = "ms",
        .help = "for the queue's answers, beside that wait"},
    {.name = "publish_timeout",
        .type = OPTION_DURATION,
        .fallback = "10s",
        .min = 10,
        .max = 600000,
        .unit = "ms",
        .help = "for pubsub's answer"},
    {.name = "backoff_min",
        .type = OPTION_DURATION,
        .fallback = "50ms",
        .min = 1,
        .max = 60000,
        .unit = "ms",
        .help = "wait after the first failure"},
    {.name = "backoff_max",
        .type = OPTION_DURATION,
        .fallback = "2s",
        .min = 1,
        .max = 600000,
        .unit = "ms",
        .help = "the longest wait between tries"},
    {.name = NULL},
};

/* ---- settings ---- */

static const char *url_of(struct options *o, const char *name, const char *peer, int port)
{
    const char *url = options_string(o, name);
    return url && *url ? url : options_peer_url(o, peer, port);
}

static const char *queue_url(struct options *o)
{
    return url_of(o, "queue_url", "simplequeue", 8080);
}

static const char *pubsub_url(struct options *o)
{
    return url_of(o, "pubsub_url", "pubsub", 8081);
}

static int check_name(struct options *o, const char *name, struct config_error *error)
{
    if (bytes_is_name(bytes_str(options_string(o, name))))
        return 0;
    snprintf(error->text, sizeof(error->text), "%s: %s is no name: [A-Za-z0-9_.-]{1,64}",
        options_source(o, name), name);
    return -1;
}

static int check_url(const char *what, const char *url, int port, struct config_error *error)
{
    struct url_address address;
    if (url_address_parse(url, port, &address) == 0)
        return 0;
    snprintf(error->text, sizeof(error->text), "%s: \"%s\" is no address (http://HOST:PORT or unix:PATH)",
        what, url);
    return -1;
}

static int check(struct options *o, struct config_error *error)
{
    if (check_name(o, "queue", error) || check_name(o, "stream", error) || check_name(o, "reader", error) ||
        check_url("queue_url", queue_url(o), 8080, error) ||
        check_url("pubsub_url", pubsub_url(o), 8081, error))
        return -1;
    if (options_int(o, "backoff_min") <= options_int(o, "backoff_max"))
        return 0;
    snprintf(error->text, sizeof(error->text), "backoff_min is over backoff_max");
    return -1;
}

/* ---- pubsub as a destination ---- */

/* "413 line-too-large: line 1 is longer than ..." */
static void describe(const struct http_reply_view *reply, char *out, size_t size)
{
    struct bytes code = queuereader_reply_member(reply->body, "code");
    struct bytes detail = queuereader_reply_member(reply->body, "detail");
    snprintf(out, size, "%d %.*s%s%.*s", reply->status, (int)(code.len < 64 ? code.len : 64),
        code.len ? code.ptr : "", detail.len ? ": " : "", (int)(detail.len < 100 ? detail.len : 100),
        detail.len ? detail.ptr : "");
}

static bool no_reply(struct relay *r, enum http_client_result result)
{
    if (result == HTTP_CLIENT_OK)
        return false;
    if (result != HTTP_CLIENT_CANCELLED) /* that is http_client_free: the reader goes too */
        queuereader_faulted(r->reader, http_client_strerror(result), QUEUEREADER_BACKOFF);
    return true;
}

static void asked(enum http_client_result result, const struct http_reply_view *reply, void *arg)
{
    struct relay *r = arg;
    uint64_t mark = 0;
    if (no_reply(r, result))
        return;
    bool unknown = reply->status == 404 &&
                   bytes_equal_str(queuereader_reply_member(reply->body, "code"), "unknown-stream");
    if (unknown ||
        (reply->status == 200 && bytes_to_u64(queuereader_reply_member(reply->body, "mark"), &mark))) {
        queuereader_asked(r->reader, mark);
        return;
    }
    char why[200];
    describe(reply, why, sizeof(why));
    queuereader_faulted(r->reader, why, QUEUEREADER_BACKOFF);
}

static void ask(struct queuereader *qr, const char *queue_id, void *arg)
{
    (void)qr;
    struct relay *r = arg;
    char target[300];
    snprintf(target, sizeof(target), "/producer?stream=%s&producer=%s", r->stream, queue_id);
    struct http_call_spec spec = {
        .method = "GET", .target = target, .arg = r, .on_done = asked, .may_resend = true};
    http_client_request(r->pubsub, &spec);
}

/* Only what pubsub says of the lines themselves makes a message poison. Any other refusal (a proxy's, another version's)
 * is a fault that passes, or that an engineer mends; burying for it would empty the queue. */
static bool blames_messages(const struct http_reply_view *reply)
{
    static const char *const codes[] = {"empty-line", "line-too-large", "too-large"};
    struct bytes code = queuereader_reply_member(reply->body, "code");
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
        if (bytes_equal_str(code, codes[i]))
            return reply->status == 400 || reply->status == 413;
    return false;
}

/* A duplicate says that the mark is past, not that this publish moved it (reader_plan.h, rule 1). */
static void answered_200(struct relay *r, struct bytes body)
{
    static const struct bytes stored = BYTES_LITERAL("\"duplicate\":false");
    if (body.len && memmem(body.ptr, body.len, stored.ptr, stored.len))
        queuereader_delivered(r->reader);
    else
        queuereader_conflict(r->reader);
}

static void published(enum http_client_result result, const struct http_reply_view *reply, void *arg)
{
    struct relay *r = arg;
    if (no_reply(r, result))
        return;
    char why[200];
    describe(reply, why, sizeof(why));
    struct bytes code = queuereader_reply_member(reply->body, "code");
    if (reply->status == 200)
        answered_200(r, reply->body);
    else if (reply->status == 409 && bytes_equal_str(code, "mark-conflict"))
        queuereader_conflict(r->reader);
    else if (blames_messages(reply))
        queuereader_refused(r->reader, why);
    else
        queuereader_faulted(r->reader, why, QUEUEREADER_BACKOFF);
}

/* Marks make it harmless to send a publish twice. */
static void publish(struct queuereader *qr, const struct queuereader_run *run, void *arg)
{
    (void)qr;
    struct relay *r = arg;
    char target[400];
    snprintf(target, sizeof(target), "/pub?stream=%s&producer=%s&mark=%" PRIu64 "&next=%" PRIu64, r->stream,
        run->queue_id, run->mark, run->next);
    buf_clear(&r->body);
    for (size_t i = 0; i < run->n; i++) {
        buf_append_bytes(&r->body, run->messages[i].text);
        buf_append_char(&r->body, '\n');
    }
    struct http_call_spec spec = {
        .method = "POST",
        .target = target,
        .body = buf_bytes(&r->body),
        .content_type = "application/octet-stream",
        .may_resend = true,
        .arg = r,
        .on_done = published,
    };
    http_client_request(r->pubsub, &spec);
}

/* ---- life ---- */

static void on_trouble(const char *trouble, void *arg)
{
    struct relay *r = arg;
    if (trouble) {
        daemon_set_not_ready(r->daemon, "%s", trouble);
        log_warn("waiting", LOG_S("for", trouble));
    } else if (!daemon_is_draining(r->daemon)) {
        daemon_set_ready(r->daemon);
    }
}

static void on_stopped(enum queuereader_end end, void *arg)
{
    struct relay *r = arg;
    r->stopped = true;
    if (end == QUEUEREADER_STOPPED) {
        daemon_drained(r->daemon);
        return;
    }
    log_error("cannot go on", LOG_S("why", queuereader_end_text(end)),
        LOG_S("queue", options_string(daemon_options(r->daemon), "queue")), LOG_S("stream", r->stream));
    daemon_set_not_ready(r->daemon, "%s", queuereader_end_text(end));
    daemon_fail(r->daemon, EX_DATAERR); /* trying again cannot help: an operator has to say what is right */
}

static struct queuereader *new_reader(struct relay *r, struct options *o)
{
    struct queuereader_config config = {
        .base = daemon_base(r->daemon),
        .queue_url = queue_url(o),
        .queue = options_string(o, "queue"),
        .reader = options_string(o, "reader"),
        .items = (uint64_t)options_int(o, "items"),
        .lease = options_int(o, "lease") * USEC_PER_MSEC,
        .wait = options_int(o, "wait") * USEC_PER_MSEC,
        .timeout = options_int(o, "queue_timeout") * USEC_PER_MSEC,
        .backoff_min = options_int(o, "backoff_min") * USEC_PER_MSEC,
        .backoff_max = options_int(o, "backoff_max") * USEC_PER_MSEC,
        .destination = {.ask = ask, .deliver = publish, .arg = r, .lines = true, .max_bytes = MAX_PUBLISH},
        .on_stopped = on_stopped,
        .on_trouble = on_trouble,
        .arg = r,
    };
    return queuereader_new(&config);
}

#define NUMBER(member)                                                                                       \
    static double read_##member(void *ctx)                                                                   \
    {                                                                                                        \
        return (double)queuereader_numbers(((struct relay *)ctx)->reader).member;                            \
    }
NUMBER(reserved)
NUMBER(delivered)
NUMBER(buried)
NUMBER(runs)
NUMBER(refused)
NUMBER(conflicts)
NUMBER(superseded)
NUMBER(acks_refused)
NUMBER(queue_faults)
NUMBER(destination_faults)

static void register_stats(struct relay *r)
{
    static const struct {
        const char *name, *help;
        stats_gauge_fn *read;
    } rows[] = {
        {"messages_reserved", "Messages leased from the queue", read_reserved},
        {"messages_published", "Messages that the stream holds through this process", read_delivered},
        {"messages_buried", "Messages that cannot be published", read_buried},
        {"publishes", "Publishes answered 200", read_runs},
        {"publishes_refused", "Publishes refused for what they hold, and halved", read_refused},
        {"mark_conflicts", "Publishes that met another mark", read_conflicts},
        {"superseded", "Times that another process took over this reader's name", read_superseded},
        {"acks_refused", "Acknowledgements that the queue would never take", read_acks_refused},
        {"queue_faults", "Requests that the queue did not answer well", read_queue_faults},
        {"pubsub_faults", "Requests that pubsub did not answer well", read_destination_faults},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        stats_gauge(daemon_stats(r->daemon), rows[i].name, NULL, rows[i].help, rows[i].read, r);
}

static int start(struct daemon *d, void **ctx, struct config_error *error)
{
    (void)error;
    struct options *o = daemon_options(d);
    struct relay *r = mem_zalloc(sizeof(*r));
    *ctx = r;
    r->daemon = d;
    r->stream = options_string(o, "stream");
    struct http_client_config client = {
        .base = daemon_base(d),
        .url = pubsub_url(o),
        .max_connections = 1,
        .timeout = options_int(o, "publish_timeout") * USEC_PER_MSEC,
    };
    r->pubsub = http_client_new(&client);
    r->reader = new_reader(r, o);
    register_stats(r);
    daemon_set_not_ready(d, "%s", queuereader_trouble(r->reader));
    return 0;
}

static void drain(void *ctx)
{
    struct relay *r = ctx;
    if (r->stopped)
        daemon_drained(r->daemon);
    else
        queuereader_stop(r->reader);
}

static void stop(void *ctx)
{
    struct relay *r = ctx;
    if (!r)
        return;
    stats_remove_gauges(daemon_stats(r->daemon), r);
    http_client_free(&r->pubsub);
    queuereader_free(&r->reader);
    buf_free(&r->body);
    free(r);
}

int main(int argc, char **argv)
{
    static const struct daemon_spec spec = {
        .name = "queue_to_pubsub",
        .summary = "publishes what is on a queue to a stream, each message exactly once and in order",
        .options = option_rows,
        .default_port = -1,
        .check = check,
        .start = start,
        .drain = drain,
        .stop = stop,
    };
    return daemon_main(&spec, argc, argv);
}
