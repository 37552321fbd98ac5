/* http: the read protocol (docs/guide/protocol.md) over the current generation, and /reload. */
#include "sortdb/answer.h"
#include "sortdb/sortdb_app.h"
#include "archive/period_walk.h"
#include "counts/records.h"
#include "daemon/read_protocol.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define WALK_RECORDS_MAX 4096 /* of one answer with rollups; more follow on the next page */

struct generation *app_generation(struct app *app)
{
    pthread_mutex_lock(&app->lock);
    struct generation *g = app->generation ? generation_ref(app->generation) : NULL;
    pthread_mutex_unlock(&app->lock);
    return g;
}

/* Takes the newest generation. The reloader's thread has the last reference to its predecessor. */
static void look_for_newer(struct server *s)
{
    uint64_t version = atomic_load_explicit(&s->app->version, memory_order_acquire);
    if (version == s->version)
        return;
    generation_unref(&s->generation);
    s->generation = app_generation(s->app);
    s->version = version;
}

/* Returns the current generation, or NULL after answering 503. It is valid during the call of the handler. */
static struct generation *begin_answer(struct server *s, struct http_request *req)
{
    look_for_newer(s);
    if (!s->generation)
        http_problem(req, 503, "not-ready", NULL, "opening the files");
    return s->generation;
}

static void add_headers(struct http_request *req, const struct generation *g, uint32_t shard)
{
    struct generation_info info = generation_info(g);
    http_add_header(req, "X-Millrace-Generation", "%" PRIu64, info.number);
    http_add_header(req, "X-Millrace-Through", "%" PRIu64, info.through);
    if (shard != GENERATION_NO_SHARD)
        http_add_header(req, "X-Millrace-Shard", "%" PRIu32, shard);
}

/* A truncated file may lack the key, so check for truncation before answering 404. */
static void reply_missing(struct http_request *req, const struct generation *g)
{
    char error[GENERATION_ERROR_TEXT];
    if (generation_is_whole(g, error))
        read_protocol_reply_missing(req);
    else
        http_problem(req, 503, "storage-failed", "restore the file, then POST /reload", "%s", error);
}

static bool find(
    const struct app *app, struct generation *g, struct bytes key, struct bytes *line, uint32_t *shard)
{
    bool found = generation_find(g, key, line, shard);
    stats_add(found ? app->get_hits : app->get_misses, 1);
    return found;
}

static void get(struct http_request *req, void *ctx)
{
    struct server *s = ctx;
    struct bytes key, line;
    uint32_t shard;
    struct generation *g = begin_answer(s, req);
    if (!g || !read_protocol_get(req, &key))
        return;
    bool found = find(s->app, g, key, &line, &shard);
    add_headers(req, g, shard);
    if (!found) {
        reply_missing(req, g);
        return;
    }
    struct bytes value = read_protocol_value(line, generation_separator(g));
    answer_send(req, g, &(struct answer_lines){.found = &value, .n_found = 1}, &s->scratch);
}

static void mget(struct http_request *req, void *ctx)
{
    struct server *s = ctx;
    struct bytes key, lines[URL_PARAMS_MAX];
    struct answer_lines answer = {.found = lines};
    struct generation *g = begin_answer(s, req);
    if (!g || !read_protocol_mget(req))
        return;
    for (size_t at = 0; read_protocol_next_key(req, &at, &key);) {
        uint32_t shard;
        if (find(s->app, g, key, &lines[answer.n_found], &shard))
            answer.n_found++;
    }
    add_headers(req, g, generation_info(g).shards == 1 ? 0 : GENERATION_NO_SHARD);
    answer_send(req, g, &answer, &s->scratch);
}

/* Frees the cursor. */
static void send_cursor(struct server *s, struct http_request *req, struct generation *g,
    struct answer_lines *lines, uint64_t limit, bool may_be_empty)
{
    struct bytes next;
    add_headers(req, g, generation_cursor_shard(&lines->cursor));
    if (generation_cursor_bytes(&lines->cursor) == 0 && !may_be_empty) {
        generation_cursor_free(&lines->cursor);
        reply_missing(req, g);
        return;
    }
    if (generation_cursor_cut(&lines->cursor, limit, s->app->max_answer, &next))
        read_protocol_add_next(req, next);
    answer_send(req, g, lines, &s->scratch);
}

static void fwmatch(struct http_request *req, void *ctx)
{
    struct server *s = ctx;
    struct read_span span;
    struct answer_lines lines = {0};
    struct generation *g = begin_answer(s, req);
    if (!g || !read_protocol_fwmatch(req, &span))
        return;
    generation_prefix(g, span.prefix, span.start, &lines.cursor);
    bool found = generation_cursor_bytes(&lines.cursor) > 0;
    stats_add(found ? s->app->fwmatch_hits : s->app->fwmatch_misses, 1);
    send_cursor(s, req, g, &lines, span.limit, span.start.len > 0);
}

static void append_subs(struct bytes line, char separator, const struct read_span *span, struct buf *out)
{
    struct record record;
    line.len -= line.len > 0 && line.ptr[line.len - 1] == '\n';
    if (!record_split(line, separator, &record))
        return;
    char before = separator;
    for (size_t i = 0; i < span->n_subs; i++) {
        size_t place = sorted_line_seek(line, separator, span->subs[i]);
        if (!bytes_equal(sorted_line_name(line, place), span->subs[i]))
            continue;
        const char *end = memchr(line.ptr + place, ' ', line.len - place);
        if (before == separator)
            buf_append_bytes(out, record.key);
        buf_append_char(out, before);
        buf_append(out, line.ptr + place, (end ? (size_t)(end - line.ptr) : line.len) - place);
        before = ' ';
    }
    if (before != separator)
        buf_append_char(out, '\n');
}

/* Answers with the few sub keys of these lines, or with 404 if there are none and no lines follow on another page. */
static void send_subs(struct server *s, struct http_request *req, const struct generation *g,
    const struct bytes *lines, size_t n, const struct read_span *span, bool is_last)
{
    char error[GENERATION_ERROR_TEXT];
    buf_clear(&s->scratch);
    for (size_t i = 0; i < n; i++)
        append_subs(lines[i], generation_separator(g), span, &s->scratch);
    if ((s->scratch.len == 0 && is_last) || !generation_is_whole(g, error))
        reply_missing(req, g);
    else
        http_reply(req, 200, READ_PROTOCOL_TYPE, buf_bytes(&s->scratch));
}

/* Answers a range of one key's subtotals with rollups in place of the records within them. */
static void range_with_rollups(
    struct server *s, struct http_request *req, struct generation *g, const struct read_span *span)
{
    struct period_walk walk;
    struct bytes line;
    uint64_t most = span->limit > 0 && span->limit < WALK_RECORDS_MAX ? span->limit : WALK_RECORDS_MAX,
             bytes = 0;
    if (!period_walk_init(&walk, span->start, span->end, span->largest)) {
        http_problem(req, 400, "bad-parameter", NULL,
            "with rollups, start and end must be keys of one subtotal, and end must have an hour");
        return;
    }
    struct bytes *lines = mem_alloc(WALK_RECORDS_MAX * sizeof(*lines));
    struct answer_lines answer = {.found = lines};
    uint32_t shard = generation_shard(g, span->start);
    add_headers(req, g, shard);
    period_walk_begin(&walk, generation_text(g, shard));
    bool more = false;
    while (!more && period_walk_next(&walk, &line)) {
        more = answer.n_found == most || (answer.n_found > 0 && bytes >= s->app->max_answer);
        struct record record;
        if (more) {
            record_split(line, generation_separator(g), &record);
            read_protocol_add_next(req, record.key);
            break;
        }
        lines[answer.n_found++] = line;
        bytes += span->n_subs > 0 ? 0 : line.len;
    }
    if (span->n_subs > 0)
        send_subs(s, req, g, lines, answer.n_found, span, !more);
    else if (answer.n_found == 0)
        reply_missing(req, g);
    else
        answer_send(req, g, &answer, &s->scratch);
    free(lines);
}

static void range(struct http_request *req, void *ctx)
{
    struct server *s = ctx;
    struct read_span span;
    struct answer_lines lines = {0};
    struct generation *g = begin_answer(s, req);
    if (!g || !read_protocol_range(req, generation_separator(g), &span))
        return;
    if (span.has_rollups) {
        range_with_rollups(s, req, g, &span);
        return;
    }
    generation_range(g, span.start, span.end, &lines.cursor);
    send_cursor(s, req, g, &lines, span.limit, false);
}

/* bitly's answer, or JSON. */
static void reply_reloaded(struct http_request *req, const struct generation *g)
{
    struct generation_info info = generation_info(g);
    struct bytes format;
    add_headers(req, g, GENERATION_NO_SHARD);
    if (http_param(req, "format", &format) && bytes_equal_str(format, "json"))
        http_replyf(req, 200, "application/json",
            "{\"generation\":%" PRIu64 ",\"through\":%" PRIu64 ",\"content\":\"%" PRIu64 "\"}\n", info.number,
            info.through, info.content);
    else
        http_reply(req, 200, NULL, BYTES_LITERAL("db reloaded\n"));
}

static void on_caller_gone(struct http_request *req, void *arg)
{
    struct reload_call *call = arg;
    (void)req;
    TAILQ_REMOVE(&call->server->calls, call, link);
    free(call);
}

static void reload(struct http_request *req, void *ctx)
{
    struct server *s = ctx;
    struct reload_call *call = mem_zalloc(sizeof(*call));
    call->server = s;
    call->req = req;
    call->ticket = reloader_request(s->app->reloader);
    TAILQ_INSERT_TAIL(&s->calls, call, link);
    http_on_gone(req, on_caller_gone, call);
}

/* After a publication: takes the newest generation, so that no idle thread keeps an old one, and answers the calls. */
static void on_published(void *arg)
{
    struct server *s = arg;
    struct app *app = s->app;
    struct reload_call *call = TAILQ_FIRST(&s->calls);
    char error[GENERATION_ERROR_TEXT];
    pthread_mutex_lock(&app->lock);
    uint64_t answered = app->answered;
    memcpy(error, app->reload_error, sizeof(error));
    pthread_mutex_unlock(&app->lock);
    look_for_newer(s);
    while (call) {
        struct reload_call *next = TAILQ_NEXT(call, link);
        if (call->ticket <= answered) {
            TAILQ_REMOVE(&s->calls, call, link);
            if (error[0])
                http_problem(call->req, 503, "reload-failed",
                    s->generation ? "the old files keep serving" : NULL, "%s", error);
            else
                reply_reloaded(call->req, s->generation);
            free(call);
        }
        call = next;
    }
}

void app_publish(struct app *app, const struct reloader_outcome *o)
{
    struct generation *old = NULL;
    pthread_mutex_lock(&app->lock);
    if (o->generation) {
        old = app->generation;
        app->generation = o->generation;
        atomic_fetch_add_explicit(&app->version, 1, memory_order_release);
    }
    memcpy(app->reload_error, o->error, sizeof(app->reload_error));
    app->answered = o->ticket;
    pthread_mutex_unlock(&app->lock);
    generation_unref(&old);
}

void app_answer_calls(struct app *app)
{
    on_published(&app->main);
    for (size_t i = 0; i < app->n_workers; i++)
        loop_notify_wake(app->workers[i].notify);
}

void server_begin(struct server *s, struct app *app, struct event_base *base)
{
    s->app = app;
    TAILQ_INIT(&s->calls);
    s->notify = loop_notify_new(base, on_published, s);
    if (!s->notify)
        abort(); /* out of memory, as in mem_alloc */
}

void server_end(struct server *s)
{
    generation_unref(&s->generation);
    buf_free(&s->scratch);
    loop_notify_free(&s->notify);
}

static void stop_daemon(void *arg)
{
    daemon_begin_stop(arg);
}

static void exit_daemon(struct http_request *req, void *ctx)
{
    const struct server *s = ctx;
    http_reply(req, 200, NULL, BYTES_LITERAL("stopping\n"));
    daemon_post(s->app->daemon, stop_daemon, s->app->daemon);
}

static void append_number(struct buf *out, bool json, const char *name, uint64_t n)
{
    buf_printf(out, json ? ",\"%s\":%" PRIu64 : "%s: %" PRIu64 "\n", name, n);
}

/* Appends a number of an endpoint: JSON "get_hits", text "/get hits". */
static void append_of(
    struct buf *out, bool json, const char *endpoint, const char *name, const char *words, uint64_t n)
{
    char full[64];
    snprintf(full, sizeof full, json ? "%s_%s" : "/%s %s", endpoint, json ? name : words);
    append_number(out, json, full, n);
}

static void append_latencies(const struct app *app, bool json, struct buf *out)
{
    static const char *const endpoints[] = {"get", "mget", "fwmatch", "range"};
    uint64_t total = 0;
    for (size_t i = 0; i < sizeof endpoints / sizeof *endpoints; i++) {
        char labels[32];
        snprintf(labels, sizeof labels, "endpoint=\"/%s\"", endpoints[i]);
        /* The HTTP server has registered this histogram. */
        const struct stats_histogram *h =
            stats_histogram(daemon_stats(app->daemon), "request_seconds", labels, "");
        append_of(out, json, endpoints[i], "95", "95%", (uint64_t)stats_quantile(h, 0.95));
        append_of(out, json, endpoints[i], "99", "99%", (uint64_t)stats_quantile(h, 0.99));
        append_of(
            out, json, endpoints[i], "average_request", "average request (usec)", (uint64_t)stats_mean(h));
        append_of(out, json, endpoints[i], "requests", "requests", stats_observations(h));
        total += stats_observations(h);
    }
    append_number(out, json, json ? "total_requests" : "total requests", total);
}

void app_extra_stats(void *ctx, bool json, struct buf *out)
{
    const struct server *server = ctx;
    struct generation *g = server ? app_generation(server->app) : NULL;
    if (!g)
        return;
    const struct app *app = server->app;
    struct generation_info info = generation_info(g);
    generation_unref(&g);
    append_latencies(app, json, out);
    append_of(out, json, "get", "hits", "hits", stats_read(app->get_hits));
    append_of(out, json, "get", "misses", "misses", stats_read(app->get_misses));
    append_of(out, json, "fwmatch", "hits", "hits", stats_read(app->fwmatch_hits));
    append_of(out, json, "fwmatch", "misses", "misses", stats_read(app->fwmatch_misses));
    append_number(out, json, "db_size", info.bytes);
    append_number(out, json, "db_mtime", (uint64_t)info.modified);
    append_number(out, json, "generation", info.number);
    append_number(out, json, "through", info.through);
    append_number(out, json, "shards", info.shards);
    append_number(out, json, "records", info.records);
    append_number(out, json, "bytes", info.bytes);
}

const struct http_route app_routes[] = {
    READ_PROTOCOL_ROUTES(get, mget, fwmatch, range),
    {.path = "/reload",
        .methods = HTTP_GET_ | HTTP_POST_,
        .handler = reload,
        .help = "open and check the newest files, then serve them"},
    {.path = "/exit",
        .methods = HTTP_GET_ | HTTP_POST_,
        .flags = HTTP_ROUTE_NEEDS_TOKEN | HTTP_ROUTE_NO_HEAD,
        .handler = exit_daemon,
        .help = "stop the daemon, as SIGTERM does"},
    {0},
};
