/* http: the HTTP endpoints (docs/guide/protocol.md) besides the read protocol (http_reads.h): sealing, clearing,
 * putting rejects back, and the list of slices. */
#include "aggregator/aggregator_app.h"
#include "base/log.h"
#include "read/read_protocol.h"
#include "aggregator/put_back.h"
#include "aggregator/since.h"

#include <inttypes.h>
#include <stdlib.h>

#define JSON "application/json"

void app_extra_stats(void *ctx, bool json, struct buf *out)
{
    struct app *app = ctx;
    struct aggregate_numbers n;
    if (!app || !app->watermark)
        return;
    aggregate_numbers(app->aggregate, &n);
    buf_printf(out,
        json ? ",\"slice\":%" PRIu64 ",\"events\":%" PRIu64 ",\"skipped\":%" PRIu64 ",\"rejected\":%" PRIu64
               ",\"events_total\":%" PRIu64 ",\"skipped_total\":%" PRIu64 ",\"rejected_total\":%" PRIu64
               ",\"newest_event\":%" PRId64 ",\"complete_until\":%" PRId64
               ",\"held_by\":\"%s\",\"resolution\":\"%s\""
               ",\"quarters_since\":%" PRId64 ",\"counters\":\"%" PRIu64 "\",\"streams\":{"
             : "slice: %" PRIu64 "\nevents: %" PRIu64 "\nskipped: %" PRIu64 "\nrejected: %" PRIu64
               "\nevents_total: %" PRIu64 "\nskipped_total: %" PRIu64 "\nrejected_total: %" PRIu64
               "\nnewest_event: %" PRId64 "\ncomplete_until: %" PRId64 "\nheld_by: %s\nresolution: %s"
               "\nquarters_since: %" PRId64 "\ncounters: %" PRIu64 "\n",
        aggregate_open_slice(app->aggregate), n.slice.events, n.slice.skipped, n.slice.rejected,
        n.total.events, n.total.skipped, n.total.rejected, n.newest_event,
        count_watermark_until(app->watermark), count_watermark_held_by(app->watermark),
        app->counters->has_quarters ? "15m" : "1h", aggregate_quarters_since(app->aggregate),
        counters_hash(app->counters));
    for (size_t i = 0; i < app->streams.n; i++) {
        const struct slice_cursor *c = aggregate_cursor(app->aggregate, i);
        uint64_t end = c->offset + count_watermark_lag(app->watermark, i);
        bool refused;
        follower_trouble(app->followers[i], &refused);
        if (json)
            buf_printf(out,
                "%s\"%s\":{\"id\":\"%s\",\"offset\":\"%" PRIu64 "\",\"end\":\"%" PRIu64
                "\",\"refused\":%s,\"newest_event\":%" PRId64 ",\"complete_until\":%" PRId64
                ",\"held_by\":\"%s\"}",
                i ? "," : "", c->stream, c->id, c->offset, end, refused ? "true" : "false",
                aggregate_newest_event(app->aggregate, i), count_watermark_stream_until(app->watermark, i),
                count_watermark_stream_held_by(app->watermark, i));
        else
            buf_printf(out, "stream %s: offset %" PRIu64 " end %" PRIu64 "\n", c->stream, c->offset, end);
    }
    if (!json)
        return;
    buf_append_str(out, "},\"last_minute\":");
    app_watch_lines(app);
    line_watch_print_json(app->watch, out);
    buf_append_str(out, ",\"absent_fields\":[");
    const char *field;
    for (size_t i = 0; (field = aggregate_absent_field(app->aggregate, i)); i++) {
        buf_append_str(out, i ? "," : "");
        buf_append_json(out, bytes_str(field));
    }
    buf_append_char(out, ']');
}

/* A request to seal or clear, which waits for the storage thread. */
struct slice_waiter {
    struct app *app;
    struct http_request *req;
    uint64_t slice;
    struct slice_waiter *next, **link;
};

/* Lists the streams, but not the inputs, which may be thousands. */
static void append_streams(struct buf *out, const struct slice_state *state)
{
    const char *separator = "";
    for (size_t i = 0; i < state->n_cursors; i++) {
        const struct slice_cursor *c = &state->cursors[i];
        if (c->stream[0] == AGGREGATE_INPUT_MARK)
            continue;
        buf_printf(
            out, "%s\"%s\":{\"id\":\"%s\",\"end\":\"%" PRIu64 "\"}", separator, c->stream, c->id, c->offset);
        separator = ",";
    }
}

static void reply_sealed(struct http_request *req, const struct slice_state *state)
{
    struct buf out = {0};
    buf_printf(
        &out, "{\"sealed\":%" PRIu64 ",\"open\":%" PRIu64 ",\"streams\":{", state->number, state->number + 1);
    append_streams(&out, state);
    buf_append_str(&out, "}}\n");
    http_reply(req, 200, JSON, buf_bytes(&out));
    buf_free(&out);
}

static void reply_refused(struct http_request *req, const struct error *error)
{
    http_problem(
        req, 503, error->code == SLICE_FULL ? "storage-full" : "storage-failed", NULL, "%s", error->text);
}

static void remove_waiter(struct slice_waiter *w)
{
    *w->link = w->next;
    if (w->next)
        w->next->link = w->link;
    free(w);
}

static void on_gone(struct http_request *req, void *arg)
{
    (void)req;
    remove_waiter(arg);
}

static void add_waiter(struct app *app, struct slice_waiter **list, struct http_request *req, uint64_t slice)
{
    struct slice_waiter *w = mem_zalloc(sizeof *w);
    *w = (struct slice_waiter){app, req, slice, *list, list};
    if (w->next)
        w->next->link = &w->next;
    *list = w;
    http_on_gone(req, on_gone, w);
    app_answer_waiters(app);
}

static struct http_request *take_waiter(struct slice_waiter *w)
{
    struct http_request *req = w->req;
    http_on_gone(req, NULL, NULL);
    remove_waiter(w);
    return req;
}

/* Shows no line of a sealed slice: `millrace forget` erases the rejected lines, and then seals the slice. */
static void hide_lines(struct app *app)
{
    app_watch_lines(app);
    line_watch_hide_lines(app->watch);
    daemon_set_notice(app->daemon, "rejects", NOTICE_WARNING, NULL, NULL);
}

static void answer_seals(struct app *app)
{
    struct error error;
    if (!app->seal_waiters)
        return;
    /* All requests that wait for a seal name the same slice, because only one slice is open. */
    uint64_t number = app->seal_waiters->slice;
    const struct sealed_slice *sealed = sealed_find(aggregate_sealed(app->aggregate), number);
    enum slice_result r =
        sealed ? SLICE_OK
               : aggregate_seal(app->aggregate, clock_monotonic(), daemon_trusted_time(app->daemon), &error);
    if (r == SLICE_OK && !sealed)
        return;
    if (sealed) {
        hide_lines(app);
        log_info("sealed", LOG_U("slice", number));
    }
    while (app->seal_waiters) {
        struct http_request *req = take_waiter(app->seal_waiters);
        if (sealed)
            reply_sealed(req, &sealed->state);
        else
            reply_refused(req, &error);
    }
}

/* A request to put rejects back, which waits until its step is committed. At most one such request waits. */
struct put_back_waiter {
    struct app *app;
    struct http_request *req;
    struct put_back put_back;
};

static void on_put_back_gone(struct http_request *req, void *arg)
{
    struct put_back_waiter *w = arg;
    (void)req;
    w->app->put_back_waiter = NULL;
    free(w);
}

static void answer_put_back(struct app *app)
{
    struct put_back_waiter *w = app->put_back_waiter;
    if (!w)
        return;
    const struct put_back *p = &w->put_back;
    const struct error *failure = aggregate_failure(app->aggregate);
    if (put_back_is_committed(app->aggregate, p))
        http_replyf(w->req, 200, JSON,
            "{\"counted\":%" PRIu64 ",\"skipped\":%" PRIu64 ",\"rejected\":%" PRIu64 ",\"kept\":%" PRIu64
            ",\"damaged\":%" PRIu64 ",\"until_slice\":%" PRIu64 ",\"until_offset\":\"%" PRIu64
            "\",\"done\":%s}\n",
            p->counted, p->skipped, p->rejected, p->kept, p->damaged, p->until.slice, p->until.offset,
            rejects_compare(p->at, p->until) < 0 ? "false" : "true");
    else if (failure)
        reply_refused(w->req, failure);
    else {
        aggregate_flush(app->aggregate, clock_monotonic());
        return;
    }
    app->put_back_waiter = NULL;
    http_on_gone(w->req, NULL, NULL);
    free(w);
}

void app_answer_waiters(struct app *app)
{
    answer_seals(app);
    answer_put_back(app);
    struct error error;
    while (app->clear_waiters) {
        uint64_t through = app->clear_waiters->slice;
        enum aggregate_clear r = aggregate_clear(app->aggregate, clock_monotonic(), through, &error);
        if (r == AGGREGATE_CLEAR_BUSY)
            return;
        struct http_request *req = take_waiter(app->clear_waiters);
        if (r == AGGREGATE_CLEAR_OK) {
            log_info("cleared", LOG_U("through", through));
            since_read(app->aggregate, options_string(daemon_options(app->daemon), "archive"), app->counters,
                &app->since);
            http_replyf(req, 200, JSON, "{\"cleared\":%" PRIu64 "}\n", through);
        } else if (r == AGGREGATE_CLEAR_OPEN) {
            http_problem(req, 409, "slice-open", "seal it first", "slice %" PRIu64 " is not sealed", through);
        } else if (r == AGGREGATE_CLEAR_NOT_ARCHIVED) {
            http_problem(req, 409, "not-archived", NULL, "%s", error.text);
        } else {
            http_problem(req, 503, "storage-failed", NULL, "%s", error.text);
        }
    }
}

static bool required_slice(struct http_request *req, const char *name, uint64_t *slice)
{
    struct bytes text;
    if (http_param(req, name, &text))
        return http_param_u64(req, name, 0, 1, INT64_MAX, slice);
    http_problem(req, 400, "missing-parameter", NULL, "%s= is missing", name);
    return false;
}

static void seal(struct http_request *req, void *ctx)
{
    struct app *app = ctx;
    uint64_t slice;
    if (!http_require_local(req) || !required_slice(req, "slice", &slice) ||
        !http_reads_check_caught_up(app, req))
        return;
    uint64_t open = aggregate_open_slice(app->aggregate);
    const struct sealed_slice *sealed = sealed_find(aggregate_sealed(app->aggregate), slice);
    const struct error *failure = aggregate_failure(app->aggregate);
    struct aggregate_numbers n;
    aggregate_numbers(app->aggregate, &n);
    if (sealed)
        reply_sealed(req, &sealed->state);
    else if (failure && failure->code != SLICE_FULL)
        reply_refused(req, failure);
    else if (slice < open)
        http_problem(req, 410, "slice-cleared", NULL, "slice %" PRIu64 " is cleared", slice);
    else if (slice > open)
        http_problem(req, 409, "slice-ahead", NULL, "the open slice is %" PRIu64, open);
    else if (n.slice.events + n.slice.skipped + n.slice.rejected == 0) {
        hide_lines(app);
        http_replyf(
            req, 200, JSON, "{\"sealed\":%" PRIu64 ",\"open\":%" PRIu64 ",\"streams\":{}}\n", open - 1, open);
    } else
        add_waiter(app, &app->seal_waiters, req, slice);
}

static void clear(struct http_request *req, void *ctx)
{
    struct app *app = ctx;
    uint64_t through;
    if (http_require_local(req) && required_slice(req, "through", &through) &&
        http_reads_check_open(app, req))
        add_waiter(app, &app->clear_waiters, req, through);
}

static void put_back(struct http_request *req, void *ctx)
{
    struct app *app = ctx;
    struct put_back p = {.filter = {.since = 0}};
    struct rejects_place end;
    struct error error;
    uint64_t since;
    if (!http_require_local(req) || !http_param_u64(req, "until_slice", 0, 1, INT64_MAX, &p.until.slice) ||
        !http_param_u64(req, "until_offset", 0, 0, INT64_MAX, &p.until.offset) ||
        !http_param_u64(req, "since", 0, 0, INT64_MAX, &since) || !http_reads_check_open(app, req))
        return;
    (void)http_param(req, "reason", &p.filter.reason);
    (void)http_param(req, "name", &p.filter.name);
    p.filter.since = (int64_t)since;
    if (app->put_back_waiter || aggregate_is_full(app->aggregate) ||
        !aggregate_rejects_end(app->aggregate, &end)) {
        http_problem(req, 503, "busy", NULL, "a put back or a seal is in progress, or the memory is full");
        return;
    }
    aggregate_set_wall(app->aggregate, clock_wall(), daemon_trusted_time(app->daemon));
    const char *archive = options_string(daemon_options(app->daemon), "archive");
    enum put_back_result begun = put_back_begin(&p, archive, &error);
    bool failed =
        begun == PUT_BACK_FAILED || (begun == PUT_BACK_OK && put_back_step(app->aggregate, &p, &error) != 0);
    put_back_end(&p);
    if (failed) {
        http_problem(req, 503, "storage-failed", NULL, "%s", error.text);
        return;
    }
    if (begun == PUT_BACK_BUSY) {
        http_problem(req, 503, "busy", NULL, "a compaction is in progress");
        return;
    }
    app->put_back_waiter = mem_zalloc(sizeof *app->put_back_waiter);
    *app->put_back_waiter = (struct put_back_waiter){app, req, p};
    http_on_gone(req, on_put_back_gone, app->put_back_waiter);
    answer_put_back(app);
}

static void slices(struct http_request *req, void *ctx)
{
    const struct app *app = ctx;
    struct buf out = {0};
    if (!http_reads_check_open(app, req))
        return;
    const struct sealed *sealed = aggregate_sealed(app->aggregate);
    /* The hash is printed as text, because some JSON parsers read numbers of 64 bits inexactly. */
    buf_printf(&out,
        "{\"open\":%" PRIu64 ",\"counters\":\"%" PRIu64 "\",\"quarters_since\":%" PRId64 ",\"slices\":[",
        aggregate_open_slice(app->aggregate), counters_hash(app->counters),
        aggregate_quarters_since(app->aggregate));
    for (size_t i = 0; i < sealed->n; i++) {
        const struct sealed_slice *s = &sealed->slices[i];
        buf_printf(&out, "%s{\"slice\":%" PRIu64 ",\"state\":\"sealed\",\"file\":", i > 0 ? "," : "",
            s->state.number);
        buf_append_json(&out, bytes_str(s->path));
        buf_append_str(&out, ",\"streams\":{");
        append_streams(&out, &s->state);
        buf_append_str(&out, "}}");
    }
    buf_append_str(&out, "]}\n");
    http_reply(req, 200, JSON, buf_bytes(&out));
    buf_free(&out);
}

static void counters(struct http_request *req, void *ctx)
{
    const struct app *app = ctx;
    struct buf out = {0};
    buf_printf(&out, "{\"counters\":\"%" PRIu64 "\",\"text\":", counters_hash(app->counters));
    buf_append_json(&out, bytes_str(app->counters->text));
    buf_append_str(&out, "}\n");
    http_reply_buf(req, 200, JSON, &out);
    buf_free(&out);
}

const struct http_route app_routes[] = {
    READ_PROTOCOL_ROUTES(
        http_reads_get, http_reads_mget, http_reads_fwmatch, http_reads_range, http_reads_keys),
    HTTP_ROUTE("/minutes", HTTP_GET_, 0, http_reads_minutes, "ns key sub from to limit",
        "?ns=&key=&sub=&from=&to=&limit= counts by minute, of at most two hours"),
    HTTP_ROUTE("/seal", HTTP_POST_, 0, seal, NULL, "seal slice ?slice= and begin the next"),
    HTTP_ROUTE("/clear", HTTP_POST_, 0, clear, NULL, "delete archived slices up to ?through="),
    HTTP_ROUTE("/putback", HTTP_POST_, 0, put_back, NULL,
        "count rejected lines again (millrace rejects --put-back)"),
    HTTP_ROUTE("/slices", HTTP_GET_, 0, slices, NULL, "list the slices"),
    HTTP_ROUTE("/counters", HTTP_GET_, 0, counters, NULL, "show the settings that affect counts"),
    {0},
};
