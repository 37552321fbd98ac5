/* Sealing and clearing (docs/guide/protocol.md). Requests wait for the storage thread. */
#include "aggregator/aggregator_app.h"
#include "aggregator/aggregator_health.h"
#include "base/log.h"

#include <inttypes.h>
#include <stdlib.h>

#define JSON "application/json"

struct slice_waiter {
    struct app *app;
    struct http_request *req;
    uint64_t slice;
    struct slice_waiter *next, **link;
};

static void append_streams(struct buf *out, const struct slice_state *state)
{
    for (size_t i = 0; i < state->n_cursors; i++) {
        const struct slice_cursor *c = &state->cursors[i];
        buf_printf(out, "%s\"%s\":{\"id\":\"%s\",\"end\":\"%" PRIu64 "\"}", i > 0 ? "," : "", c->stream,
            c->id, c->offset);
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

static void reply_refused(struct http_request *req, enum slice_result r, const char *error)
{
    http_problem(req, 503, r == SLICE_FULL ? "storage-full" : "storage-failed", NULL, "%s", error);
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
    struct slice_waiter *w = mem_zalloc(sizeof(*w));
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

static void answer_seals(struct app *app)
{
    char error[SLICE_ERROR_TEXT];
    if (!app->seal_waiters)
        return;
    /* All requests wait for the same slice: no other slice can be sealed meanwhile. */
    uint64_t number = app->seal_waiters->slice;
    const struct sealed_slice *sealed = sealed_find(aggregate_sealed(app->aggregate), number);
    enum slice_result r =
        sealed ? SLICE_OK : aggregate_seal(app->aggregate, clock_monotonic(), clock_wall(), error);
    if (r == SLICE_OK && !sealed)
        return;
    if (sealed)
        log_info("sealed", LOG_U("slice", number));
    while (app->seal_waiters) {
        struct http_request *req = take_waiter(app->seal_waiters);
        if (sealed)
            reply_sealed(req, &sealed->state);
        else
            reply_refused(req, r, error);
    }
}

void app_answer_waiters(struct app *app)
{
    answer_seals(app);
    char error[SLICE_ERROR_TEXT];
    while (app->clear_waiters) {
        uint64_t through = app->clear_waiters->slice;
        enum aggregate_clear r = aggregate_clear(app->aggregate, clock_monotonic(), through, error);
        if (r == AGGREGATE_CLEAR_BUSY)
            return;
        struct http_request *req = take_waiter(app->clear_waiters);
        if (r == AGGREGATE_CLEAR_OK) {
            log_info("cleared", LOG_U("through", through));
            http_replyf(req, 200, JSON, "{\"cleared\":%" PRIu64 "}\n", through);
        } else if (r == AGGREGATE_CLEAR_OPEN) {
            http_problem(req, 409, "slice-open", "seal it first", "slice %" PRIu64 " is not sealed", through);
        } else if (r == AGGREGATE_CLEAR_NOT_ARCHIVED) {
            http_problem(req, 409, "not-archived", NULL, "%s", error);
        } else {
            http_problem(req, 503, "storage-failed", NULL, "%s", error);
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

void http_seal(struct http_request *req, void *ctx)
{
    struct app *app = ctx;
    uint64_t slice;
    if (!http_require_local(req) || !required_slice(req, "slice", &slice) ||
        !health_check_caught_up(app, req))
        return;
    uint64_t open = aggregate_open_slice(app->aggregate);
    const struct sealed_slice *sealed = sealed_find(aggregate_sealed(app->aggregate), slice);
    bool latched;
    const char *failure = aggregate_failure(app->aggregate, &latched);
    struct aggregate_numbers n;
    aggregate_numbers(app->aggregate, &n);
    if (sealed)
        reply_sealed(req, &sealed->state);
    else if (latched)
        reply_refused(req, SLICE_FAILED, failure);
    else if (slice < open)
        http_problem(req, 410, "slice-cleared", NULL, "slice %" PRIu64 " is cleared", slice);
    else if (slice > open)
        http_problem(req, 409, "slice-ahead", NULL, "the open slice is %" PRIu64, open);
    else if (n.slice.events + n.slice.skipped + n.slice.rejected == 0)
        http_replyf(
            req, 200, JSON, "{\"sealed\":%" PRIu64 ",\"open\":%" PRIu64 ",\"streams\":{}}\n", open - 1, open);
    else
        add_waiter(app, &app->seal_waiters, req, slice);
}

void http_clear(struct http_request *req, void *ctx)
{
    struct app *app = ctx;
    uint64_t through;
    if (http_require_local(req) && required_slice(req, "through", &through) && health_check_open(app, req))
        add_waiter(app, &app->clear_waiters, req, through);
}

void http_slices(struct http_request *req, void *ctx)
{
    const struct app *app = ctx;
    struct buf out = {0};
    if (!health_check_open(app, req))
        return;
    const struct sealed *sealed = aggregate_sealed(app->aggregate);
    buf_printf(&out, "{\"open\":%" PRIu64 ",\"slices\":[", aggregate_open_slice(app->aggregate));
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
