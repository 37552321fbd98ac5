/* pubsub_filtered: filters a stream: drops and hashes fields, selects lines by content. */
#include "streams/filter/filtered_sub.h"
#include "http/client/http_client.h"
#include "http/client/http_pool.h"
#include "streams/filter/line_scheduler.h"
#include "base/log.h"
#include "streams/filter/republisher.h"
#include "stream/stream_client.h"
#include "stream/stream_program.h"

#include <event2/event.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sysexits.h>

static const struct option_row option_rows[] = {
    STREAM_OPTIONS("stream to filter", "longest line that may pass"),
    {.name = "to_stream",
        .type = OPTION_STRING,
        .help = "stream for the lines that pass; each is stored once (default: none, serve /sub only)"},
    {.name = "to_pubsub_url",
        .type = OPTION_STRING,
        .help = "address of the pubsub of to_stream (default: pubsub_url)"},
    {.name = "to_pubsub_token_file",
        .type = OPTION_STRING,
        .help = "file with the token for to_pubsub_url (default: pubsub_token_file, if to_pubsub_url is not "
                "set)"},
    {.name = "publish_timeout",
        .type = OPTION_DURATION,
        .fallback = "30s",
        .min = 10,
        .max = 600000,
        .unit = "ms",
        .help = "timeout of a publish"},
    {.name = "producer",
        .type = OPTION_STRING,
        .help = "producer name at to_stream (default: the id of the source stream)"},
    {.name = "drop", .type = OPTION_STRING, .help = "fields to remove, separated by commas"},
    {.name = "hash",
        .type = OPTION_STRING,
        .help = "fields whose values to replace by keyed hashes, separated by commas"},
    {.name = "hash_key_file",
        .type = OPTION_STRING,
        .help = "file with the key: at least 16 bytes, not readable by others"},
    {.name = "filter_subject",
        .type = OPTION_STRING,
        .help = "field that filter_values, filter_prefix and filter_pattern test"},
    {.name = "filter_values",
        .type = OPTION_STRING,
        .help = "pass only lines whose filter_subject is one of these values, separated by commas"},
    {.name = "filter_prefix",
        .type = OPTION_STRING,
        .help = "pass only lines whose filter_subject begins with this text"},
    {.name = "filter_pattern",
        .type = OPTION_STRING,
        .help = "pass only lines whose filter_subject matches this PCRE2 pattern"},
    {.name = "heartbeat",
        .type = OPTION_STRING,
        .fallback = "_heartbeat_",
        .help = "field of lines that always pass (empty: none)"},
    {.name = "dry_run",
        .type = OPTION_INT,
        .fallback = "0",
        .min = 0,
        .max = 1000000,
        .flags = OPTION_COMMAND_LINE,
        .alone = "10",
        .help = "print this many lines before and after filtering, then exit"},
    {.name = NULL},
};

struct program {
    struct daemon *daemon;
    struct hash_key *key;
    struct line_filter *filter;
    struct line_scheduler *scheduler;
    struct http_client *source;
    struct http_pool *destination;   /* one server: it keeps the mark */
    struct republisher *republisher; /* NULL: not requested */
    struct filtered_subs *subs;
    struct stream_client *sample; /* --dry-run */
    int64_t to_show;
};

static int make_filter(
    struct options *o, struct hash_key **key, struct line_filter **filter, struct config_error *error)
{
    char why[LINE_FILTER_ERROR_TEXT];
    const char *key_file = options_text(o, "hash_key_file");
    *key = NULL;
    if (key_file != NULL && options_text(o, "hash") == NULL)
        return options_refuse(o, "hash_key_file", error,
            "set hash too: without it nothing is hashed, and all values are published in clear");
    if (key_file != NULL && (*key = hash_key_read(key_file, why, sizeof why)) == NULL)
        return options_refuse(o, "hash_key_file", error, "%s", why);
    struct line_filter_spec spec = {.drop = options_text(o, "drop"),
        .hash = options_text(o, "hash"),
        .key = *key,
        .subject = options_text(o, "filter_subject"),
        .values = options_text(o, "filter_values"),
        .prefix = options_text(o, "filter_prefix"),
        .pattern = options_text(o, "filter_pattern"),
        .heartbeat = options_text(o, "heartbeat")};
    *filter = line_filter_new(&spec, why);
    if (*filter != NULL)
        return 0;
    hash_key_free(key);
    return config_fail(error, NULL, 0, "filter: %s", why);
}

static int check(struct options *o, struct config_error *error)
{
    static const char *const of_republish[] = {
        "to_pubsub_url", "to_pubsub_token_file", "publish_timeout", "producer"};
    struct url_address address;
    struct hash_key *key;
    struct line_filter *filter;
    const char *to = options_text(o, "to_stream"), *to_url = options_text(o, "to_pubsub_url");
    if (stream_program_check(o, error) != 0 || options_check_name(o, "to_stream", error) != 0 ||
        options_check_name(o, "producer", error) != 0)
        return -1;
    if (to_url != NULL && url_address_parse(to_url, 80, &address) != 0)
        return options_refuse(
            o, "to_pubsub_url", error, "invalid address: use http://HOST:PORT or unix:PATH");
    if (stream_program_check_target(o, to_url, error) != 0)
        return -1;
    for (size_t i = 0; to == NULL && i < sizeof of_republish / sizeof *of_republish; i++)
        if (options_is_set(o, of_republish[i]))
            return options_refuse(o, of_republish[i], error, "requires to_stream");
    if (to == NULL && !options_is_set(o, "port") && options_int(o, "dry_run") == 0)
        return options_refuse(
            o, "to_stream", error, "nothing to do: set --to_stream to publish, or --port to serve /sub");
    if (make_filter(o, &key, &filter, error) != 0)
        return -1;
    line_filter_free(&filter);
    hash_key_free(&key);
    return 0;
}

#define LONG_SHOWN ((size_t)200) /* bytes printed of a line over max_line */

static void show(const char *mark, struct bytes text)
{
    printf("%s ", mark);
    fwrite(text.ptr, 1, text.len, stdout);
    putchar('\n');
}

static void end_sample(struct program *p)
{
    p->to_show = 0;
    fflush(stdout);
    stream_client_stop(p->sample);
    daemon_begin_stop(p->daemon);
}

static void on_sample(struct bytes lines, void *arg)
{
    static const char *const verdicts[] = {
        [LINE_FILTERED] = "  (does not pass the filter)",
        [LINE_UNDECIDED] = "  (the pattern took too many steps: does not pass)",
        [LINE_REFUSED] = "  (not a JSON object: does not pass)",
    };
    struct program *p = arg;
    const char *at = lines.ptr, *end = lines.ptr + lines.len;
    while (at < end && p->to_show > 0) {
        const char *lf = memchr(at, '\n', (size_t)(end - at));
        struct bytes line = bytes_of(at, (size_t)(lf - at));
        struct buf after = {0};
        show("-", line);
        enum line_filter_result result = line_filter_apply(p->filter, line, &after);
        if (result == LINE_PASSED)
            show("+", bytes_of(after.ptr, after.len - 1));
        else
            puts(verdicts[result]);
        buf_free(&after);
        at = lf + 1;
        if (--p->to_show == 0)
            end_sample(p);
    }
}

static void on_long_sample(struct bytes head, uint64_t length, void *arg)
{
    struct program *p = arg;
    if (p->to_show == 0)
        return;
    show("-", bytes_of(head.ptr, head.len < LONG_SHOWN ? head.len : LONG_SHOWN));
    printf("  (%" PRIu64 " bytes: over max_line, does not pass)\n", length);
    if (--p->to_show == 0)
        end_sample(p);
}

static void fail_sample(struct program *p, const char *why, int status)
{
    log_error("no lines to show", LOG_S("error", why));
    p->to_show = 0;
    stream_client_stop(p->sample);
    daemon_fail(p->daemon, status);
}

/* A dry run ends at once if there is a problem or no more lines. */
static void on_sample_change(void *arg)
{
    struct program *p = arg;
    const char *trouble = stream_client_trouble(p->sample, NULL);
    if (p->to_show == 0)
        return;
    if (trouble != NULL)
        fail_sample(p, trouble, EX_TEMPFAIL);
    else if (stream_program_awaits(p->sample))
        fail_sample(p, "no such stream", EX_NOINPUT);
    else if (stream_client_is_caught_up(p->sample))
        end_sample(p);
}

static void on_change(void *arg)
{
    struct program *p = arg;
    const char *trouble = p->republisher != NULL ? republisher_trouble(p->republisher) : NULL;
    stream_program_set_trouble(p->daemon, trouble);
}

static void on_into_itself(void *arg)
{
    stream_program_fail_into_itself(((struct program *)arg)->daemon);
}

#define NUMBER(member)                                                                                       \
    static double read_##member(void *ctx)                                                                   \
    {                                                                                                        \
        return (double)republisher_numbers(((struct program *)ctx)->republisher).member;                     \
    }
NUMBER(runs)
NUMBER(gaps)
NUMBER(offset)

#define LINES(member)                                                                                        \
    static double read_##member(void *ctx)                                                                   \
    {                                                                                                        \
        return (double)republisher_numbers(((struct program *)ctx)->republisher).lines.member;               \
    }                                                                                                        \
    static double read_sub_##member(void *ctx)                                                               \
    {                                                                                                        \
        return (double)filtered_subs_lines(((struct program *)ctx)->subs)->member;                           \
    }
LINES(read)
LINES(passed)
LINES(filtered)
LINES(undecided)
LINES(refused)
LINES(overlong)

static double read_subscribers(void *ctx)
{
    return (double)filtered_subs_count(((struct program *)ctx)->subs);
}

static void register_stats(struct program *p)
{
    static const struct {
        const char *name, *help;
        stats_gauge_fn *read;
        bool republish;
    } rows[] = {
        {"sub_lines_read_total", "Lines read for /sub, counted for each answer", read_sub_read, false},
        {"sub_lines_passed_total", "Of those, lines sent", read_sub_passed, false},
        {"sub_lines_filtered_total", "Of those, lines that fail a condition", read_sub_filtered, false},
        {"sub_lines_undecided_total", "Of those, lines left out: the pattern took too many steps",
            read_sub_undecided, false},
        {"sub_lines_refused_total", "Of those, lines left out: not a JSON object", read_sub_refused, false},
        {"sub_lines_overlong_total", "Of those, lines left out: longer than max_line", read_sub_overlong,
            false},
        {"lines_read_total", "Lines read from the stream", read_read, true},
        {"lines_passed_total", "Lines published", read_passed, true},
        {"lines_filtered_total", "Lines that fail a condition", read_filtered, true},
        {"lines_undecided_total", "Lines left out: the pattern took too many steps", read_undecided, true},
        {"lines_refused_total", "Lines left out: not a JSON object", read_refused, true},
        {"lines_overlong_total", "Lines left out: longer than max_line", read_overlong, true},
        {"runs_stored_total", "Publishes stored", read_runs, true},
        {"gaps_total", "Gaps in the stream", read_gaps, true},
    };
    struct stats *s = daemon_stats(p->daemon);
    stats_gauge(s, "subscribers", NULL, "Open answers of /sub", read_subscribers, p);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (!rows[i].republish || p->republisher != NULL)
            stats_counter_read(s, rows[i].name, NULL, rows[i].help, rows[i].read, p);
    if (p->republisher != NULL)
        stats_gauge(
            s, "offset_bytes", NULL, "Offset below which the stream is filtered and stored", read_offset, p);
}

static void serve_sub(struct http_request *req, void *ctx)
{
    filtered_sub_answer(((struct program *)ctx)->subs, req);
}

static const struct http_route routes[] = {
    {.path = "/sub",
        .methods = HTTP_GET_ | HTTP_POST_,
        .handler = serve_sub,
        .params = "stream from follow multipart filter_subject filter_pattern",
        .help = "The filtered stream. Parameters: stream, from, follow, filter_subject, filter_pattern"},
    {.path = NULL},
};

static int start_republish(struct program *p, struct options *o, struct config_error *error)
{
    const char *to_url = options_text(o, "to_pubsub_url");
    const char *token_file = options_text(o, "to_pubsub_token_file");
    char *token;
    if (token_file == NULL && to_url == NULL)
        token_file = options_text(o, "pubsub_token_file");
    if (daemon_read_token(token_file, &token, error) != 0)
        return EX_CONFIG;
    p->destination = http_pool_new(&(struct http_pool_config){.base = daemon_base(p->daemon),
                                       .url = to_url != NULL ? to_url : peer_url(o, "pubsub"),
                                       .max_connections = 1,
                                       .timeout = options_int(o, "publish_timeout") * USEC_PER_MSEC,
                                       .auth_token = token},
        error->text, sizeof error->text);
    free(token);
    if (p->destination == NULL)
        return EX_CONFIG;
    http_pool_register_stats(p->destination, daemon_stats(p->daemon));
    p->republisher = republisher_new(&(struct republisher_config){.base = daemon_base(p->daemon),
        .source = p->source,
        .destination = p->destination,
        .stream = options_string(o, "stream"),
        .to_stream = options_text(o, "to_stream"),
        .producer = options_text(o, "producer"),
        .begin = options_string(o, "from"),
        .max_line = (size_t)options_int(o, "max_line"),
        .filter = p->filter,
        .scheduler = p->scheduler,
        .on_change = on_change,
        .on_into_itself = on_into_itself,
        .arg = p});
    return 0;
}

static int start(struct daemon *d, void **ctx, struct config_error *error)
{
    struct options *o = daemon_options(d);
    struct program *p = mem_zalloc(sizeof *p);
    char *token;
    *ctx = p;
    p->daemon = d;
    if (make_filter(o, &p->key, &p->filter, error) != 0)
        return EX_CONFIG;
    p->scheduler = line_scheduler_new(daemon_base(d));
    p->source = stream_program_connect(d, error);
    if (p->source == NULL || daemon_read_token(options_text(o, "pubsub_token_file"), &token, error) != 0)
        return EX_CONFIG;
    p->subs = filtered_subs_new(&(struct filtered_subs_config){.base = daemon_base(d),
        .pubsub_url = peer_url(o, "pubsub"),
        .auth_token = token,
        .stream = options_string(o, "stream"),
        .heartbeat = options_text(o, "heartbeat"),
        .max_line = (size_t)options_int(o, "max_line"),
        .filter = p->filter,
        .scheduler = p->scheduler});
    free(token);
    p->to_show = options_int(o, "dry_run");
    if (p->to_show > 0)
        p->sample = stream_program_follow(d, false,
            &(struct stream_client_config){.pubsub = p->source,
                .on_lines = on_sample,
                .on_overlong = on_long_sample,
                .on_change = on_sample_change,
                .arg = p});
    else if (options_text(o, "to_stream") != NULL && start_republish(p, o, error) != 0)
        return EX_CONFIG;
    register_stats(p);
    on_change(p);
    return 0;
}

/* The key may change between two lines, because each token names its key. */
static void hangup(void *ctx)
{
    struct program *p = ctx;
    const char *path = options_text(daemon_options(p->daemon), "hash_key_file");
    char why[LINE_FILTER_ERROR_TEXT];
    if (p->key == NULL)
        return;
    struct hash_key *key = hash_key_read(path, why, sizeof why);
    if (key == NULL) {
        log_error("cannot reload the hash key: keeping the old one", LOG_S("error", why));
        return;
    }
    log_info("hash key reloaded", LOG_S("id", hash_key_id(key)), LOG_S("before", hash_key_id(p->key)));
    line_filter_set_key(p->filter, key);
    hash_key_free(&p->key);
    p->key = key;
}

static void drain(void *ctx)
{
    struct program *p = ctx;
    filtered_subs_end(p->subs);
    daemon_drained(p->daemon);
}

static void stop(void *ctx)
{
    struct program *p = ctx;
    if (p == NULL)
        return;
    stats_remove_gauges(daemon_stats(p->daemon), p);
    stream_client_free(&p->sample);
    republisher_free(&p->republisher);
    filtered_subs_free(&p->subs);
    line_scheduler_free(&p->scheduler);
    http_client_free(&p->source);
    http_pool_free(&p->destination);
    line_filter_free(&p->filter);
    hash_key_free(&p->key);
    free(p);
}

int main(int argc, char **argv)
{
    static const struct daemon_spec spec = {
        .name = "pubsub_filtered",
        .summary = "filters a stream: drops and hashes fields, selects lines by content",
        .options = option_rows,
        .default_port = -1,
        .routes = routes,
        .check = check,
        .start = start,
        .drain = drain,
        .hangup = hangup,
        .stop = stop,
    };
    return daemon_main(&spec, argc, argv);
}
