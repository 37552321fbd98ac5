/* ps_to_http: posts a stream to HTTP servers, at least once, or into a millrace stream or queue, exactly once. */
#include "streams/archive/archive_lock.h"
#include "http/client/http_client.h"
#include "base/io.h"
#include "base/log.h"
#include "streams/forward/poster.h"
#include "base/reject_file.h"
#include "streams/filter/republisher.h"
#include "stream/stream_client.h"
#include "stream/stream_program.h"

#include <errno.h>
#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <sysexits.h>

static const struct option_row option_rows[] = {
    STREAM_OPTIONS("stream to read", "longest line accepted"),
    {.name = "destination",
        .type = OPTION_STRING,
        .help = HTTP_POOL_URLS_HELP "%s in the target stands for one escaped line"},
    {.name = "destination_token_file",
        .type = OPTION_STRING,
        .help = "file with the token that each destination gets as Authorization: Bearer"},
    {.name = "state",
        .type = OPTION_STRING,
        .help = "state file: the offset below which all lines are delivered"},
    {.name = "method",
        .type = OPTION_CHOICE,
        .fallback = "POST",
        .choices = "POST|GET",
        .help = "method of the requests"},
    {.name = "content_type",
        .type = OPTION_STRING,
        .fallback = "application/x-ndjson",
        .help = "content type of a POST"},
    {.name = "batch",
        .type = OPTION_INT,
        .fallback = "100",
        .min = 1,
        .max = 1000000,
        .help = "maximum lines per request"},
    {.name = "batch_bytes",
        .type = OPTION_SIZE,
        .fallback = "1M",
        .min = 1,
        .max = 64 << 20,
        .unit = "bytes",
        .help = "maximum bytes per request, unless one line is longer"},
    {.name = "gather",
        .type = OPTION_DURATION,
        .fallback = "0",
        .min = 0,
        .max = 60000,
        .unit = "ms",
        .help = "longest time a line waits for a full batch"},
    {.name = "parallel",
        .type = OPTION_INT,
        .fallback = "1",
        .min = 1,
        .max = 256,
        .help = "concurrent requests; with more than one, lines may arrive out of order"},
    {.name = "timeout",
        .type = OPTION_DURATION,
        .fallback = "10s",
        .min = 10,
        .max = 600000,
        .unit = "ms",
        .help = "timeout of a request"},
    {.name = "skip_refused",
        .type = OPTION_BOOL,
        .fallback = "false",
        .help =
            "leave out a line, instead of retrying it, once every reachable destination answers 400, 413 or "
            "422"},
    {.name = "poison_limit",
        .type = OPTION_INT,
        .fallback = "100",
        .max = 1000000,
        .help = "with skip_refused: maximum lines left out in a row; further refused lines are retried (0: "
                "unlimited)"},
    {.name = "rejects",
        .type = OPTION_STRING,
        .help = "with skip_refused: file to which those lines are appended"},
    {.name = "commit_every",
        .type = OPTION_DURATION,
        .fallback = "1s",
        .min = 10,
        .max = 3600000,
        .unit = "ms",
        .help = "interval at which the state is stored"},
    {.name = "to_stream",
        .type = OPTION_STRING,
        .help = "instead of destination: stream of another pubsub; each line is stored once"},
    {.name = "to_queue",
        .type = OPTION_STRING,
        .help = "instead of destination: queue of a simplequeue; each line is stored once"},
    {.name = "to_url",
        .type = OPTION_STRING,
        .help = "address of the pubsub or simplequeue for to_stream or to_queue"},
    {.name = "to_token_file", .type = OPTION_STRING, .help = "file with the token for to_url"},
    {.name = "producer",
        .type = OPTION_STRING,
        .help = "producer name at to_url (default: the id of the stream)"},
    {.name = NULL},
};

struct program {
    struct daemon *daemon;
    struct http_client *source;
    struct http_pool *pool;          /* the destinations, or the one server of a republisher */
    struct republisher *republisher; /* for to_stream and to_queue; else NULL */
    struct poster *poster;           /* for destination; else NULL */
    struct stream_client *stream;
    struct archive_state state; /* only its cursor is used */
    const char *state_path;
    int state_lock;      /* -1: none */
    const char *rejects; /* NULL: refused lines are only logged */
    struct event *committer;
    bool state_found; /* at the start, or stored since */
    bool state_failed;
};

/* Refuses the first of these settings that is set: a setting without effect is a mistake. */
static int refuse_settings(
    struct options *o, const char *const *names, const char *why, struct config_error *error)
{
    for (; *names != NULL; names++)
        if (options_is_set(o, *names))
            return options_refuse(o, *names, error, "%s", why);
    return 0;
}

static int check_destination(struct options *o, struct config_error *error)
{
    static const char *const of_our_own[] = {"to_url", "to_token_file", "producer", NULL};
    static const char *const of_refusals[] = {"rejects", "poison_limit", NULL};
    const char *rejects = options_text(o, "rejects");
    char why[300];
    struct http_pool_config config = {.urls = options_text(o, "destination"), .max_connections = 1};
    struct http_pool *pool = http_pool_new(&config, why, sizeof why);
    if (pool == NULL)
        return options_refuse(o, "destination", error, "%s", why);
    bool all_placeholders = http_pool_without_placeholder(pool) == NULL;
    http_pool_free(&pool);
    if (strcmp(options_string(o, "method"), "GET") == 0 && !all_placeholders)
        return options_refuse(o, "destination", error, "method GET requires %%s in each URL");
    if (strstr(options_text(o, "destination"), "%s") != NULL && options_is_set(o, "batch") &&
        options_int(o, "batch") > 1)
        return options_refuse(o, "batch", error, "a destination with %%s takes one line: omit batch");
    if (refuse_settings(o, of_our_own, "only allowed with to_stream or to_queue", error) != 0)
        return -1;
    if (options_text(o, "state") == NULL)
        return options_refuse(
            o, "state", error, "required with destination, for example --state=/var/lib/clicks.state");
    if (!options_bool(o, "skip_refused")) {
        if (refuse_settings(o, of_refusals, "requires skip_refused", error) != 0)
            return -1;
    } else if (rejects != NULL && io_is_same_file(rejects, options_text(o, "state"))) {
        return options_refuse(o, "rejects", error, "is the state file");
    }
    if (strpbrk(options_string(o, "content_type"), "\r\n") != NULL)
        return options_refuse(o, "content_type", error, "not a valid header value");
    return 0;
}

static int check(struct options *o, struct config_error *error)
{
    static const char *const of_strangers[] = {"state", "destination_token_file", "method", "content_type",
        "batch", "batch_bytes", "gather", "parallel", "skip_refused", "poison_limit", "rejects",
        "commit_every", NULL};
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
    if (options_text(o, "destination") != NULL)
        return check_destination(o, error);
    if (refuse_settings(o, of_strangers, "only allowed with destination", error) != 0)
        return -1;
    if (to == NULL || url_address_parse(to, 80, &address) != 0)
        return options_refuse(o, "to_url", error, "required: http://HOST:PORT or unix:PATH");
    return stream_program_check_target(o, to, error);
}

static void update_health(struct program *p)
{
    const char *trouble = NULL;
    if (p->republisher != NULL)
        trouble = republisher_trouble(p->republisher);
    else if (p->state_failed)
        trouble = "cannot store the state";
    else if (poster_trouble(p->poster) != NULL)
        trouble = poster_trouble(p->poster);
    else
        trouble = stream_client_trouble(p->stream, NULL);
    stream_program_set_trouble(p->daemon, trouble);
}

static void write_state(struct program *p);
static void end_drain(struct program *p);

/* For a stream that does not exist yet, `latest` means its beginning. A state without an id records this for the next start, because
 * the stream may exist by then. */
static void on_change(void *arg)
{
    struct program *p = arg;
    if (p->stream != NULL && stream_program_awaits(p->stream) && stream_program_begins_at_end(p->daemon) &&
        !p->state_found)
        write_state(p);
    update_health(p);
    if (p->poster != NULL && daemon_is_draining(p->daemon) && poster_is_idle(p->poster))
        end_drain(p);
}

/* A failed write is retried with the next commit. Delivery continues, so after a crash those lines are delivered again. */
static void write_state(struct program *p)
{
    bool failed = archive_state_write(p->state_path, &p->state) != 0;
    if (failed && !p->state_failed)
        log_error("cannot store the state", LOG_S("path", p->state_path), LOG_S("error", strerror(errno)));
    p->state_failed = failed;
    p->state_found = p->state_found || !failed;
}

static void commit(struct program *p)
{
    uint64_t cursor = poster_cursor(p->poster);
    const char *id = stream_client_cursor(p->stream)->id;
    if (*id == '\0' ||
        (cursor == p->state.cursor.offset && p->state.cursor.id[0] != '\0' && !p->state_failed))
        return;
    memcpy(p->state.cursor.id, id, STREAM_ID_TEXT);
    p->state.cursor.offset = cursor;
    write_state(p);
}

static void end_drain(struct program *p)
{
    commit(p);
    daemon_drained(p->daemon);
}

static void on_commit(evutil_socket_t fd, short what, void *arg)
{
    struct program *p = arg;
    (void)fd, (void)what;
    commit(p);
    update_health(p);
}

static void on_lines(struct bytes lines, void *arg)
{
    struct program *p = arg;
    poster_take(p->poster, lines, stream_client_cursor(p->stream)->offset);
    if (poster_is_full(p->poster))
        stream_client_pause(p->stream);
}

static void on_room(void *arg)
{
    struct program *p = arg;
    if (p->stream != NULL)
        stream_client_resume(p->stream);
}

static void on_begin(void *arg)
{
    struct program *p = arg;
    poster_pass_over(p->poster, stream_client_cursor(p->stream)->offset);
}

static void on_gap(uint64_t before, uint64_t after, void *arg)
{
    struct program *p = arg;
    (void)before;
    poster_pass_over(p->poster, after);
}

static bool on_refused(struct bytes line, void *arg)
{
    const char *path = ((struct program *)arg)->rejects;
    bool stored = reject_file_add(path, bytes_of(line.ptr, line.len - 1)) == 0;
    if (!stored)
        log_warn("cannot store a refused line", LOG_S("path", path), LOG_S("error", strerror(errno)));
    return stored;
}

static void on_into_itself(void *arg)
{
    stream_program_fail_into_itself(((struct program *)arg)->daemon);
}

/* Only an answer can show that a destination is the source stream itself. By then it has stored some batches. */
static void on_delivered(const struct http_reply_view *reply, void *arg)
{
    struct program *p = arg;
    struct stream_place place;
    stream_place_read(reply, &place);
    if (stream_place_is_same(&place, stream_client_place(p->stream)))
        on_into_itself(p);
}

static int start_poster(struct program *p, struct options *o, struct config_error *error)
{
    char why[ARCHIVE_ERROR_TEXT], *token;
    bool line_by_line = strstr(options_text(o, "destination"), "%s") != NULL;
    p->state_path = options_text(o, "state");
    p->state_lock = archive_lock_state(p->state_path, why);
    int found = p->state_lock < 0 ? -1 : archive_state_read(p->state_path, &p->state, why);
    bool foreign = found > 0 && strcmp(p->state.stream, options_string(o, "stream")) != 0;
    if (foreign)
        snprintf(why, sizeof why, "%.300s: state of the stream %s", p->state_path, p->state.stream);
    if (found < 0 || foreign) {
        options_refuse(o, "state", error, "%s", why);
        return EX_CONFIG;
    }
    p->state_found = found > 0;
    snprintf(p->state.stream, sizeof p->state.stream, "%s", options_string(o, "stream"));
    if (daemon_read_token(options_text(o, "destination_token_file"), &token, error) != 0)
        return EX_CONFIG;
    p->pool = http_pool_new(&(struct http_pool_config){.base = daemon_base(p->daemon),
                                .urls = options_text(o, "destination"),
                                .max_connections = (int)options_int(o, "parallel"),
                                .timeout = options_int(o, "timeout") * USEC_PER_MSEC,
                                .max_reply = HTTP_POOL_REPLY_MAX,
                                .cut_reply = true,
                                .auth_token = token},
        why, sizeof why);
    free(token);
    http_pool_register_stats(p->pool, daemon_stats(p->daemon));
    p->rejects = options_text(o, "rejects");
    p->poster = poster_new(&(struct poster_config){.base = daemon_base(p->daemon),
                               .pool = p->pool,
                               .get = strcmp(options_string(o, "method"), "GET") == 0,
                               .batch_lines = line_by_line ? 1 : (size_t)options_int(o, "batch"),
                               .batch_bytes = (size_t)options_int(o, "batch_bytes"),
                               .parallel = (size_t)options_int(o, "parallel"),
                               .gather = options_int(o, "gather") * USEC_PER_MSEC,
                               .skip_refused = options_bool(o, "skip_refused"),
                               .poison_limit = (uint64_t)options_int(o, "poison_limit"),
                               .on_refused = p->rejects != NULL ? on_refused : NULL,
                               .content_type = options_string(o, "content_type"),
                               .on_delivered = on_delivered,
                               .on_room = on_room,
                               .on_change = on_change,
                               .arg = p},
        p->state.cursor.offset);
    p->stream = stream_program_follow(p->daemon, p->state_found,
        &(struct stream_client_config){.pubsub = p->source,
            .from = p->state.cursor,
            .on_begin = on_begin,
            .on_lines = on_lines,
            .on_gap = on_gap,
            .on_change = on_change,
            .arg = p});
    int64_t every = options_int(o, "commit_every");
    const struct timeval tv = {every / 1000, every % 1000 * 1000};
    p->committer = event_new(daemon_base(p->daemon), -1, EV_PERSIST, on_commit, p);
    event_add(p->committer, &tv);
    return 0;
}

static int start_republish(struct program *p, struct options *o, struct config_error *error)
{
    char *token;
    if (daemon_read_token(options_text(o, "to_token_file"), &token, error) != 0)
        return EX_CONFIG;
    p->pool = http_pool_new(&(struct http_pool_config){.base = daemon_base(p->daemon),
                                .url = options_text(o, "to_url"),
                                .max_connections = 1,
                                .timeout = options_int(o, "timeout") * USEC_PER_MSEC,
                                .auth_token = token},
        error->text, sizeof error->text);
    free(token);
    if (p->pool == NULL)
        return EX_CONFIG;
    http_pool_register_stats(p->pool, daemon_stats(p->daemon));
    p->republisher = republisher_new(&(struct republisher_config){.base = daemon_base(p->daemon),
        .source = p->source,
        .destination = p->pool,
        .stream = options_string(o, "stream"),
        .to_stream = options_text(o, "to_stream"),
        .to_queue = options_text(o, "to_queue"),
        .producer = options_text(o, "producer"),
        .begin = options_string(o, "from"),
        .max_line = (size_t)options_int(o, "max_line"),
        .on_change = on_change,
        .on_into_itself = on_into_itself,
        .arg = p});
    return 0;
}

#define NUMBER(name, expression)                                                                             \
    static double read_##name(void *ctx)                                                                     \
    {                                                                                                        \
        struct program *p = ctx;                                                                             \
        return (double)(expression);                                                                         \
    }
NUMBER(lines, poster_numbers(p->poster).lines)
NUMBER(batches, poster_numbers(p->poster).batches)
NUMBER(failures, poster_numbers(p->poster).failures)
NUMBER(refused, poster_numbers(p->poster).refused)
NUMBER(refuses_all, poster_numbers(p->poster).refuses_all)
NUMBER(offset, p->republisher != NULL ? republisher_numbers(p->republisher).offset : poster_cursor(p->poster))

static void register_stats(struct program *p)
{
    static const struct {
        const char *name, *help;
        stats_gauge_fn *read;
    } counters[] = {
        {"lines_delivered_total", "Lines delivered (2xx)", read_lines},
        {"batches_delivered_total", "Requests answered with 2xx", read_batches},
        {"tries_failed_total", "Requests that failed", read_failures},
        {"lines_refused_total", "Lines left out because the destinations refused them", read_refused},
    };
    struct stats *s = daemon_stats(p->daemon);
    stats_gauge(s, "offset_bytes", NULL, "Offset below which the stream is delivered", read_offset, p);
    if (p->poster == NULL)
        return;
    for (size_t i = 0; i < sizeof counters / sizeof *counters; i++)
        stats_counter_read(s, counters[i].name, NULL, counters[i].help, counters[i].read, p);
    stats_gauge(s, "refuses_all", NULL, "1 while poison_limit is reached and no more lines are left out",
        read_refuses_all, p);
}

static int start(struct daemon *d, void **ctx, struct config_error *error)
{
    struct options *o = daemon_options(d);
    struct program *p = mem_zalloc(sizeof *p);
    *ctx = p;
    p->daemon = d;
    p->state_lock = -1;
    p->source = stream_program_connect(d, error);
    if (p->source == NULL)
        return EX_CONFIG;
    int status =
        options_text(o, "destination") == NULL ? start_republish(p, o, error) : start_poster(p, o, error);
    if (status != 0)
        return status;
    register_stats(p);
    daemon_set_not_ready(d, "asking pubsub for the stream");
    return 0;
}

/* Waits for the requests under way, so that no line is delivered again. A republisher continues from the destination's mark. */
static void drain(void *ctx)
{
    struct program *p = ctx;
    if (p->poster == NULL) {
        daemon_drained(p->daemon);
        return;
    }
    stream_client_stop(p->stream);
    poster_stop(p->poster);
    if (poster_is_idle(p->poster))
        end_drain(p);
    else
        commit(p);
}

static void stop(void *ctx)
{
    struct program *p = ctx;
    if (p == NULL)
        return;
    stats_remove_gauges(daemon_stats(p->daemon), p);
    if (p->committer != NULL)
        event_free(p->committer);
    republisher_free(&p->republisher);
    stream_client_free(&p->stream);
    http_pool_free(&p->pool);
    poster_free(&p->poster);
    http_client_free(&p->source);
    archive_state_free(&p->state);
    if (p->state_lock >= 0)
        io->close(p->state_lock);
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
