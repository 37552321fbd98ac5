#include "aggregator/http_reads.h"

#include "aggregator/aggregator_app.h"
#include "aggregator/slice_scrub.h"
#include "base/rfc3339.h"
#include "counts/records.h"
#include "read/read_protocol.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define WORK_MAX 50000          /* counts that the loop reads for one request, in a few milliseconds */
#define WORK_KEY (WORK_MAX / 2) /* counts per key of a request with few keys, which API questions share */
#define WORK_TINY 4096 /* counts of each key of such a request that the loop reads even in a full turn */
#define TINY_KEYS 9    /* limit of keys that the API combines in one request */
#define TURN (50 * USEC_PER_MSEC)
#define TURN_READS (20 * USEC_PER_MSEC) /* part of TURN for small reads */

/* The form of the answer with the records that were found. */
enum reply_kind { REPLY_VALUE, REPLY_ALL, REPLY_RECORDS, REPLY_PAGE };

/* A read that waits for the thread or runs in it. */
struct large_read {
    struct app *app;
    struct http_request *req; /* NULL: the client has disconnected */
    enum reply_kind kind;
    struct reads *reads;           /* NULL: a read by minute */
    struct minute_query query;     /* the query of a read by minute; its texts are those of the request */
    struct minute_read *by_minute; /* set when a read by minute begins */
    struct reads_answer answer;
    int result;
    struct large_read *next, **link;
};

bool http_reads_check_open(const struct app *app, struct http_request *req)
{
    if (!app->watermark)
        http_problem(req, 503, "not-ready", NULL, "%s", app->health);
    return app->watermark != NULL;
}

bool http_reads_check_caught_up(const struct app *app, struct http_request *req)
{
    if (!http_reads_check_open(app, req))
        return false;
    if (!app->answers)
        http_problem(req, 503, "not-ready", NULL, "%s", app->health);
    return app->answers;
}

/* Adds headers if the request's counter was added later than others or is not configured. */
static void add_since(struct http_request *req, const struct app *app)
{
    struct bytes ns = read_protocol_namespace(req);
    bool is_not_counted = ns.ptr && !counters_find(app->counters, ns) &&
                          !counters_find_unique(app->counters, ns) && !bytes_equal_str(ns, "lookup");
    read_protocol_add_since(req, counted_since_of(&app->since, ns), is_not_counted);
}

/* Adds headers with the state that a read sees. Call add_headers once for each request, when the read begins. */
static void add_headers(struct http_request *req, const struct app *app)
{
    http_add_header(req, "X-Millrace-Slice", "%" PRIu64, aggregate_open_slice(app->aggregate));
    http_add_header(req, "X-Millrace-Complete-Until", "%" PRId64, count_watermark_until(app->watermark));
    http_add_header(req, "X-Millrace-Stored-Until", "%" PRId64, count_watermark_stored_until(app->watermark));
    if (aggregate_quarters_since(app->aggregate) > 0)
        http_add_header(
            req, "X-Millrace-Quarters-Since", "%" PRId64, aggregate_quarters_since(app->aggregate));
    if (count_watermark_held_by(app->watermark)[0])
        http_add_header_text(req, "X-Millrace-Held-By", count_watermark_held_by(app->watermark));
    add_since(req, app);
}

static bool find_layers(struct http_request *req, struct app *app, struct reads_layers *layers)
{
    uint64_t after;
    if (!http_reads_check_caught_up(app, req) || !http_param_u64(req, "after", 0, 0, INT64_MAX, &after))
        return false;
    switch (aggregate_layers(app->aggregate, after, layers)) {
    case AGGREGATE_AFTER_OK:
        return true;
    case AGGREGATE_AFTER_CLEARED:
        http_add_header_u64(req, "X-Millrace-Cleared", aggregate_cleared_slice(app->aggregate));
        http_problem(req, 410, "slice-cleared",
            "read the archive's last slice from its manifest, then start over",
            "a slice after slice %" PRIu64 " was cleared", after);
        return false;
    case AGGREGATE_AFTER_AHEAD:
        http_problem(req, 409, "slice-ahead", "the archive does not belong to this aggregator's slices",
            "slice %" PRIu64 " was never sealed; the open slice is %" PRIu64, after,
            aggregate_open_slice(app->aggregate));
        return false;
    }
    return false;
}

static void keep_value(struct buf *lines)
{
    struct bytes value = read_protocol_value(buf_bytes(lines), RECORD_SEPARATOR);
    memmove(lines->ptr, value.ptr, value.len);
    lines->len = value.len;
}

static void reply(
    struct app *app, struct http_request *req, enum reply_kind kind, int result, struct reads_answer *a)
{
    if (result != 0) {
        slice_scrub_report(app, &a->error);
        http_problem(req, 503, "storage-failed", NULL, "%s", a->error.text);
    } else if ((kind == REPLY_ALL || kind == REPLY_VALUE) && a->more) {
        /* The answer has the keys in the request's order, so X-Millrace-Next cannot name where to continue. */
        http_problem(req, 413, "answer-too-large",
            "ask for fewer keys, or use /range, which answers in parts",
            "the answer exceeds max_answer (%zu bytes)", app->max_answer);
    } else if (a->records == 0 && (kind == REPLY_VALUE || kind == REPLY_RECORDS)) {
        read_protocol_reply_missing(req);
    } else {
        if (kind == REPLY_VALUE)
            keep_value(&a->lines);
        if (a->more)
            read_protocol_add_next(req, buf_bytes(&a->next));
        http_reply_buf(req, 200, READ_PROTOCOL_TYPE, &a->lines);
    }
    reads_answer_free(a);
}

static void free_read(struct large_read *r)
{
    reads_free(&r->reads);
    minute_read_free(&r->by_minute);
    reads_answer_free(&r->answer);
    free(r);
}

static void unlink_read(struct large_read *r)
{
    *r->link = r->next;
    if (r->next)
        r->next->link = r->link;
    else
        r->app->reads.end = r->link;
}

static void on_gone(struct http_request *req, void *arg)
{
    struct large_read *r = arg;
    (void)req;
    r->req = NULL;
    if (r == r->app->reads.running)
        return;
    unlink_read(r);
    free_read(r);
}

static void run(void *ctx, void *job)
{
    struct large_read *r = job;
    (void)ctx;
    if (r->by_minute)
        minute_read_run(r->by_minute, &r->answer.lines);
    else
        r->result = reads_run(r->reads, &r->answer);
}

static void start(struct large_read *r)
{
    struct http_reads *reads = &r->app->reads;
    add_headers(r->req, r->app);
    reads->running = r;
    if (!r->reads) {
        const struct minute_columns columns = aggregate_minute_columns(r->app->aggregate);
        r->by_minute = minute_read_new(&r->query, &columns, r->app->minutes);
    }
    aggregate_hold(r->app->aggregate, true);
    work_thread_start(reads->thread, r);
}

static void append_read(struct large_read *r)
{
    struct http_reads *reads = &r->app->reads;
    r->link = reads->queue ? reads->end : &reads->queue;
    *r->link = r;
    reads->end = &r->next;
}

static void answer_later(
    struct app *app, struct http_request *req, struct reads *r, enum reply_kind kind, bool has_begun)
{
    struct large_read *large = mem_zalloc(sizeof *large);
    *large = (struct large_read){.app = app, .req = req, .kind = kind, .reads = r};
    http_on_gone(req, on_gone, large);
    if (has_begun && !app->reads.running && !app->reads.queue) {
        start(large);
        return;
    }
    reads_end(r);
    append_read(large);
}

static bool is_turn_over(struct http_reads *reads, usec_t now)
{
    if (now - reads->turn >= TURN) {
        reads->turn = now;
        reads->spent = 0;
    }
    return reads->spent >= TURN_READS;
}

/* Begins the read. If the read needs too many counts of the batch in memory, flushes the batch. Returns false if the
 * storage thread is busy. */
static bool begin_read(
    struct app *app, struct http_request *req, struct reads *r, struct reads_layers *layers)
{
    uint64_t after;
    if (reads_begin(r, layers, aggregate_failure(app->aggregate) != NULL))
        return true;
    aggregate_flush(app->aggregate, clock_monotonic());
    http_param_u64(req, "after", 0, 0, INT64_MAX, &after);
    return aggregate_layers(app->aggregate, after, layers) == AGGREGATE_AFTER_OK &&
           reads_begin(r, layers, false);
}

static void answer(struct app *app, struct http_request *req, struct reads_query *q, enum reply_kind kind)
{
    struct reads_layers layers;
    struct reads_answer a = {0};
    usec_t began = clock_monotonic();
    bool is_over = is_turn_over(&app->reads, began), has_few_keys = q->n_keys > 0 && q->n_keys <= TINY_KEYS;
    if (!http_param_bool(req, "members", false, &q->bounds.has_members) || !find_layers(req, app, &layers))
        return;
    struct reads *r = reads_new(q);
    if (is_over && !has_few_keys && app->reads.running) {
        answer_later(app, req, r, kind, false);
        return;
    }
    size_t work_max = is_over ? WORK_TINY : WORK_MAX, work_key = is_over ? WORK_TINY : WORK_KEY;
    if (has_few_keys && q->n_keys * work_key > work_max)
        work_max = q->n_keys * work_key;
    bool has_begun = begin_read(app, req, r, &layers);
    if (has_begun && reads_work(r) <= work_max) {
        add_headers(req, app);
        int result = reads_run(r, &a);
        reads_free(&r);
        reply(app, req, kind, result, &a);
    } else {
        answer_later(app, req, r, kind, has_begun);
    }
    app->reads.spent += clock_monotonic() - began;
}

void http_reads_finish(struct app *app)
{
    struct large_read *r = app->reads.thread ? work_thread_done(app->reads.thread) : NULL;
    if (!r)
        return;
    app->reads.running = NULL;
    aggregate_hold(app->aggregate, false);
    if (r->req) {
        http_on_gone(r->req, NULL, NULL);
        reply(app, r->req, r->kind, r->result, &r->answer);
    }
    free_read(r);
}

/* Refuses a read by minute if the ring does not hold the first of its minutes. */
static bool check_minutes(struct app *app, struct http_request *req, const struct minute_query *q)
{
    static const char hint[] =
        "\"hint\":\"ask for a shorter time, or raise minutes_memory; after a start, the aggregator first "
        "reads the minutes again from the stream\",\"from\":%" PRId64;
    char from[RFC3339_TEXT], members[sizeof hint + 24];
    if (!http_reads_check_caught_up(app, req))
        return false;
    if (!app->minutes) {
        http_problem(req, 422, "minutes-off", "set minutes_memory in [aggregator]",
            "nothing is counted by minute: minutes_memory is 0");
        return false;
    }
    aggregate_set_wall(app->aggregate, clock_wall(), daemon_trusted_time(app->daemon));
    int64_t held = minute_ring_from(app->minutes) * SECONDS_PER_MINUTE;
    if (q->from * SECONDS_PER_MINUTE >= held)
        return true;
    snprintf(members, sizeof members, hint, held);
    bool is_empty = held > daemon_trusted_time(app->daemon) / USEC_PER_SEC;
    http_problem_with(req, 422, "minutes-not-held", members,
        is_empty ? "no minute before %s is in memory" : "minutes before %s are not in memory",
        rfc3339_write(held, from));
    return false;
}

void http_reads_next(struct app *app)
{
    struct reads_layers layers;
    while (app->reads.queue && !app->reads.running) {
        struct large_read *r = app->reads.queue;
        http_on_gone(r->req, NULL, NULL);
        if (r->reads ? !find_layers(r->req, app, &layers) : !check_minutes(app, r->req, &r->query)) {
            unlink_read(r);
            free_read(r);
            continue;
        }
        http_on_gone(r->req, on_gone, r);
        if (r->reads && !begin_read(app, r->req, r->reads, &layers)) {
            reads_end(r->reads);
            return; /* the storage thread calls `notify` when its job is complete */
        }
        unlink_read(r);
        start(r);
    }
}

int http_reads_start(struct http_reads *reads, void (*notify)(void *arg), void *notify_arg)
{
    reads->thread =
        work_thread_new(&(struct work_thread_config){.run = run, .notify = notify, .notify_arg = notify_arg});
    return reads->thread ? 0 : -1;
}

void http_reads_stop(struct http_reads *reads)
{
    work_thread_free(&reads->thread);
    if (reads->running)
        free_read(reads->running);
    reads->running = NULL;
}

void http_reads_get(struct http_request *req, void *ctx)
{
    struct bytes key;
    if (read_protocol_get(req, &key))
        answer(ctx, req,
            &(struct reads_query){
                .keys = &key, .n_keys = 1, .bounds.max_bytes = ((struct app *)ctx)->max_answer},
            REPLY_VALUE);
}

void http_reads_mget(struct http_request *req, void *ctx)
{
    struct app *app = ctx;
    struct bytes keys[URL_PARAMS_MAX];
    size_t n = 0;
    if (!read_protocol_mget(req))
        return;
    for (size_t at = 0; read_protocol_next_key(req, &at, &keys[n]);)
        n++;
    answer(app, req, &(struct reads_query){.keys = keys, .n_keys = n, .bounds.max_bytes = app->max_answer},
        REPLY_ALL);
}

static struct reads_bounds bounds_of(const struct app *app, const struct read_span *span)
{
    return (struct reads_bounds){.max_records = span->limit,
        .max_bytes =
            span->max_bytes > 0 && span->max_bytes < app->max_answer ? span->max_bytes : app->max_answer,
        .n_names = span->n_subs,
        .names = span->subs};
}

void http_reads_fwmatch(struct http_request *req, void *ctx)
{
    struct app *app = ctx;
    struct read_span span;
    if (!read_protocol_fwmatch(req, RECORD_SEPARATOR, true, &span))
        return;
    answer(app, req,
        &(struct reads_query){.prefix = span.prefix,
            .start = span.start,
            .start_name = span.start_name,
            .bounds = bounds_of(app, &span)},
        span.start.len > 0 ? REPLY_PAGE : REPLY_RECORDS);
}

void http_reads_range(struct http_request *req, void *ctx)
{
    struct app *app = ctx;
    struct read_span span;
    if (!read_protocol_range(req, RECORD_SEPARATOR, true, &span))
        return;
    answer(app, req,
        &(struct reads_query){.start = span.start,
            .start_name = span.start_name,
            .end = span.end,
            .bounds = bounds_of(app, &span)},
        span.start_name.len > 0 ? REPLY_PAGE : REPLY_RECORDS);
}

void http_reads_keys(struct http_request *req, void *ctx)
{
    struct read_keys k;
    if (!read_protocol_keys(req, &k))
        return;
    const struct key_search_query search = {.prefix = k.prefix,
        .start = k.start,
        .contains = k.contains,
        .ns = k.ns,
        .n_ns = k.n_ns,
        .limit = k.limit};
    answer(ctx, req, &(struct reads_query){.search = &search}, REPLY_PAGE);
}

/* Parses a time in whole minutes. */
static bool read_minute(struct http_request *req, const char *name, int64_t *minute)
{
    uint64_t time;
    if (!http_param_u64(req, name, UINT64_MAX, 0, HOUR_END, &time))
        return false;
    *minute = (int64_t)(time / SECONDS_PER_MINUTE);
    if (time % SECONDS_PER_MINUTE == 0)
        return true;
    http_problem(req, 400, "bad-parameter", NULL, "%s= must be the Unix time of a whole minute", name);
    return false;
}

static bool read_minutes(struct http_request *req, const struct counters *c, struct minute_query *q)
{
    struct bytes ns = BYTES_NONE;
    q->key = q->sub = BYTES_NONE;
    http_param(req, "ns", &ns);
    http_param(req, "key", &q->key);
    http_param(req, "sub", &q->sub);
    const struct counter *counter = ns.len > 0 ? counters_find(c, ns) : NULL;
    bool is_total = counter && counter >= c->totals && counter < c->totals + c->n_totals;
    if (!read_minute(req, "from", &q->from) || !read_minute(req, "to", &q->to) ||
        !http_param_u64(req, "limit", READ_KEYS_MAX, 1, READ_MINUTES_MAX, &q->limit))
        return false;
    if (!counter)
        http_problem(req, 404, "unknown-counter", NULL, "ns= must be a total or a subtotal");
    else if (is_total ? q->sub.len > 0 : q->key.len == 0)
        http_problem(req, 400, "bad-parameter", NULL,
            is_total ? "sub= requires the namespace of a subtotal" : "key= is missing");
    else if (q->from >= q->to || q->to - q->from > MINUTE_RING_MINUTES)
        http_problem(
            req, 400, "bad-parameter", NULL, "from= must be 1 to %d minutes before to=", MINUTE_RING_MINUTES);
    else {
        q->counter =
            (size_t)(is_total ? counter - c->totals : counter - c->subtotals) + (is_total ? 0 : c->n_totals);
        return true;
    }
    return false;
}

void http_reads_minutes(struct http_request *req, void *ctx)
{
    struct app *app = ctx;
    struct minute_query q;
    if (!read_minutes(req, app->counters, &q) || !check_minutes(app, req, &q))
        return;
    struct large_read *r = mem_zalloc(sizeof *r);
    *r = (struct large_read){.app = app, .req = req, .kind = REPLY_ALL, .query = q};
    http_on_gone(req, on_gone, r);
    if (app->reads.running || app->reads.queue)
        append_read(r);
    else
        start(r);
}
