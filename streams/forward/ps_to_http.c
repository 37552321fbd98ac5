/* ps_to_http: posts a stream to HTTP servers, at least once (forwarder.h), or into a millrace stream or queue, exactly once
 * (republisher.h).
 *
 * Lines are sent to HTTP servers in batches. If a destination's URL contains %s, each request sends one line, which is
 * escaped and replaces the %s. Several destinations take turns. A failing destination counts as down for a while
 * (http_pool.h).
 *
 * 1. A batch is delivered once a destination answers it with 2xx. If the failed destination does not count as down, the
 *    next attempt is a second later.
 * 2. With skip_refused, an answer that blames the request (http_pool_is_poison) refuses the batch; without skip_refused, it is
 *    a failure. A single line is refused once every destination that is up has refused it. */
#include "base/io.h"
#include "base/log.h"
#include "base/xxh3.h"
#include "http/client/http_pool.h"
#include "streams/filter/republisher.h"
#include "streams/forward/forwarder.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sysexits.h>

/* Delay after a host has refused lines or answered 302 or 408. The pool does not count such a host as down. */
#define REFUSED_RETRY (1 * USEC_PER_SEC)

static const struct option_row option_rows[] = {
    FORWARDER_OPTIONS,
    SETTING_STRING("destination", HTTP_POOL_URLS_HELP "%s is replaced by one line in escaped form",
        .flags = OPTION_LIST),
    SETTING_STRING(
        "destination_token_file", "file with the token that each destination gets as Authorization: Bearer"),
    SETTING_STRING("state",
        "state file with the offset below which all lines are delivered (default: "
        ".ps_to_http-STREAM-HASH.json in the working directory, with a HASH of pubsub_url and destination)"),
    SETTING_CHOICE("method", "POST", "POST|GET", "method of the requests"),
    SETTING_STRING("content_type", "content type of a POST", .fallback = "application/x-ndjson"),
    SETTING_INT("batch", "100", 1, 1000000, "maximum lines per request"),
    SETTING_BOOL("bare_line", "with batch=1: send the line without its LF"),
    SETTING_SIZE("batch_bytes", "1M", 1, 64 << 20, "maximum bytes per request, unless one line is longer"),
    SETTING_DURATION(
        "gather", "0", 0, 60000, "ms", "longest time that a line waits for further lines of its batch"),
    SETTING_INT(
        "parallel", "1", 1, 256, "concurrent requests; with more than one, lines may arrive out of order"),
    SETTING_DURATION("timeout", "10s", 10, 600000, "ms", "timeout of a request"),
    SETTING_BOOL("skip_refused",
        "skip a line (rejects, poison_limit), instead of retrying the line, once every "
        "reachable destination answers 400, 413 or 422"),
    SETTING_STRING(
        "destination_get_url", "URL with %s for a GET of each line", .means = "destination method=GET"),
    SETTING_STRING("destination_post_url", "URL for a POST of each line",
        .means = "destination method=POST batch=1 bare_line=true"),
    SETTING_BOOL("round_robin",
        "required if several destination_get_url or destination_post_url are set; these URLs take turns"),
    SETTING_STRING("max_silence", "no effect: ps_to_http notices a dead connection to pubsub and reconnects",
        .means = ""),
    SETTING_STRING("to_stream",
        "stream of another pubsub that gets the lines instead of destination; each line is stored once"),
    SETTING_STRING("to_queue",
        "queue of a simplequeue that gets the lines instead of destination; each line is stored once"),
    SETTING_STRING("to_url", "address of the pubsub or simplequeue for to_stream or to_queue"),
    SETTING_STRING("to_token_file", "file with the token for to_url"),
    SETTING_STRING("producer", "producer name at to_url (default: the id of the stream)"),
    {.name = NULL},
};

/* The attempts of a batch. */
struct attempt {
    const struct http_pool_host *host; /* of the last attempt */
    uint64_t refusers; /* for a single line: bits of the hosts that refused it (http_pool_host_bit) */
};

struct program {
    struct daemon *daemon;
    struct forwarder *forwarder;     /* NULL: to_stream or to_queue is set */
    struct http_pool *pool;          /* the destinations, or the server of to_url */
    struct http_client *source;      /* only for the republisher */
    struct republisher *republisher; /* NULL: to_stream and to_queue are not set */
    bool bare_line;
    bool get; /* requests are GETs with the line in the URL, not POSTs */
    bool skip_refused;
    const char *content_type;
};

/* Fails if a setting in `names` is set, because the setting would have no effect. */
static int refuse_settings(struct options *o, const char *const *names, const char *why, struct error *error)
{
    for (; *names != NULL; names++)
        if (options_is_set(o, *names))
            return options_refuse(o, *names, error, "%s", why);
    return 0;
}

static int set_default_state(struct options *o, struct error *error)
{
    struct buf path = {0};
    buf_printf(&path, "%s %s", peer_url(o, "pubsub"), options_text(o, "destination"));
    uint64_t hash = XXH3_64bits(path.ptr, path.len);
    buf_clear(&path);
    buf_printf(&path, ".ps_to_http-%s-%016" PRIx64 ".json", options_string(o, "stream"), hash);
    const char *kept = options_keep(o, buf_bytes(&path));
    buf_free(&path);
    log_warn("state is not set: the state is stored in the working directory", LOG_S("path", kept));
    return options_inherit(o, "state", kept, "default", error);
}

static int check_destination(struct options *o, struct error *error)
{
    static const char *const of_our_own[] = {"to_url", "to_token_file", "producer", NULL};
    static const char *const of_refusals[] = {
        "rejects", "rejects_max_bytes", "rejects_max_age", "poison_limit", NULL};
    struct http_pool_config config = {.urls = options_text(o, "destination"), .max_connections = 1};
    struct http_pool *pool = http_pool_new(&config, error->text, sizeof error->text);
    if (!pool)
        return options_refuse(o, "destination", error, "%s", error->text);
    bool all_placeholders = http_pool_without_placeholder(pool) == NULL, several = http_pool_size(pool) > 1;
    http_pool_free(&pool);
    if (several && !options_bool(o, "round_robin") &&
        (options_is_set(o, "destination_get_url") || options_is_set(o, "destination_post_url")))
        return options_refuse(o, "destination", error,
            "several destinations take turns: set --round-robin; to send each line to all destinations, "
            "start one ps_to_http per destination");
    if (strcmp(options_string(o, "method"), "GET") == 0 && !all_placeholders)
        return options_refuse(o, "destination", error, "method GET requires %%s in each URL");
    if (strstr(options_text(o, "destination"), "%s") && options_is_set(o, "batch") &&
        options_int(o, "batch") > 1)
        return options_refuse(
            o, "batch", error, "a request to a destination with %%s has one line: omit batch");
    if (options_bool(o, "bare_line") && options_int(o, "batch") > 1)
        return options_refuse(o, "bare_line", error, "requires batch=1");
    if (refuse_settings(o, of_our_own, "only allowed with to_stream or to_queue", error) != 0)
        return -1;
    if (!options_text(o, "state") && set_default_state(o, error) != 0)
        return -1;
    if (!options_bool(o, "skip_refused") &&
        refuse_settings(o, of_refusals, "requires skip_refused", error) != 0)
        return -1;
    if (strpbrk(options_string(o, "content_type"), "\r\n"))
        return options_refuse(o, "content_type", error, "not a valid header value");
    return forwarder_check(o, error);
}

static int check(struct options *o, struct error *error)
{
    static const char *const of_strangers[] = {"state", "destination_token_file", "method", "content_type",
        "batch", "bare_line", "batch_bytes", "gather", "parallel", "skip_refused", "poison_limit", "rejects",
        "rejects_max_bytes", "rejects_max_age", "commit_every", "accept_loss", "accept_loss_from", NULL};
    struct url_address address;
    int ways = (options_text(o, "destination") != NULL) + (options_text(o, "to_stream") != NULL) +
               (options_text(o, "to_queue") != NULL);
    const char *to = options_text(o, "to_url");
    if (stream_program_check(o, error) != 0 || options_check_name(o, "to_stream", error) != 0 ||
        options_check_name(o, "to_queue", error) != 0 || options_check_name(o, "producer", error) != 0)
        return -1;
    if (ways != 1)
        return options_refuse(
            o, "destination", error, "set exactly one of --destination, --to_stream and --to_queue");
    if (options_text(o, "destination"))
        return check_destination(o, error);
    if (refuse_settings(o, of_strangers, "only allowed with destination", error) != 0)
        return -1;
    if (!to || url_address_parse(to, 80, &address) != 0)
        return options_refuse(o, "to_url", error, "required: http://HOST:PORT or unix:PATH");
    return stream_program_check_target(o, to, error);
}

static void forget(struct forward_batch *b)
{
    free(b->data);
    b->data = NULL;
}

static void answered(enum http_client_result result, const struct http_reply_view *reply, void *arg)
{
    struct forward_batch *b = arg;
    struct program *p = forwarder_arg(b->forwarder);
    struct attempt *a = b->data;
    int status = result == HTTP_CLIENT_OK ? reply->status : 0;
    const char *url = http_pool_host_url(a->host);
    char why[180], text[400];
    if (result == HTTP_CLIENT_CANCELLED)
        return;
    if (status >= 200 && status < 300) {
        /* Only an answer can show that the destination is the source stream. Before the answer, the stream has already
         * stored the batch. */
        struct stream_place place;
        stream_place_read(reply, &place);
        if (stream_place_is_same(&place, forwarder_place(b->forwarder)))
            stream_program_fail_into_itself(p->daemon);
        forwarder_delivered(b);
        return;
    }
    bool is_fault = http_pool_is_fault(result, status);
    http_pool_describe(reply, why, sizeof why);
    if (result == HTTP_CLIENT_OK && !is_fault)
        snprintf(text, sizeof text, "%.200s %s", url, why);
    else if (result == HTTP_CLIENT_OK)
        snprintf(text, sizeof text, "%.200s answered %d", url, status);
    else
        snprintf(text, sizeof text, "%.200s: %s", url, http_client_strerror(result));
    if (!http_pool_is_poison(status) || !p->skip_refused) {
        forwarder_failed(b, text, is_fault ? 0 : REFUSED_RETRY);
        return;
    }
    a->refusers |= b->n == 1 ? http_pool_host_bit(a->host) : 0;
    if (b->n == 1 && http_pool_next(p->pool, a->refusers)) {
        forwarder_again(b); /* another host may accept the line, for example with a larger limit */
        return;
    }
    a->refusers = 0;
    forwarder_refused(b, text);
}

static usec_t send_batch(struct forward_batch *b)
{
    struct program *p = forwarder_arg(b->forwarder);
    struct attempt *a = b->data = b->data ? b->data : mem_zalloc(sizeof *a);
    struct http_pool_host *host = http_pool_next(p->pool, a->refusers);
    if (!host) /* tries a host that refused the line, because all other hosts are down */
        host = http_pool_next(p->pool, 0);
    if (!host)
        return http_pool_wait(p->pool) + USEC_PER_MSEC;
    struct buf target = {0};
    struct bytes line = bytes_of(b->lines.ptr, b->lines.len - 1); /* the line without its LF */
    http_pool_fill_target(host, line, &target);
    a->host = host;
    http_pool_request(host, &(struct http_call_spec){.method = p->get ? "GET" : "POST",
                                .target = target.ptr,
                                .content_type = p->get ? NULL : p->content_type,
                                .body = p->get         ? BYTES_NONE
                                        : p->bare_line ? line
                                                       : buf_bytes(&b->lines),
                                .arg = b,
                                .on_done = answered});
    buf_free(&target);
    return 0;
}

static int start_delivery(struct program *p, struct options *o, struct error *error)
{
    static const struct forwarder_sink sink = {.send = send_batch, .forget = forget};
    bool line_by_line = strstr(options_text(o, "destination"), "%s") != NULL;
    p->pool = daemon_pool_new(p->daemon, options_text(o, "destination_token_file"),
        &(struct http_pool_config){.urls = options_text(o, "destination"),
            .max_connections = (int)options_int(o, "parallel"),
            .timeout = options_int(o, "timeout") * USEC_PER_MSEC,
            .max_reply = HTTP_POOL_REPLY_MAX,
            .cut_reply = true},
        error);
    if (!p->pool)
        return EX_CONFIG;
    p->bare_line = options_bool(o, "bare_line");
    p->get = strcmp(options_string(o, "method"), "GET") == 0;
    p->skip_refused = options_bool(o, "skip_refused");
    p->content_type = options_string(o, "content_type");
    p->forwarder = forwarder_new(&(struct forwarder_config){.daemon = p->daemon,
                                     .sink = &sink,
                                     .batch_lines = line_by_line ? 1 : (size_t)options_int(o, "batch"),
                                     .batch_bytes = (size_t)options_int(o, "batch_bytes"),
                                     .gather = options_int(o, "gather") * USEC_PER_MSEC,
                                     .arg = p},
        error);
    return p->forwarder ? 0 : EX_CONFIG;
}

static void on_republisher_change(void *arg)
{
    struct program *p = arg;
    stream_program_set_trouble(p->daemon, republisher_trouble(p->republisher));
}

STATS_READ(read_offset, republisher_numbers(((struct program *)ctx)->republisher).offset)

static int start_republisher(struct program *p, struct options *o, struct error *error)
{
    p->source = stream_program_connect(p->daemon, error);
    if (!p->source)
        return EX_CONFIG;
    p->pool = daemon_pool_new(p->daemon, options_text(o, "to_token_file"),
        &(struct http_pool_config){.url = options_text(o, "to_url"),
            .max_connections = 1,
            .timeout = options_int(o, "timeout") * USEC_PER_MSEC},
        error);
    if (!p->pool)
        return EX_CONFIG;
    p->republisher = republisher_new(&(struct republisher_config){.program = "ps_to_http",
        .daemon = p->daemon,
        .source = p->source,
        .destination = p->pool,
        .to_queue = options_text(o, "to_queue"),
        .on_change = on_republisher_change,
        .arg = p});
    stats_gauge(daemon_stats(p->daemon), "offset_bytes", NULL, "Offset below which the stream is delivered",
        read_offset, p);
    return 0;
}

static int start(struct daemon *d, void **ctx, struct error *error)
{
    struct options *o = daemon_options(d);
    struct program *p = mem_zalloc(sizeof *p);
    *ctx = p;
    p->daemon = d;
    int status =
        options_text(o, "destination") ? start_delivery(p, o, error) : start_republisher(p, o, error);
    if (status == 0)
        daemon_set_not_ready(d, NOTICE_RECOVERING, DAEMON_WAIT, "asking pubsub for the stream");
    return status;
}

/* A republisher need not wait for its request, because the next start continues at the destination's mark. */
static void drain(void *ctx)
{
    struct program *p = ctx;
    if (p->republisher)
        daemon_drained(p->daemon);
    else
        forwarder_drain(p->forwarder);
}

static void stop(void *ctx)
{
    struct program *p = ctx;
    if (!p)
        return;
    stats_remove_gauges(daemon_stats(p->daemon), p);
    republisher_free(&p->republisher);
    http_pool_free(&p->pool);
    forwarder_free(&p->forwarder);
    http_client_free(&p->source);
    free(p);
}

int main(int argc, char **argv)
{
    static const struct daemon_spec spec = {
        .name = "ps_to_http",
        .summary = "posts a stream's lines to HTTP servers, or into another stream or a queue",
        .options = option_rows,
        .default_port = -1,
        .check = check,
        .start = start,
        .drain = drain,
        .stop = stop,
    };
    return daemon_main(&spec, argc, argv);
}
