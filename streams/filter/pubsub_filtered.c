/* pubsub_filtered: filters a stream: drops and hashes fields, selects lines by content, and checks their links against the marks
 * of spamfilter. The filtered stream is republished, served at /sub, or both.
 *
 * Each request for /sub follows the source stream over its own connection, so that slow clients do not delay other
 * clients. A request may contain a further condition. If a filter cannot decide whether a line passes, the line is
 * skipped, counted and logged.
 *
 * Filtered bytes have no offsets in the source stream, so a client of /sub cannot resume by counting bytes. A client
 * that must not miss a line should follow a republished stream. */
#include "counts/condition.h"
#include "http/client/http_client.h"
#include "http/client/http_pool.h"
#include "http/server/http_server.h"
#include "stream/line_scheduler.h"
#include "base/log.h"
#include "daemon/loop_timer.h"
#include "streams/filter/republisher.h"
#include "stream/stream_client.h"
#include "stream/stream_program.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/queue.h>
#include <sysexits.h>

#define PENDING_MAX ((size_t)1 << 20)   /* number of unsent bytes at which the source of a client pauses */
#define PENDING_LOW ((size_t)128 << 10) /* number of unsent bytes at which the source of a client resumes */
#define MARKS_LOOK_SECONDS 1

static const struct option_row option_rows[] = {
    STREAM_OPTIONS("stream to filter", "longest line that may pass"),
    SETTING_STRING(
        "to_stream", "stream for the lines that pass; each is stored once (default: none, serve /sub only)"),
    SETTING_STRING("to_pubsub_url", "address of the pubsub of to_stream (default: pubsub_url)"),
    SETTING_STRING("to_pubsub_token_file",
        "file with the token for to_pubsub_url (default: pubsub_token_file, if to_pubsub_url is not set)"),
    SETTING_DURATION("publish_timeout", "30s", 10, 600000, "ms", "timeout of a publish"),
    SETTING_STRING("producer", "producer name at to_stream (default: the id of the source stream)"),
    SETTING_STRING("drop", "fields to remove, separated by commas"),
    SETTING_STRING("hash", "fields whose values are replaced by keyed hashes, separated by commas"),
    SETTING_STRING("hash_key_file", "file with the key: at least 16 bytes, not readable by others (default "
                                    "without to_stream: a random key for each start)"),
    SETTING_STRING(
        "keep_if", "condition: publish only lines for which it is true, such as 'country in (US, JP)'"),
    SETTING_STRING("drop_if", "condition: do not publish lines for which it is true, such as 'bot = true'"),
    SETTING_STRING("blacklist_fields", "fields to remove", .means = "drop"),
    SETTING_STRING("encrypted_fields", "fields to hash", .means = "hash"),
    SETTING_STRING("marks_dir",
        "data_dir of spamfilter: check the link of each line against its marks (default: no checks)"),
    SETTING_STRING("marks_field", "field with the link", .fallback = "url"),
    SETTING_CHOICE("marks_action", "verdict", "verdict|drop|shadow",
        "verdict: add the field marked, a text such as bad.example, or null; drop: do not publish lines with "
        "marked links; shadow: only count and log them"),
    SETTING_STRING("heartbeat", "a line that has this field always passes (empty: no such field)",
        .fallback = "_heartbeat_"),
    SETTING_INT("dry_run", "0", 0, 1000000, "print this many lines before and after filtering, then exit",
        .flags = OPTION_COMMAND_LINE, .alone = "10"),
    {.name = NULL},
};

struct program {
    struct daemon *daemon;
    struct hash_key *key;
    struct mark_reader *marks; /* NULL: links are not checked */
    struct loop_timer *marks_timer;
    bool has_marks_problem;
    struct line_filter *filter;
    struct line_scheduler *scheduler;
    struct http_client *source;
    struct http_pool *destination;   /* pool of one server, which stores the mark */
    struct republisher *republisher; /* NULL: to_stream is not set */
    char *token;                     /* token for pubsub; NULL: no token */
    LIST_HEAD(, sub) subs;
    size_t n_subs;
    struct line_counts
        sub_lines; /* sums over all answers of /sub: a line that two answers read counts twice */
    struct loss_log sub_losses;
    struct stream_client *sample; /* source of the lines that --dry-run shows */
    int64_t to_show;
};

/* A request for /sub. */
struct sub {
    struct program *program;
    LIST_ENTRY(sub) link;
    struct http_request *req;
    struct http_client *pubsub;
    struct stream_client *source;
    struct loop_timer *ending;
    struct line_filter *filter; /* the filter in the request; NULL: no filter */
    struct line_queue *unfiltered;
    struct buf once;    /* a line after the program's filter */
    struct buf passed;  /* lines to send */
    struct buf refusal; /* body of pubsub's reply if pubsub has refused the offset */
    bool started, follow;
    bool congested; /* the source pauses, because the client reads too slowly */
    bool over;      /* the answer ends once all lines are filtered */
    int refused;    /* status of pubsub's reply if pubsub has refused the offset; otherwise 0 */
};

static int make_filter(struct options *o, struct mark_reader *marks, struct hash_key **key,
    struct line_filter **filter, struct error *error)
{
    const char *action = options_string(o, "marks_action");
    const char *key_file = options_text(o, "hash_key_file");
    *key = NULL;
    if (key_file && !options_text(o, "hash"))
        return options_refuse(o, "hash_key_file", error,
            "set hash too; without hash no field is hashed, and all values are published in plain text");
    if (key_file && !(*key = hash_key_read(key_file, error)))
        return options_refuse(o, "hash_key_file", error, "%s", error->text);
    /* A random key is only for /sub. In a stream, tokens of a random key would remain after the key is lost. */
    if (!key_file && options_text(o, "hash") && !options_text(o, "to_stream"))
        *key = hash_key_random();
    struct line_filter_spec spec = {.drop = options_text(o, "drop"),
        .hash = options_text(o, "hash"),
        .key = *key,
        .keep_if = options_string(o, "keep_if"),
        .drop_if = options_string(o, "drop_if"),
        .heartbeat = options_text(o, "heartbeat"),
        .marks = marks,
        .marks_field = options_string(o, "marks_field"),
        .marks_action = strcmp(action, "drop") == 0     ? MARKS_DROP
                        : strcmp(action, "shadow") == 0 ? MARKS_SHADOW
                                                        : MARKS_VERDICT};
    *filter = line_filter_new(&spec, error);
    if (*filter)
        return 0;
    hash_key_free(key);
    return error_set(error, -1, "filter: %s", error->text);
}

/* Returns NULL if the setting marks_dir is not set. */
static struct mark_reader *make_reader(struct options *o, struct stats *stats)
{
    const char *dir = options_text(o, "marks_dir");
    return dir ? mark_reader_new(dir, stats) : NULL;
}

/* Refuses settings that have no effect without the setting `of`. */
static int check_needs(struct options *o, const char *of, const char *const *names, struct error *error)
{
    for (; !options_text(o, of) && *names; names++)
        if (options_is_set(o, *names))
            return options_refuse(o, *names, error, "requires %s", of);
    return 0;
}

static int check(struct options *o, struct error *error)
{
    static const char *const of_republish[] = {
        "to_pubsub_url", "to_pubsub_token_file", "publish_timeout", "producer", NULL};
    static const char *const of_marks[] = {"marks_field", "marks_action", NULL};
    struct url_address address;
    struct hash_key *key;
    struct line_filter *filter;
    const char *to = options_text(o, "to_stream"), *to_url = options_text(o, "to_pubsub_url");
    if (stream_program_check(o, error) != 0 || options_check_name(o, "to_stream", error) != 0 ||
        options_check_name(o, "producer", error) != 0)
        return -1;
    if (to_url && url_address_parse(to_url, 80, &address) != 0)
        return options_refuse(
            o, "to_pubsub_url", error, "invalid address: use http://HOST:PORT or unix:PATH");
    if (stream_program_check_target(o, to_url, error) != 0)
        return -1;
    if (check_needs(o, "to_stream", of_republish, error) != 0 ||
        check_needs(o, "marks_dir", of_marks, error) != 0)
        return -1;
    if (!to && !options_is_set(o, "port") && options_int(o, "dry_run") == 0)
        return options_refuse(
            o, "to_stream", error, "nothing to do: set --to_stream to publish, or --port to serve /sub");
    struct mark_reader *marks = make_reader(o, NULL);
    int r = make_filter(o, marks, &key, &filter, error);
    if (r == 0) {
        line_filter_free(&filter);
        hash_key_free(&key);
    }
    mark_reader_free(&marks);
    return r;
}

#define LONG_SHOWN ((size_t)200) /* number of bytes that --dry-run shows of a line longer than max_line */

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
        [LINE_UNDECIDED] = "  (a pattern took too many steps: does not pass)",
        [LINE_REFUSED] = "  (not a JSON object: does not pass)",
    };
    struct program *p = arg;
    struct bytes line;
    while (p->to_show > 0 && bytes_take_line(&lines, &line)) {
        struct buf after = {0};
        show("-", line);
        enum line_filter_result result = line_filter_apply(p->filter, line, &after);
        if (result == LINE_PASSED)
            show("+", bytes_of(after.ptr, after.len - 1));
        else
            puts(verdicts[result]);
        buf_free(&after);
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

/* Ends a dry run if the source has a problem or no more lines. */
static void on_sample_change(void *arg)
{
    struct program *p = arg;
    const char *trouble = stream_client_trouble(p->sample, NULL);
    if (p->to_show == 0)
        return;
    if (trouble)
        fail_sample(p, trouble, EX_TEMPFAIL);
    else if (stream_program_awaits(p->sample))
        fail_sample(p, "no such stream", EX_NOINPUT);
    else if (stream_client_is_caught_up(p->sample))
        end_sample(p);
}

static void report_losses(struct program *p, bool last)
{
    loss_log_report(&p->sub_losses, &p->sub_lines, "/sub", clock_monotonic(), last);
}

static void forget(struct sub *h)
{
    struct program *p = h->program;
    LIST_REMOVE(h, link);
    p->n_subs--;
    report_losses(p, false);
    stream_client_free(&h->source);
    http_client_free(&h->pubsub);
    line_queue_free(&h->unfiltered);
    loop_timer_free(&h->ending);
    line_filter_free(&h->filter);
    buf_free(&h->once);
    buf_free(&h->passed);
    buf_free(&h->refusal);
    free(h);
}

static void start_answer(void *arg)
{
    struct sub *h = arg;
    const struct stream_cursor *at = stream_client_cursor(h->source);
    if (h->started)
        return;
    h->started = true;
    http_add_header(h->req, "X-Millrace-Stream-Id", "%s", at->id);
    http_add_header(h->req, "X-Millrace-Offset", "%" PRIu64, at->offset);
    http_stream_start_endless(h->req, "application/octet-stream");
    http_stream_disable_timeout(h->req);
}

static void on_sub_line(struct bytes line, void *arg)
{
    struct sub *h = arg;
    /* The program's filter runs first, so that the request's filter cannot test fields that the program removes. */
    buf_clear(&h->once);
    enum line_filter_result r =
        line_filter_apply(h->program->filter, line, !h->filter ? &h->passed : &h->once);
    if (r == LINE_PASSED && h->filter)
        r = line_filter_apply(h->filter, bytes_of(h->once.ptr, h->once.len - 1), &h->passed);
    line_counts_add(&h->program->sub_lines, r);
}

static void pause_or_resume(struct sub *h)
{
    if (h->congested || line_queue_is_full(h->unfiltered))
        stream_client_pause(h->source);
    else
        stream_client_resume(h->source);
}

static void end_if_over(struct sub *h)
{
    if (h->over && line_queue_is_empty(h->unfiltered))
        loop_timer_set(h->ending, 0);
}

static void on_sub_slice(void *arg)
{
    struct sub *h = arg;
    if (h->passed.len > 0)
        http_stream_write(h->req, buf_bytes(&h->passed));
    buf_clear(&h->passed);
    h->congested = h->congested || http_stream_pending(h->req) > PENDING_MAX;
    report_losses(h->program, false);
    pause_or_resume(h);
    end_if_over(h);
}

static void on_sub_lines(struct bytes lines, void *arg)
{
    struct sub *h = arg;
    line_queue_add(h->unfiltered, lines, stream_client_cursor(h->source)->offset);
    pause_or_resume(h);
}

static void on_sub_overlong(struct bytes head, uint64_t length, void *arg)
{
    struct sub *h = arg;
    (void)head, (void)length;
    line_counts_add(&h->program->sub_lines, LINE_OVERLONG);
    report_losses(h->program, false);
}

static void drained(struct http_request *req, void *arg)
{
    struct sub *h = arg;
    (void)req;
    h->congested = false;
    pause_or_resume(h);
}

static void client_gone(struct http_request *req, void *arg)
{
    (void)req;
    forget(arg);
}

static void on_ending(void *arg)
{
    struct sub *h = arg;
    const char *trouble = stream_client_trouble(h->source, NULL);
    if (h->started)
        http_stream_end(h->req);
    else if (h->refused != 0)
        http_reply(h->req, h->refused, "application/problem+json", buf_bytes(&h->refusal));
    else if (trouble)
        http_problem(h->req, 503, "upstream-unavailable", NULL, "%s", trouble);
    else
        http_problem(h->req, 404, "unknown-stream", NULL, "no such stream");
    forget(h);
}

/* Makes the loop end the answer once all lines are filtered. A callback of the source must not end the answer itself,
 * because the end of the answer frees the source. */
static void end_soon(struct sub *h)
{
    stream_client_stop(h->source);
    h->over = true;
    end_if_over(h);
}

/* Ends the answer if pubsub has failed before the answer began, or if a new stream has replaced the source stream. If
 * pubsub fails later, the source reconnects, and the client only sees a pause. */
static void on_sub_change(void *arg)
{
    struct sub *h = arg;
    bool refused, over = stream_client_is_caught_up(h->source) && !(h->started && h->follow);
    bool trouble = stream_client_trouble(h->source, &refused) != NULL;
    if (over || (trouble && (refused || !h->started)))
        end_soon(h);
}

/* Called if pubsub has refused the request's offset. pubsub's reply becomes the answer. */
static void on_sub_refused(int status, struct bytes body, void *arg)
{
    struct sub *h = arg;
    h->refused = status;
    buf_append_bytes(&h->refusal, body);
    end_soon(h);
}

/* Ends the answer at a gap, as pubsub does, so that the client notices the gap. */
static void on_sub_gap(uint64_t before, uint64_t after, void *arg)
{
    (void)before, (void)after;
    end_soon(arg);
}

/* Reads the parameter `if`, a condition. Returns false after answering with an error. */
static bool read_filter(const struct program *p, struct http_request *req, struct line_filter **out)
{
    struct bytes text;
    struct error error;
    *out = NULL;
    if (!http_param(req, "if", &text))
        return true;
    struct condition *c = condition_new(text, &error);
    if (!c) {
        http_problem(req, 400, "bad-parameter", NULL, "if: %s", error.text);
        return false;
    }
    condition_free(&c);
    char *keep_if = bytes_dup(text);
    *out = line_filter_new(&(struct line_filter_spec){.keep_if = keep_if,
                               .heartbeat = options_text(daemon_options(p->daemon), "heartbeat")},
        NULL);
    free(keep_if);
    return true;
}

/* Reads the parameter `from`. Returns false after answering with an error. */
static bool read_from(struct http_request *req, char out[64])
{
    struct bytes from = BYTES_LITERAL("latest");
    uint64_t n;
    (void)http_param(req, "from", &from);
    bool at = from.len > 1 && from.ptr[0] == '@' && bytes_to_u64(bytes_of(from.ptr + 1, from.len - 1), &n);
    bool ok =
        at || bytes_equal_str(from, "latest") || bytes_equal_str(from, "earliest") || bytes_to_u64(from, &n);
    snprintf(out, 64, "%.*s", (int)(ok ? from.len : 0), from.ptr);
    if (!ok || from.len > 60)
        http_problem(req, 400, "bad-parameter",
            "use earliest, latest, an offset, or @UNIXTIME in whole seconds", "invalid from");
    return ok && from.len <= 60;
}

/* Serves only the program's stream, because the filter is for this stream, and because the pubsub token may also permit
 * other streams. */
static void serve_sub(struct http_request *req, void *ctx)
{
    struct program *p = ctx;
    struct options *o = daemon_options(p->daemon);
    const char *own = options_string(o, "stream");
    char from[64], stream[NAME_LEN_MAX + 1];
    struct line_filter *filter;
    bool follow, multipart;
    if (!http_param_name(req, "stream", own, stream))
        return;
    if (strcmp(stream, own) != 0) {
        http_problem(req, 404, "unknown-stream", "omit stream", "only the stream %s is served here", own);
        return;
    }
    if (!http_param_bool(req, "follow", true, &follow) ||
        !http_param_bool(req, "multipart", false, &multipart))
        return;
    if (multipart) { /* bitly's clients set this parameter */
        http_problem(req, 400, "bad-parameter", "ask for multipart=0", "multipart is not supported");
        return;
    }
    if (!read_from(req, from) || !read_filter(p, req, &filter))
        return;
    struct sub *h = mem_zalloc(sizeof *h);
    *h = (struct sub){.program = p, .req = req, .filter = filter, .follow = follow};
    LIST_INSERT_HEAD(&p->subs, h, link);
    p->n_subs++;
    http_on_gone(req, client_gone, h);
    http_on_drain(req, PENDING_LOW, drained, h);
    if (follow)
        http_set_long_poll(req);
    h->ending = loop_timer_new(daemon_base(p->daemon), on_ending, h);
    h->unfiltered = line_queue_new(&(struct line_queue_config){
        .scheduler = p->scheduler, .on_line = on_sub_line, .on_slice = on_sub_slice, .arg = h});
    h->pubsub = http_client_new(&(struct http_client_config){.base = daemon_base(p->daemon),
        .url = peer_url(o, "pubsub"),
        .max_connections = 1,
        .auth_token = p->token});
    h->source = stream_client_new(&(struct stream_client_config){.base = daemon_base(p->daemon),
        .pubsub = h->pubsub,
        .stream = own,
        .begin = from,
        .max_line = (size_t)options_int(o, "max_line"),
        .on_begin = start_answer,
        .on_lines = on_sub_lines,
        .on_overlong = on_sub_overlong,
        .on_gap = on_sub_gap,
        .on_refused = on_sub_refused,
        .on_change = on_sub_change,
        .arg = h});
}

static void on_change(void *arg)
{
    struct program *p = arg;
    const char *trouble = p->republisher ? republisher_trouble(p->republisher) : NULL;
    stream_program_set_trouble(p->daemon, trouble);
}

#define NUMBER(member)                                                                                       \
    STATS_READ(read_##member, republisher_numbers(((struct program *)ctx)->republisher).member)
NUMBER(runs)
NUMBER(gaps)
NUMBER(offset)

#define LINES(name, member)                                                                                  \
    STATS_READ(read_##name, republisher_numbers(((struct program *)ctx)->republisher).lines.member)          \
    STATS_READ(read_sub_##name, ((struct program *)ctx)->sub_lines.member)
LINES(read, read)
LINES(passed, by[LINE_PASSED])
LINES(filtered, by[LINE_FILTERED])
LINES(undecided, by[LINE_UNDECIDED])
LINES(refused, by[LINE_REFUSED])
LINES(overlong, by[LINE_OVERLONG])

STATS_READ(read_subscribers, ((struct program *)ctx)->n_subs)

static void register_stats(struct program *p)
{
    static const struct stats_row rows[] = {
        {"subscribers", "Open answers of /sub", read_subscribers},
        {"sub_lines_read_total",
            "Lines read for /sub; a line is counted once for each answer that reads the line", read_sub_read},
        {"sub_lines_passed_total", "Lines read for /sub that were sent", read_sub_passed},
        {"sub_lines_filtered_total", "Lines read for /sub that keep_if, drop_if or marks_action excludes",
            read_sub_filtered},
        {"sub_lines_undecided_total", "Lines read for /sub and skipped: a pattern took too many steps",
            read_sub_undecided},
        {"sub_lines_refused_total", "Lines read for /sub and skipped: not a JSON object", read_sub_refused},
        {"sub_lines_overlong_total", "Lines read for /sub and skipped: longer than max_line",
            read_sub_overlong},
        {0},
    };
    static const struct stats_row republished[] = {
        {"lines_read_total", "Lines read from the stream", read_read},
        {"lines_passed_total", "Lines published", read_passed},
        {"lines_filtered_total", "Lines that keep_if, drop_if or marks_action excludes", read_filtered},
        {"lines_undecided_total", "Lines skipped: a pattern took too many steps", read_undecided},
        {"lines_refused_total", "Lines skipped: not a JSON object", read_refused},
        {"lines_overlong_total", "Lines skipped: longer than max_line", read_overlong},
        {"runs_stored_total", "Publishes stored", read_runs},
        {"gaps_total", "Gaps in the stream", read_gaps},
        {"offset_bytes", "Offset below which the stream is filtered and stored", read_offset},
        {0},
    };
    stats_gauges(daemon_stats(p->daemon), rows, NULL, p);
    if (p->republisher)
        stats_gauges(daemon_stats(p->daemon), republished, NULL, p);
}

static const struct http_route routes[] = {
    {.path = "/sub",
        .methods = HTTP_GET_ | HTTP_POST_,
        .handler = serve_sub,
        .params = "stream from follow multipart if",
        .help = "The filtered stream. Parameters: stream, from, follow, if"},
    {.path = NULL},
};

/* A problem of the marks is a warning: lines pass without a check. */
static void look_at_marks(void *arg)
{
    struct program *p = arg;
    const char *problem = mark_reader_problem(p->marks);
    if (problem && !p->has_marks_problem)
        log_warn("cannot read the marks", LOG_S("error", problem));
    p->has_marks_problem = problem != NULL;
    daemon_set_notice(p->daemon, "marks", NOTICE_WARNING, MARK_READER_REMEDY, problem);
}

static void watch_marks(struct program *p)
{
    if (!p->marks)
        return;
    p->marks_timer =
        loop_timer_every(daemon_base(p->daemon), MARKS_LOOK_SECONDS * USEC_PER_SEC, look_at_marks, p);
    look_at_marks(p);
}

static int start(struct daemon *d, void **ctx, struct error *error)
{
    struct options *o = daemon_options(d);
    struct program *p = mem_zalloc(sizeof *p);
    *ctx = p;
    p->daemon = d;
    p->marks = make_reader(o, daemon_stats(d));
    if (make_filter(o, p->marks, &p->key, &p->filter, error) != 0)
        return EX_CONFIG;
    watch_marks(p);
    if (p->key && !options_text(o, "hash_key_file"))
        log_warn("hash_key_file is not set: this run's tokens differ from those of other runs");
    p->scheduler = line_scheduler_new(daemon_base(d));
    p->source = stream_program_connect(d, error);
    if (!p->source || daemon_read_token(options_text(o, "pubsub_token_file"), &p->token, error) != 0)
        return EX_CONFIG;
    p->to_show = options_int(o, "dry_run");
    if (p->to_show > 0) {
        p->sample = stream_program_follow(d, false, false,
            &(struct stream_client_config){.pubsub = p->source,
                .on_lines = on_sample,
                .on_overlong = on_long_sample,
                .on_change = on_sample_change,
                .arg = p});
    } else if (options_text(o, "to_stream")) {
        const char *to_url = options_text(o, "to_pubsub_url");
        const char *token_file = options_text(o, "to_pubsub_token_file");
        if (!token_file && !to_url)
            token_file = options_text(o, "pubsub_token_file");
        p->destination = daemon_pool_new(d, token_file,
            &(struct http_pool_config){.url = to_url ? to_url : peer_url(o, "pubsub"),
                .max_connections = 1,
                .timeout = options_int(o, "publish_timeout") * USEC_PER_MSEC},
            error);
        if (!p->destination)
            return EX_CONFIG;
        p->republisher = republisher_new(&(struct republisher_config){.program = "pubsub_filtered",
            .daemon = d,
            .source = p->source,
            .destination = p->destination,
            .filter = p->filter,
            .scheduler = p->scheduler,
            .on_change = on_change,
            .arg = p});
    }
    register_stats(p);
    on_change(p);
    return 0;
}

/* Reloads the hash key. The key can be replaced between two lines, because each token contains the id of its key. */
static void hangup(void *ctx)
{
    struct program *p = ctx;
    const char *path = options_text(daemon_options(p->daemon), "hash_key_file");
    struct error error;
    if (!p->key || !path)
        return;
    struct hash_key *key = hash_key_read(path, &error);
    if (!key) {
        log_error("cannot reload the hash key: keeping the old one", LOG_S("error", error.text));
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
    struct sub *h;
    while ((h = LIST_FIRST(&p->subs))) {
        if (h->started)
            http_stream_end(h->req);
        else
            http_problem(h->req, 503, "not-ready", NULL, "stopping");
        forget(h);
    }
    daemon_drained(p->daemon);
}

static void stop(void *ctx)
{
    struct program *p = ctx;
    if (!p)
        return;
    stats_remove_gauges(daemon_stats(p->daemon), p);
    stream_client_free(&p->sample);
    republisher_free(&p->republisher);
    while (!LIST_EMPTY(&p->subs))
        forget(LIST_FIRST(&p->subs));
    report_losses(p, true);
    line_scheduler_free(&p->scheduler);
    http_client_free(&p->source);
    http_pool_free(&p->destination);
    line_filter_free(&p->filter);
    loop_timer_free(&p->marks_timer);
    mark_reader_free(&p->marks);
    hash_key_free(&p->key);
    free(p->token);
    free(p);
}

int main(int argc, char **argv)
{
    static const struct daemon_spec spec = {
        .name = "pubsub_filtered",
        .summary = "filters a stream: drops and hashes fields, selects lines by content or by marked links",
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
