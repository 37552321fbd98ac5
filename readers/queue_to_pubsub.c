#include "http/client/http_pool.h"
#include "config/peers.h"
#include "readers/reader_program.h"
#include "stream/stream_time.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sysexits.h>

/* Maximum bytes of a publish, well below pubsub's default max_body. */
#define PUBLISH_MAX ((size_t)4 << 20)

struct relay {
    struct daemon *daemon;
    struct reader_program *program;
    struct http_pool *pubsub;  /* one server, which keeps the marks */
    const char *stream;        /* needs no encoding */
    const char *name, *queue;  /* name: NULL: HOST.QUEUE */
    char era[STREAM_ERA_TEXT]; /* of pubsub's clock, in its last reply */
    struct buf body;
};

static const struct option_row option_rows[] = {
    READER_OPTIONS("queue_to_pubsub", "2000"),
    PEER_OPTIONS("pubsub", "pubsub", ""),
    {.name = "stream",
        .type = OPTION_STRING,
        .fallback = "clicks",
        .inherits = "streams",
        .flags = OPTION_FIRST,
        .help = "stream to publish to"},
    {.name = "name",
        .type = OPTION_STRING,
        .help = "name by which people know this producer (default: HOST.QUEUE, with the queue's host)"},
    READER_MS("publish_timeout", "3s", 10, 600000, "timeout of a publish"),
    {.name = NULL},
};

static int check(struct options *o, struct config_error *error)
{
    if (reader_program_check(o, error) || options_check_name(o, "stream", error) ||
        options_check_name(o, "name", error))
        return -1;
    return peer_check(o, "pubsub", error);
}

/* "413 line-too-large: line 1 is longer than ..." */
static void describe(const struct http_reply_view *reply, char *out, size_t size)
{
    struct bytes code = queuereader_reply_member(reply->body, "code");
    struct bytes detail = queuereader_reply_member(reply->body, "detail");
    snprintf(out, size, "%d %.*s%s%.*s", reply->status, (int)(code.len < 64 ? code.len : 64),
        code.len ? code.ptr : "", detail.len ? ": " : "", (int)(detail.len < 100 ? detail.len : 100),
        detail.len ? detail.ptr : "");
}

/* Repeats the run when the pool tries pubsub again. If the pool does not count pubsub as down (401, 404), repeats the
 * run after a backoff. */
static void faulted(struct relay *r, const char *why)
{
    usec_t wait = http_pool_wait(r->pubsub);
    queuereader_faulted(reader_program_reader(r->program), why, wait > 0 ? wait : QUEUEREADER_BACKOFF);
}

static bool no_reply(struct relay *r, enum http_client_result result, const struct http_reply_view *reply)
{
    usec_t time;
    bool is_new_era;
    if (result == HTTP_CLIENT_OK) {
        if (stream_time_read(reply, &time, r->era, &is_new_era))
            queuereader_set_time(reader_program_reader(r->program), time, is_new_era);
        return false;
    }
    if (result != HTTP_CLIENT_CANCELLED) /* by http_pool_free: the reader is freed next */
        faulted(r, http_client_strerror(result));
    return true;
}

/* So that the queue knows which messages this stream has. */
static void name_stream(struct relay *r, const struct http_reply_view *reply)
{
    struct bytes id = queuereader_reply_member(reply->body, "id");
    if (id.len > 0)
        queuereader_set_destination(reader_program_reader(r->program), id);
}

static void asked(enum http_client_result result, const struct http_reply_view *reply, void *arg)
{
    struct relay *r = arg;
    uint64_t mark = 0;
    if (no_reply(r, result, reply))
        return;
    bool unknown = reply->status == 404 &&
                   bytes_equal_str(queuereader_reply_member(reply->body, "code"), "unknown-stream");
    if (unknown ||
        (reply->status == 200 && bytes_to_u64(queuereader_reply_member(reply->body, "mark"), &mark))) {
        name_stream(r, reply);
        queuereader_asked(
            reader_program_reader(r->program), mark, queuereader_reply_member(reply->body, "opening"));
        return;
    }
    char why[200];
    describe(reply, why, sizeof(why));
    faulted(r, why);
}

static void ask(struct queuereader *qr, const char *queue_id, void *arg)
{
    (void)qr;
    struct relay *r = arg;
    char target[300];
    snprintf(target, sizeof(target), "/producer?stream=%s&producer=%s", r->stream, queue_id);
    struct http_call_spec spec = {
        .method = "GET", .target = target, .arg = r, .on_done = asked, .may_resend = true};
    http_pool_request(http_pool_single(r->pubsub), &spec);
}

static void published(enum http_client_result result, const struct http_reply_view *reply, void *arg)
{
    struct relay *r = arg;
    if (no_reply(r, result, reply))
        return;
    static const struct bytes stored = BYTES_LITERAL("\"duplicate\":false");
    struct queuereader *reader = reader_program_reader(r->program);
    struct bytes body = reply->body, code = queuereader_reply_member(body, "code");
    /* Only these errors mean that the lines are wrong. If messages were buried after any other refusal, for example
     * by a proxy, the whole queue would be buried. */
    bool blames_lines = bytes_equal_str(code, "empty-line") || bytes_equal_str(code, "line-too-large") ||
                        bytes_equal_str(code, "too-large");
    char why[200];
    describe(reply, why, sizeof(why));
    if (reply->status == 200)
        name_stream(r, reply);
    if (reply->status == 200 && body.len && memmem(body.ptr, body.len, stored.ptr, stored.len))
        queuereader_delivered(reader);
    else if (reply->status ==
             200) /* a duplicate: perhaps another reader has changed the mark (reader_plan.h, rule 1) */
        queuereader_conflict(reader);
    else if (reply->status == 409 && bytes_equal_str(code, "mark-conflict"))
        queuereader_conflict(reader);
    else if ((reply->status == 400 || reply->status == 413) && blames_lines)
        queuereader_refused(reader, why);
    else
        faulted(r, why);
}

/* &until=, so that pubsub knows that this producer states it even if the time is not known. */
static void append_until(const struct relay *r, const struct queuereader_run *run, char *target, size_t size)
{
    size_t len = strlen(target);
    int host = NAME_LEN_MAX - 1 - (int)strlen(r->queue); /* at most so many bytes of it */
    len += (size_t)snprintf(target + len, size - len, "&until=%" PRId64 ".%06" PRId64 "&era=%s",
        run->until / USEC_PER_SEC, run->until % USEC_PER_SEC, r->era);
    if (r->name)
        snprintf(target + len, size - len, "&name=%s", r->name);
    else if (run->host[0] && host > 0)
        snprintf(target + len, size - len, "&name=%.*s.%s", host, run->host, r->queue);
}

static void stated(enum http_client_result result, const struct http_reply_view *reply, void *arg)
{
    struct relay *r = arg;
    if (no_reply(r, result, reply))
        return;
    char why[200];
    describe(reply, why, sizeof(why));
    if (reply->status == 200)
        queuereader_stated(reader_program_reader(r->program));
    else if (reply->status == 409)
        queuereader_conflict(reader_program_reader(r->program));
    else
        faulted(r, why);
}

static void state(struct queuereader *qr, const struct queuereader_run *run, void *arg)
{
    (void)qr;
    struct relay *r = arg;
    char target[500];
    snprintf(target, sizeof(target), "/pub?stream=%s&producer=%s&mark=%" PRIu64, r->stream, run->queue_id,
        run->mark);
    append_until(r, run, target, sizeof(target));
    struct http_call_spec spec = {.method = "POST", .target = target, .arg = r, .on_done = stated};
    http_pool_request(http_pool_single(r->pubsub), &spec);
}

/* It does no harm if the request is sent twice, because pubsub recognizes the second copy by its mark. */
static void publish(struct queuereader *qr, const struct queuereader_run *run, void *arg)
{
    (void)qr;
    struct relay *r = arg;
    char target[500 + MARK_LABEL_MAX];
    snprintf(target, sizeof(target), "/pub?stream=%s&producer=%s&mark=%" PRIu64 "&next=%" PRIu64 "%s%s",
        r->stream, run->queue_id, run->mark, run->next, run->opening[0] ? "&opening=" : "", run->opening);
    append_until(r, run, target, sizeof(target));
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
    http_pool_request(http_pool_single(r->pubsub), &spec);
}

static int start(struct daemon *d, void **ctx, struct config_error *error)
{
    struct options *o = daemon_options(d);
    struct relay *r = mem_zalloc(sizeof(*r));
    struct queuereader_destination pubsub = {
        .ask = ask, .deliver = publish, .state = state, .arg = r, .lines = true, .max_bytes = PUBLISH_MAX};
    *ctx = r;
    r->daemon = d;
    r->stream = options_string(o, "stream");
    r->name = options_string(o, "name");
    r->queue = options_string(o, "queue");
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
