#include "base/log.h"
#include "base/text_hash.h"
#include "json/json_fields.h"
#include "json/json_path.h"
#include "http/client/http_pool.h"
#include "readers/reader_program.h"
#include "readers/sns_publish.h"

#include <event2/event.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sysexits.h>

#define BODY_MAX ((size_t)4 << 20) /* maximum bytes of a body with several messages */

/* The request of a run. */
struct sending {
    struct sender *sender;
    struct dispatch_run *run;
    struct http_pool_host *host;
    struct http_call *call;
};

/* A message that a host refused when it was sent alone. The message is also sent to the other hosts. */
struct refused {
    uint64_t id;    /* 0: none */
    uint64_t hosts; /* set of hosts that refused the message (http_pool_host_bit) */
};

struct sender {
    struct reader_program *program;
    struct http_pool *pool;
    bool post;
    bool lines; /* an LF follows each message */
    const char *content_type;
    const char *sns_topic, *credentials; /* NULL: messages are sent as they are */
    struct json_fields *key;             /* field of --order-by; NULL: the option is not set */
    size_t parallel;
    struct buf body, target, headers; /* of the request that is being made */
    struct refused *refused;          /* array of `parallel` refused messages */
    size_t next_refused;              /* index of the oldest refused message */
};

static const struct option_row option_rows[] = {
    READER_OPTIONS("queue_to_http", "500"),
    SETTING_STRING("destination", HTTP_POOL_URLS_HELP "%s in the target stands for the escaped message"),
    SETTING_STRING(
        "destination_token_file", "file with the token that each destination gets as Authorization: Bearer"),
    SETTING_CHOICE("method", "POST", "POST|GET", "method of the requests"),
    SETTING_STRING("content_type", "content type of a POST", .fallback = "application/octet-stream"),
    SETTING_INT("parallel", "1", 1, 256,
        "maximum requests in progress; with more than one, messages have no order unless order_by is set"),
    SETTING_STRING(
        "order_by", "field of JSON messages, such as user.id; messages with equal values are sent in order"),
    SETTING_BOOL(
        "shared", "read the queue together with other shared readers, without a name", .fallback = "false"),
    READER_BATCH_OPTIONS("1", "POST, in which an LF follows each message (1: one message without an LF)"),
    READER_MS("timeout", "3s", 10, 600000, "timeout of a request"),
    SETTING_STRING("sns_topic", "ARN of an Amazon SNS topic: each message is a signed Publish to the "
                                "destination, such as http://sns.eu-west-1.amazonaws.com"),
    SETTING_STRING("aws_credentials_file",
        "file with aws_access_key_id and aws_secret_access_key, read for each request", .needs = "sns_topic"),
    {.name = NULL},
};

static struct http_pool_config pool_config(const struct options *o)
{
    return (struct http_pool_config){
        .urls = options_string(o, "destination"),
        .max_connections = (int)options_int(o, "parallel"),
        .connect_timeout = options_int(o, "timeout") * USEC_PER_MSEC,
        .timeout = options_int(o, "timeout") * USEC_PER_MSEC,
        .backoff_min = options_int(o, "backoff_min") * USEC_PER_MSEC,
        .backoff_max = options_int(o, "backoff_max") * USEC_PER_MSEC,
        .tolerance = DISPATCHER_PATIENCE,
        .max_reply = HTTP_POOL_REPLY_MAX,
        .cut_reply = true,
    };
}

static int check_sns(struct options *o, struct error *error)
{
    const char *topic = options_text(o, "sns_topic");
    if (!topic)
        return 0;
    if (!sns_topic_is_valid(topic))
        return options_refuse(o, "sns_topic", error, "is not arn:aws:sns:REGION:ACCOUNT:NAME");
    if (!options_text(o, "aws_credentials_file"))
        return options_refuse(o, "aws_credentials_file", error, "required with sns_topic");
    if (options_int(o, "batch") > 1 || strcmp(options_string(o, "method"), "POST") != 0)
        return options_refuse(o, "sns_topic", error, "requires batch 1 and the method POST");
    if (strstr(options_string(o, "destination"), "%s") || options_text(o, "destination_token_file"))
        return options_refuse(
            o, "sns_topic", error, "excludes %%s in the destination and destination_token_file");
    return 0;
}

static int check(struct options *o, struct error *error)
{
    if (reader_program_check_batch(o, error) != 0)
        return -1;
    const char *type = options_string(o, "content_type");
    if (strpbrk(type, "\r\n"))
        return options_refuse(o, "content_type", error, "not a valid header value");
    if (check_sns(o, error) != 0)
        return -1;
    const char *field = options_text(o, "order_by");
    if (field && !json_path_is_valid(bytes_str(field)))
        return options_refuse(o, "order_by", error, "not a field");
    if (options_bool(o, "shared") && options_is_set(o, "reader"))
        return options_refuse(o, "shared", error, "a shared reader has no name: remove reader");
    struct http_pool_config config = pool_config(o);
    struct http_pool *pool = http_pool_new(&config, error->text, sizeof error->text);
    if (!pool)
        return options_refuse(o, "destination", error, "%s", error->text);
    bool post = strcmp(options_string(o, "method"), "POST") == 0;
    struct buf target = {0};
    int rc = 0;
    for (size_t i = 0; i < http_pool_size(pool) && rc == 0; i++) {
        const struct http_pool_host *h = http_pool_at(pool, i);
        bool placeholder = http_pool_host_has_placeholder(h);
        const char *wrong = NULL;
        if (!post && !placeholder)
            wrong = "with method GET the target must contain %s";
        else if (placeholder && options_int(o, "batch") > 1)
            wrong = "a target with %s takes one message: batch must be 1";
        http_pool_fill_target(h, BYTES_NONE, &target);
        if (options_text(o, "sns_topic") && strcmp(target.ptr, "/") != 0)
            wrong = "with sns_topic the address has neither a path nor a query";
        if (wrong)
            rc = options_refuse(o, "destination", error, "%s: %s", http_pool_host_url(h), wrong);
    }
    buf_free(&target);
    http_pool_free(&pool);
    return rc;
}

static struct refused *find_refused(struct sender *s, uint64_t id)
{
    size_t i = 0;
    while (i < s->parallel && s->refused[i].id != id)
        i++;
    return i < s->parallel ? &s->refused[i] : NULL;
}

/* Records that the host refused the message, and returns all hosts that refused the message. */
static uint64_t add_refused(struct sender *s, uint64_t id, const struct http_pool_host *host)
{
    struct refused *r = find_refused(s, id);
    if (!r) {
        r = &s->refused[s->next_refused++ % s->parallel];
        *r = (struct refused){.id = id};
    }
    r->hosts |= http_pool_host_bit(host);
    return r->hosts;
}

static void answered(enum http_client_result result, const struct http_reply_view *reply, void *arg)
{
    struct sending *g = arg;
    struct sender *s = g->sender;
    struct dispatcher *x = reader_program_dispatcher(s->program);
    struct dispatch_run *run = g->run;
    char why[200], text[300];
    struct http_pool_host *host = g->host;
    free(g);
    if (result == HTTP_CLIENT_CANCELLED)
        return;
    http_pool_describe(reply, why, sizeof why);
    snprintf(text, sizeof text, "%s: %s", http_pool_host_url(host),
        result == HTTP_CLIENT_OK ? why : http_client_strerror(result));
    bool fault = http_pool_is_fault(result, reply->status), alone = run->n == 1;
    bool poison = !fault && http_pool_is_poison(reply->status);
    uint64_t id = run->messages[0]->id;
    /* A refused single message is also sent to the other hosts, because hosts may have different limits. */
    if (poison && alone && http_pool_next(s->pool, add_refused(s, id, host))) {
        dispatcher_again(x, run);
        return;
    }
    struct refused *refused = alone ? find_refused(s, id) : NULL;
    if (refused && !fault)
        refused->id = 0;
    if (fault && http_pool_host_is_up(host))
        dispatcher_failed(x, run, text);
    else if (fault && http_pool_wait(s->pool) == 0)
        dispatcher_again(x, run); /* another host is up */
    else if (fault)
        dispatcher_down(x, run, text, http_pool_wait(s->pool));
    else if (reply->status >= 200 && reply->status < 300)
        dispatcher_delivered(x, run);
    else if (poison)
        dispatcher_refused(x, run, why);
    else /* 301, 401 or 404: the operator must fix the settings */
        dispatcher_down(x, run, why, QUEUEREADER_BACKOFF);
}

static void cancel(struct dispatch_run *run, void *arg)
{
    (void)arg;
    http_call_cancel(((struct sending *)run->user)->call); /* answered() frees the sending */
}

/* Sets body and headers of an SNS Publish. Returns -1 with the error if the keys cannot be read. */
static int make_publish(struct sender *s, const struct http_pool_host *host, struct dispatcher *x,
    const struct message *m, struct error *error)
{
    char *id = mem_printf("%s-%" PRIu64, dispatcher_queue_id(x), m->id);
    sns_append_body(s->sns_topic, m->text, id, &s->body);
    free(id);
    return sns_append_headers(s->sns_topic, s->credentials, http_pool_host_header(host), buf_bytes(&s->body),
        clock_wall(), &s->headers, error);
}

static void deliver(struct dispatcher *x, struct dispatch_run *run, void *arg)
{
    struct sender *s = arg;
    usec_t wait = http_pool_wait(s->pool);
    if (wait > 0) {
        dispatcher_later(x, run, wait);
        return;
    }
    struct refused *refused = run->n == 1 ? find_refused(s, run->messages[0]->id) : NULL;
    struct http_pool_host *other = http_pool_next(s->pool, refused ? refused->hosts : 0);
    struct http_pool_host *host = other ? other : http_pool_next(s->pool, 0);
    struct error error;
    buf_clear(&s->body);
    buf_clear(&s->headers); /* headers by which a destination can recognize repeated messages */
    buf_printf(&s->headers, "X-Millrace-Queue-Id: %s\r\nX-Millrace-Ids: ", dispatcher_queue_id(x));
    for (size_t i = 0, end; i < run->n; i = end) {
        for (end = i + 1; end < run->n && run->messages[end]->id == run->messages[i]->id + (end - i);)
            end++;
        buf_printf(&s->headers, "%s%" PRIu64 "-%" PRIu64, i ? "," : "", run->messages[i]->id,
            run->messages[end - 1]->id);
    }
    buf_append_str(&s->headers, "\r\n");
    for (size_t i = 0; i < run->n && s->post && !s->sns_topic; i++) {
        buf_append_bytes(&s->body, run->messages[i]->text);
        if (s->lines)
            buf_append_char(&s->body, '\n');
    }
    http_pool_fill_target(host, run->messages[0]->text, &s->target);
    if (s->sns_topic && make_publish(s, host, x, run->messages[0], &error) != 0) {
        dispatcher_down(x, run, error.text, QUEUEREADER_BACKOFF);
        return;
    }
    buf_append_char(&s->headers, '\0');
    struct sending *g = run->user = mem_alloc(sizeof *g);
    *g = (struct sending){.sender = s, .run = run, .host = host};
    struct http_call_spec spec = {
        .method = s->post ? "POST" : "GET",
        .target = s->target.ptr,
        .content_type = s->post ? s->content_type : NULL,
        .body = buf_bytes(&s->body),
        .headers = s->headers.ptr,
        .arg = g,
        .on_done = answered,
    };
    g->call = http_pool_request(host, &spec);
}

/* Returns a hash of the field's value. All messages without the field, and all messages that are not JSON objects,
 * share one lane. */
static uint64_t key_of(struct bytes text, void *arg)
{
    struct sender *s = arg;
    struct json_value v;
    const char *reason;
    if (json_fields_extract(s->key, text, &v, &reason) != 0)
        return 0;
    return v.type == JSON_STRING ? text_hash(v.v.string)
           : v.type == JSON_BOOL ? 1 + (uint64_t)v.v.boolean
           : v.type == JSON_MISSING || v.type == JSON_NULL || v.type == JSON_ARRAY || v.type == JSON_OBJECT
               ? 0
               : text_hash(bytes_of(&v.v.u64, sizeof v.v.u64));
}

static int start(struct daemon *d, void **ctx, struct error *error)
{
    struct options *o = daemon_options(d);
    struct sender *s = mem_zalloc(sizeof *s);
    const char *field = options_text(o, "order_by");
    *ctx = s;
    s->post = strcmp(options_string(o, "method"), "POST") == 0;
    s->lines = options_int(o, "batch") > 1;
    s->sns_topic = options_text(o, "sns_topic");
    s->credentials = options_text(o, "aws_credentials_file");
    s->content_type = s->sns_topic ? SNS_CONTENT_TYPE : options_string(o, "content_type");
    s->parallel = (size_t)options_int(o, "parallel");
    s->refused = mem_zalloc(s->parallel * sizeof *s->refused);
    s->key = field ? json_fields_new(&field, 1) : NULL;
    struct http_pool_config pool = pool_config(o);
    s->pool = daemon_pool_new(d, options_string(o, "destination_token_file"), &pool, error);
    if (!s->pool)
        return EX_CONFIG;
    struct dispatcher_config config = {
        .lines = s->lines,
        .max_bytes = BODY_MAX,
        .parallel = s->parallel,
        .order = field             ? DISPATCH_BY_KEY
                 : s->parallel > 1 ? DISPATCH_IN_ANY_ORDER
                                   : DISPATCH_IN_ORDER,
        .key = key_of,
        .is_shared = options_bool(o, "shared"),
        .deliver = deliver,
        .cancel = cancel,
        .arg = s,
    };
    s->program = reader_program_new_dispatcher(d, &config, error);
    return s->program ? 0 : EX_CONFIG;
}

static void drain(void *ctx)
{
    reader_program_drain(((struct sender *)ctx)->program);
}

static bool abort_drain(void *ctx)
{
    return reader_program_abort(((struct sender *)ctx)->program);
}

static void stop(void *ctx)
{
    struct sender *s = ctx;
    if (!s)
        return;
    reader_program_free(&s->program);
    http_pool_free(&s->pool);
    buf_free(&s->body);
    buf_free(&s->target);
    buf_free(&s->headers);
    json_fields_free(&s->key);
    free(s->refused);
    free(s);
}

int main(int argc, char **argv)
{
    static const struct daemon_spec spec = {
        .name = "queue_to_http",
        .summary = "sends the messages of a queue to an HTTP server, or to several in turn",
        .options = option_rows,
        .default_port = -1,
        .check = check,
        .start = start,
        .drain = drain,
        .abort_drain = abort_drain,
        .stop = stop,
    };
    return daemon_main(&spec, argc, argv);
}
