#include "http/client/http_pool.h"
#include "readers/reader_program.h"

#include <event2/event.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sysexits.h>

#define BODY_MAX ((size_t)4 << 20) /* maximum bytes of a request's body, unless one message is longer */

struct sender {
    struct reader_program *program;
    struct http_pool *pool;
    bool post;
    bool lines; /* an LF follows each message */
    const char *content_type;
    struct queuereader_run run; /* under way */
    struct buf body, target, headers;
    struct http_pool_host *host;
    struct http_call *call; /* NULL: none */
    uint64_t refused_id;    /* the last message that was refused when it was sent alone */
    uint64_t refusers;      /* the hosts that refused that message (http_pool_host_bit) */
};

static const struct option_row option_rows[] = {
    READER_OPTIONS("queue_to_http", "500"),
    {.name = "destination",
        .type = OPTION_STRING,
        .help = HTTP_POOL_URLS_HELP "%s in the target stands for the escaped message"},
    {.name = "destination_token_file",
        .type = OPTION_STRING,
        .help = "file with the token that each destination gets as Authorization: Bearer"},
    {.name = "method",
        .type = OPTION_CHOICE,
        .fallback = "POST",
        .choices = "POST|GET",
        .help = "method of the requests"},
    {.name = "content_type",
        .type = OPTION_STRING,
        .fallback = "application/octet-stream",
        .help = "content type of a POST"},
    READER_BATCH_OPTIONS("1", "POST, each followed by an LF (1: the message alone, without LF)"),
    READER_MS("timeout", "3s", 10, 600000, "timeout of a request"),
    {.name = NULL},
};

static struct http_pool_config pool_config(const struct options *o)
{
    return (struct http_pool_config){
        .urls = options_string(o, "destination"),
        .max_connections = 1,
        .connect_timeout = options_int(o, "timeout") * USEC_PER_MSEC,
        .timeout = options_int(o, "timeout") * USEC_PER_MSEC,
        .backoff_min = options_int(o, "backoff_min") * USEC_PER_MSEC,
        .backoff_max = options_int(o, "backoff_max") * USEC_PER_MSEC,
        .max_reply = HTTP_POOL_REPLY_MAX,
        .cut_reply = true,
    };
}

static int check(struct options *o, struct config_error *error)
{
    char why[300];
    if (reader_program_check_batch(o, error) != 0)
        return -1;
    const char *type = options_string(o, "content_type");
    if (strpbrk(type, "\r\n"))
        return options_refuse(o, "content_type", error, "not a valid header value");
    struct http_pool_config config = pool_config(o);
    struct http_pool *pool = http_pool_new(&config, why, sizeof(why));
    if (!pool)
        return options_refuse(o, "destination", error, "%s", why);
    bool post = strcmp(options_string(o, "method"), "POST") == 0;
    int rc = 0;
    for (size_t i = 0; i < http_pool_size(pool) && rc == 0; i++) {
        const struct http_pool_host *h = http_pool_at(pool, i);
        bool placeholder = http_pool_host_has_placeholder(h);
        const char *wrong = NULL;
        if (!post && !placeholder)
            wrong = "with method GET the target must contain %s";
        else if (placeholder && options_int(o, "batch") > 1)
            wrong = "a target with %s takes one message: batch must be 1";
        if (wrong)
            rc = options_refuse(o, "destination", error, "%s: %s", http_pool_host_url(h), wrong);
    }
    http_pool_free(&pool);
    return rc;
}

static void answered(enum http_client_result result, const struct http_reply_view *reply, void *arg)
{
    struct sender *s = arg;
    struct queuereader *reader = reader_program_reader(s->program);
    char why[200], text[300];
    s->call = NULL;
    if (result == HTTP_CLIENT_CANCELLED)
        return; /* cancelled by http_pool_free, or by abort_drain, which itself reports the fault */
    http_pool_describe(reply, why, sizeof(why));
    bool poison = result == HTTP_CLIENT_OK && http_pool_is_poison(reply->status);
    if (poison && s->run.n == 1) {
        s->refused_id = s->run.messages[0].id;
        s->refusers |= http_pool_host_bit(s->host);
    }
    bool fault = http_pool_is_fault(result, reply->status);
    /* After a fault, the run is repeated at once on another host if one is up. A single message that was refused is
     * also sent to another host, because hosts may have different limits. */
    if ((fault && http_pool_wait(s->pool) == 0) ||
        (poison && s->run.n == 1 && http_pool_next(s->pool, s->refusers))) {
        queuereader_again(reader);
    } else if (fault) {
        snprintf(text, sizeof(text), "%s: %s", http_pool_host_url(s->host),
            result == HTTP_CLIENT_OK ? why : http_client_strerror(result));
        queuereader_faulted(reader, text, http_pool_wait(s->pool));
    } else if (reply->status >= 200 && reply->status < 300) {
        queuereader_delivered(reader);
    } else if (poison) {
        queuereader_refused(reader, why);
    } else { /* 301, 401 or 404: the operator must fix the settings */
        queuereader_faulted(reader, why, QUEUEREADER_BACKOFF);
    }
}

static void deliver(struct queuereader *reader, const struct queuereader_run *run, void *arg)
{
    struct sender *s = arg;
    usec_t wait = http_pool_wait(s->pool);
    if (wait > 0) {
        queuereader_faulted(reader, "every destination is down", wait);
        return;
    }
    s->run = *run;
    if (run->n > 1 || run->messages[0].id != s->refused_id)
        s->refusers = 0;
    struct http_pool_host *other = http_pool_next(s->pool, s->refusers);
    s->host = other ? other : http_pool_next(s->pool, 0);
    buf_clear(&s->body);
    for (size_t i = 0; i < run->n && s->post; i++) {
        buf_append_bytes(&s->body, run->messages[i].text);
        if (s->lines)
            buf_append_char(&s->body, '\n');
    }
    http_pool_fill_target(s->host, run->messages[0].text, &s->target);
    buf_clear(&s->headers); /* with these headers a destination can recognize repeated messages */
    buf_printf(&s->headers, "X-Millrace-Queue-Id: %s\r\nX-Millrace-Ids: %" PRIu64 "-%" PRIu64 "\r\n",
        run->queue_id, run->messages[0].id, run->messages[run->n - 1].id);
    buf_append_char(&s->headers, '\0');
    struct http_call_spec spec = {
        .method = s->post ? "POST" : "GET",
        .target = s->target.ptr,
        .content_type = s->post ? s->content_type : NULL,
        .body = buf_bytes(&s->body),
        .headers = s->headers.ptr,
        .arg = s,
        .on_done = answered,
    };
    s->call = http_pool_request(s->host, &spec);
}

static int start(struct daemon *d, void **ctx, struct config_error *error)
{
    struct options *o = daemon_options(d);
    struct sender *s = mem_zalloc(sizeof(*s));
    *ctx = s;
    s->post = strcmp(options_string(o, "method"), "POST") == 0;
    s->lines = options_int(o, "batch") > 1;
    s->content_type = options_string(o, "content_type");
    struct http_pool_config pool = pool_config(o);
    s->pool = daemon_pool_new(d, options_string(o, "destination_token_file"), &pool, error);
    if (!s->pool)
        return EX_CONFIG;
    struct queuereader_destination destination = {
        .deliver = deliver,
        .arg = s,
        .lines = s->lines,
        .max_bytes = BODY_MAX,
    };
    s->program = reader_program_new(d, &destination, error);
    return s->program ? 0 : EX_CONFIG;
}

static void drain(void *ctx)
{
    reader_program_drain(((struct sender *)ctx)->program);
}

static bool abort_drain(void *ctx)
{
    struct sender *s = ctx;
    bool sending = s->call != NULL;
    if (sending) {
        http_call_cancel(s->call);
        queuereader_faulted(
            reader_program_reader(s->program), "no answer before the stop", QUEUEREADER_BACKOFF);
    }
    return reader_program_cut_short(s->program, sending);
}

static void stop(void *ctx)
{
    struct sender *s = ctx;
    if (!s)
        return;
    http_pool_free(&s->pool);
    reader_program_free(&s->program);
    buf_free(&s->body);
    buf_free(&s->target);
    buf_free(&s->headers);
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
