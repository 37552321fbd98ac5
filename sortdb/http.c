/* http: the read protocol (docs/guide/protocol.md) over the current generation, and /reload. */
#include "sortdb/answer.h"
#include "sortdb/sortdb_app.h"
#include "archive/set_line.h"
#include "archive/key_walk.h"
#include "archive/period_walk.h"
#include "archive/sub_filter.h"
#include "counts/records.h"
#include "read/read_protocol.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define WALK_RECORDS_MAX 4096 /* maximum number of records on a page of an answer with rollups */

struct generation *app_generation(struct app *app)
{
    pthread_mutex_lock(&app->lock);
    struct generation *g = app->generation ? generation_ref(app->generation) : NULL;
    pthread_mutex_unlock(&app->lock);
    return g;
}

/* Takes the newest generation. The reloader's thread holds the last reference to the old generation, and unmaps it. */
static void look_for_newer(struct server *s)
{
    uint64_t version = atomic_load_explicit(&s->app->version, memory_order_acquire);
    if (version == s->version)
        return;
    generation_unref(&s->generation);
    s->generation = app_generation(s->app);
    s->version = version;
}

/* Returns the current generation, which is valid until the handler returns, or NULL after answering 503. */
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
    http_add_header_u64(req, "X-Millrace-Generation", info.number);
    if (info.content != 0)
        http_add_header_u64(req, "X-Millrace-Content", info.content);
    if (info.pipeline != 0)
        http_add_header_u64(req, "X-Millrace-Pipeline", info.pipeline);
    http_add_header_u64(req, "X-Millrace-Through", info.through);
    http_add_header_u64(req, "X-Millrace-Stored-Until", (uint64_t)info.until);
    if (info.quarters_since > 0)
        http_add_header_u64(req, "X-Millrace-Quarters-Since", (uint64_t)info.quarters_since);
    if (shard != GENERATION_NO_SHARD)
        http_add_header_u64(req, "X-Millrace-Shard", shard);
}

static void add_counter(struct http_request *req, const struct generation *g)
{
    struct bytes ns = read_protocol_namespace(req);
    struct generation_counter counter = generation_counter(g, ns);
    read_protocol_add_since(req, counter.since, bytes_equal_str(ns, "lookup") ? 0 : counter.not_counted);
    read_protocol_add_coarse(req, &counter.coarse);
}

/* Answers 404, or 503 if the file is truncated, because the missing part may contain the key. */
static void reply_missing(struct http_request *req, const struct generation *g, uint32_t shard)
{
    struct error error;
    if (generation_is_whole(g, shard, &error))
        read_protocol_reply_missing(req);
    else
        http_problem(req, 503, "storage-failed", "restore the file, then POST /reload", "%s", error.text);
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
        reply_missing(req, g, shard);
        return;
    }
    struct bytes value = read_protocol_value(line, generation_separator(g));
    answer_send(req, g, &(struct answer_lines){.found = &value, .n_found = 1, .shard = shard}, &s->scratch);
}

static void mget(struct http_request *req, void *ctx)
{
    struct server *s = ctx;
    struct bytes key, lines[URL_PARAMS_MAX];
    struct answer_lines answer = {.found = lines, .shard = GENERATION_NO_SHARD};
    struct generation *g = begin_answer(s, req);
    if (!g || !read_protocol_mget(req))
        return;
    for (size_t at = 0; read_protocol_next_key(req, &at, &key);) {
        uint32_t shard;
        if (find(s->app, g, key, &lines[answer.n_found], &shard))
            answer.n_found++;
    }
    add_headers(req, g, generation_info(g).shards == 1 ? 0 : GENERATION_NO_SHARD);
    add_counter(req, g);
    answer_send(req, g, &answer, &s->scratch);
}

static uint64_t most_bytes(const struct server *s, const struct read_span *span)
{
    uint64_t most = s->app->max_answer;
    return span->max_bytes > 0 && span->max_bytes < most ? span->max_bytes : most;
}

static void add_next(struct http_request *req, const struct generation *g, const struct generation_cut *cut)
{
    struct buf next = {0};
    buf_append_bytes(&next, cut->next);
    if (cut->name.len > 0)
        buf_append_char(&next, generation_separator(g));
    buf_append_bytes(&next, cut->name);
    read_protocol_add_next(req, buf_bytes(&next));
    buf_free(&next);
}

/* Sets lines->first to the end of the line, from the position inside the line that the request names. Returns true if
 * the answer also ends inside this line. */
static bool begin_inside(const struct generation *g, struct bytes line, const struct read_span *span,
    uint64_t most, struct answer_lines *lines, struct generation_cut *cut)
{
    char separator = generation_separator(g);
    size_t from = sorted_line_seek(line, separator, span->start_name);
    if (sorted_line_name(line, from).len == 0)
        return false;
    lines->before = bytes_of(line.ptr, span->start.len + 1);
    bool is_cut = generation_cut_line(g, line, from, most, cut);
    lines->first = is_cut ? cut->part : bytes_of(line.ptr + from, line.len - from);
    cut->part = BYTES_NONE;
    cut->records = 1;
    cut->bytes = lines->first.len;
    return is_cut;
}

/* Answers with the lines of lines->cursor, and frees the cursor. If the request names a position inside a record, the
 * end of this record precedes the lines of the cursor. */
static void send_cursor(struct server *s, struct http_request *req, struct generation *g,
    struct answer_lines *lines, const struct read_span *span, bool may_be_empty)
{
    struct generation_cut cut = {0};
    struct bytes line;
    bool more = span->start_name.len > 0 && generation_find(g, span->start, &line, &lines->shard) &&
                begin_inside(g, line, span, most_bytes(s, span), lines, &cut);
    lines->shard = generation_cursor_shard(&lines->cursor);
    add_headers(req, g, lines->shard);
    if (more)
        generation_cursor_free(&lines->cursor);
    else if (generation_cursor_cut(&lines->cursor, span->limit, most_bytes(s, span), &cut))
        more = true;
    lines->last = cut.part;
    if (more)
        add_next(req, g, &cut);
    else if (lines->first.len == 0 && generation_cursor_bytes(&lines->cursor) == 0 && !may_be_empty) {
        generation_cursor_free(&lines->cursor);
        reply_missing(req, g, lines->shard);
        return;
    }
    answer_send(req, g, lines, &s->scratch);
}

/* Returns the start of a cursor: the key, or the key and a separator if the request names a position inside the key's
 * record. The separator makes the cursor start after this record. */
static struct bytes cursor_start(struct server *s, const struct generation *g, const struct read_span *span)
{
    if (span->start_name.len == 0)
        return span->start;
    buf_clear(&s->scratch);
    buf_append_bytes(&s->scratch, span->start);
    buf_append_char(&s->scratch, generation_separator(g));
    return buf_bytes(&s->scratch);
}

static void fwmatch(struct http_request *req, void *ctx)
{
    struct server *s = ctx;
    struct read_span span;
    struct answer_lines lines = {0};
    struct generation *g = begin_answer(s, req);
    if (!g || !read_protocol_fwmatch(req, generation_separator(g), generation_is_archive(g), &span))
        return;
    generation_prefix(g, span.prefix, cursor_start(s, g, &span), &lines.cursor);
    bool found = generation_cursor_bytes(&lines.cursor) > 0;
    stats_add(found ? s->app->fwmatch_hits : s->app->fwmatch_misses, 1);
    send_cursor(s, req, g, &lines, &span, span.start.len > 0);
}

/* Answers with the requested sub keys of the lines. Answers 404 if the lines have none of the requested sub keys and no
 * further page exists (`is_last`). */
static void send_subs(struct server *s, struct http_request *req, const struct generation *g,
    const struct answer_lines *lines, const struct read_span *span, bool is_last)
{
    buf_clear(&s->scratch);
    for (size_t i = 0; i < lines->n_found; i++)
        sub_filter_append(lines->found[i], generation_separator(g), span->subs, span->n_subs, &s->scratch);
    if ((s->scratch.len == 0 && is_last) || !generation_is_whole(g, lines->shard, NULL))
        reply_missing(req, g, lines->shard);
    else
        http_reply(req, 200, READ_PROTOCOL_TYPE, buf_bytes(&s->scratch));
}

/* Collects the lines of `walk`, up to the limits of the request. Returns true if more lines follow. */
static bool walk_lines(const struct server *s, const struct generation *g, const struct read_span *span,
    struct period_walk *walk, struct answer_lines *answer, struct generation_cut *cut)
{
    uint64_t most = span->limit > 0 && span->limit < WALK_RECORDS_MAX ? span->limit : WALK_RECORDS_MAX,
             max_bytes = most_bytes(s, span);
    struct bytes line;
    struct record record;
    bool needs_all =
        span->n_subs > 0; /* lines are not cut, because the answer contains few counts of each line */
    while (period_walk_next(walk, &line)) {
        if (cut->records == most || (cut->records > 0 && cut->bytes >= max_bytes)) {
            record_split(line, generation_separator(g), &record);
            cut->next = record.key;
            return true;
        }
        bool is_start = span->start_name.len > 0 && !needs_all && cut->records == 0 &&
                        record_split(line, generation_separator(g), &record) &&
                        bytes_equal(record.key, span->start);
        if (is_start && begin_inside(g, line, span, max_bytes, answer, cut))
            return true;
        if (is_start)
            continue;
        if (!needs_all && generation_cut_line(g, line, 0, max_bytes - cut->bytes, cut)) {
            answer->last = cut->part;
            return true;
        }
        answer->found[answer->n_found++] = line;
        cut->records++;
        cut->bytes += needs_all ? 0 : line.len;
    }
    return false;
}

static void reply_bad_rollups(struct http_request *req)
{
    http_problem(req, 400, "bad-parameter", NULL,
        "with rollups, start and end must be keys of one subtotal, and end must have an hour or quarter "
        "hour");
}

/* Appends the sets of `walk` with their members. Sets cut->next, and cut->name in `place`, if the answer is full. */
static enum set_line_result append_sets(const struct server *s, const struct generation *g, uint32_t shard,
    const struct read_span *span, struct period_walk *walk, struct buf *lines, struct buf *place,
    struct generation_cut *cut, struct error *error)
{
    enum set_line_result r = SET_LINE_WHOLE;
    uint64_t most = most_bytes(s, span);
    struct bytes line;
    struct record record;
    while (r == SET_LINE_WHOLE && period_walk_next(walk, &line)) {
        record_split(line, generation_separator(g), &record);
        cut->next = record.key;
        if (lines->len > most || (span->limit > 0 && cut->records == span->limit))
            return SET_LINE_CUT;
        struct bytes start = bytes_equal(record.key, span->start) ? span->start_name : BYTES_NONE;
        r = set_line_append(g, shard, line, start, most, lines, place, error);
        cut->records++;
    }
    cut->name = buf_bytes(place);
    return r;
}

/* Answers a range of the sets of one key, with their members. The answer ends after the chunk that exceeds max_answer. */
static void range_of_sets(
    struct server *s, struct http_request *req, struct generation *g, const struct read_span *span)
{
    struct period_walk walk;
    struct generation_cut cut = {0};
    struct buf lines = {0}, place = {0};
    struct error error;
    enum set_line_result r = SET_LINE_WHOLE;
    uint32_t shard = generation_shard(g, span->start);
    if (!period_walk_init(&walk, span->start, span->end, span->largest)) {
        reply_bad_rollups(req);
        return;
    }
    const struct sorted_text *text = generation_set_text(g, shard);
    if (text) {
        period_walk_begin(&walk, text);
        r = append_sets(s, g, shard, span, &walk, &lines, &place, &cut, &error);
    }
    add_headers(req, g, shard);
    http_add_header(req, "X-Millrace-Rollups", "1");
    if (r == SET_LINE_CUT)
        add_next(req, g, &cut);
    if (r == SET_LINE_FAILED)
        http_problem(req, 503, "storage-failed", "restore the file, then POST /reload", "%s", error.text);
    else if (lines.len == 0)
        reply_missing(req, g, shard);
    else
        http_reply_buf(req, 200, READ_PROTOCOL_TYPE, &lines);
    buf_free(&lines);
    buf_free(&place);
}

/* Answers a range of the subtotals of one key. Where a rollup exists, the answer contains the rollup instead of its
 * records. */
static void range_with_rollups(
    struct server *s, struct http_request *req, struct generation *g, const struct read_span *span)
{
    struct period_walk walk;
    struct generation_cut cut = {0};
    if (!period_walk_init(&walk, span->start, span->end, span->largest)) {
        reply_bad_rollups(req);
        return;
    }
    struct answer_lines answer = {.found = mem_alloc(WALK_RECORDS_MAX * sizeof(struct bytes)),
        .shard = generation_shard(g, span->start)};
    add_headers(req, g, answer.shard);
    http_add_header(req, "X-Millrace-Rollups", "1");
    period_walk_begin(&walk, generation_text(g, answer.shard));
    bool more = walk_lines(s, g, span, &walk, &answer, &cut);
    const struct sorted_text *sets = generation_set_text(g, answer.shard);
    if (sets && span->n_subs == 0 && cut.records == 0 &&
        period_walk_init(&walk, span->start, span->end, span->largest)) {
        period_walk_begin(&walk, sets);
        more = walk_lines(s, g, span, &walk, &answer, &cut);
    }
    if (more)
        add_next(req, g, &cut);
    if (span->n_subs > 0)
        send_subs(s, req, g, &answer, span, !more);
    else if (answer.first.len + answer.last.len == 0 && answer.n_found == 0)
        reply_missing(req, g, answer.shard);
    else
        answer_send(req, g, &answer, &s->scratch);
    free(answer.found);
}

static void range(struct http_request *req, void *ctx)
{
    struct server *s = ctx;
    struct read_span span;
    struct answer_lines lines = {0};
    struct generation *g = begin_answer(s, req);
    if (!g || !read_protocol_range(req, generation_separator(g), generation_is_archive(g), &span))
        return;
    add_counter(req, g);
    if (span.has_rollups && span.has_members) {
        range_of_sets(s, req, g, &span);
        return;
    }
    if (span.has_rollups) {
        range_with_rollups(s, req, g, &span);
        return;
    }
    generation_range(g, cursor_start(s, g, &span), span.end, &lines.cursor);
    send_cursor(s, req, g, &lines, &span, span.start_name.len > 0);
}

static void keys(struct http_request *req, void *ctx)
{
    struct server *s = ctx;
    struct read_keys k;
    struct key_walk_answer a = {0};
    struct error error;
    struct generation *g = begin_answer(s, req);
    if (!g || !read_protocol_keys(req, &k))
        return;
    add_headers(req, g, GENERATION_NO_SHARD);
    const struct key_walk_query q = {.prefix = k.prefix,
        .start = k.start,
        .contains = k.contains,
        .ns = k.ns,
        .n_ns = k.n_ns,
        .limit = k.limit,
        .max_search = k.max_search};
    if (!key_walk_run(g, &q, &a)) {
        http_problem(req, 422, "no-texts", "serve an archive (--archive)", "a db_file has no index of texts");
    } else if (!generation_is_whole(g, GENERATION_NO_SHARD, &error)) {
        http_problem(req, 503, "storage-failed", "restore the file, then POST /reload", "%s", error.text);
    } else if (a.is_too_large) {
        http_problem(req, 413, "search-too-large", "raise max_search, or give a longer prefix",
            "the records and texts of these keys have more than %" PRIu64 " bytes", k.max_search);
    } else {
        if (a.more)
            read_protocol_add_next(req, buf_bytes(&a.next));
        http_reply_buf(req, 200, READ_PROTOCOL_TYPE, &a.lines);
    }
    key_walk_answer_free(&a);
}

/* Replies to a reload that succeeded, with bitly's text or JSON. */
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
    struct reload_call *call = mem_zalloc(sizeof *call);
    call->server = s;
    call->req = req;
    call->ticket = reloader_request(s->app->reloader);
    TAILQ_INSERT_TAIL(&s->calls, call, link);
    http_on_gone(req, on_caller_gone, call);
}

/* Called after app_publish. Takes the newest generation, so that no idle thread keeps an old generation, and answers
 * the waiting reload calls. */
static void on_published(void *arg)
{
    struct server *s = arg;
    struct app *app = s->app;
    struct reload_call *call = TAILQ_FIRST(&s->calls);
    struct error error;
    pthread_mutex_lock(&app->lock);
    uint64_t answered = app->answered;
    error = app->reload_error;
    pthread_mutex_unlock(&app->lock);
    look_for_newer(s);
    while (call) {
        struct reload_call *next = TAILQ_NEXT(call, link);
        if (call->ticket <= answered) {
            TAILQ_REMOVE(&s->calls, call, link);
            if (error.code != 0)
                http_problem(call->req, 503, "reload-failed",
                    s->generation ? "sortdb still serves the old files" : NULL, "%s", error.text);
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
    app->reload_error = o->error;
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
        abort(); /* memory ran out; mem_alloc also aborts */
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

/* Appends a number of an endpoint. The number of hits of get is named "get_hits" in JSON and "/get hits" in text. */
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
        /* The HTTP server has registered the histogram of each endpoint. */
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
    READ_PROTOCOL_ROUTES(get, mget, fwmatch, range, keys),
    HTTP_ROUTE("/reload", HTTP_GET_ | HTTP_POST_, 0, reload, NULL,
        "open and check the newest files, then serve them"),
    HTTP_ROUTE("/exit", HTTP_GET_ | HTTP_POST_, HTTP_ROUTE_NEEDS_TOKEN | HTTP_ROUTE_NO_HEAD, exit_daemon,
        NULL, "stop the daemon, as SIGTERM does"),
    {0},
};
