/* The read protocol over the aggregate (docs/guide/protocol.md). One turn of the loop composes an answer, so the answer shows
 * one moment. max_answer limits an answer. A longer answer is cut, and X-Millrace-Next names the key at which it continues. */
#include "aggregator/aggregator_app.h"
#include "aggregator/aggregator_health.h"
#include "daemon/read_protocol.h"
#include "aggregator/reads.h"
#include "counts/records.h"

#include <inttypes.h>

static bool find_layers(struct http_request *req, struct app *app, struct reads_layers *layers)
{
    uint64_t after;
    if (!health_check_caught_up(app, req) || !http_param_u64(req, "after", 0, 0, INT64_MAX, &after))
        return false;
    switch (aggregate_layers(app->aggregate, after, layers)) {
    case AGGREGATE_AFTER_OK:
        http_add_header(req, "X-Millrace-Slice", "%" PRIu64, aggregate_open_slice(app->aggregate));
        http_add_header(
            req, "X-Millrace-Complete-Until", "%" PRId64, watermark_poll_complete_until(app->watermark));
        return true;
    case AGGREGATE_AFTER_CLEARED:
        http_problem(req, 410, "slice-cleared",
            "read the archive's last slice from its manifest, then start over",
            "a slice after %" PRIu64 " is cleared", after);
        return false;
    case AGGREGATE_AFTER_AHEAD:
        http_problem(req, 409, "slice-ahead", "the archive does not belong to this aggregator's slices",
            "slice %" PRIu64 " was never sealed; the open one is %" PRIu64, after,
            aggregate_open_slice(app->aggregate));
        return false;
    }
    return false;
}

static void reply(struct http_request *req, int result, struct reads_answer *a, bool may_be_empty)
{
    if (result != 0) {
        http_problem(req, 503, "storage-failed", NULL, "%s", a->error);
    } else if (a->records == 0 && !may_be_empty) {
        read_protocol_reply_missing(req);
    } else {
        if (a->more)
            read_protocol_add_next(req, buf_bytes(&a->next));
        http_reply_buf(req, 200, READ_PROTOCOL_TYPE, &a->lines);
    }
    reads_answer_free(a);
}

static void get(struct http_request *req, void *ctx)
{
    struct app *app = ctx;
    struct reads_layers layers;
    struct reads_answer answer = {0};
    struct bytes key;
    if (read_protocol_get(req, &key) && find_layers(req, app, &layers))
        reply(req, reads_get(&layers, &key, 1, (struct reads_bounds){0}, &answer), &answer, false);
}

/* An answer over max_answer is refused, because the keys have no order in which a next request could continue. */
static void mget(struct http_request *req, void *ctx)
{
    struct app *app = ctx;
    struct reads_layers layers;
    struct reads_answer answer = {0};
    struct bytes keys[URL_PARAMS_MAX];
    size_t n = 0;
    if (!read_protocol_mget(req) || !find_layers(req, app, &layers))
        return;
    for (size_t at = 0; read_protocol_next_key(req, &at, &keys[n]);)
        n++;
    int result = reads_get(&layers, keys, n, (struct reads_bounds){.max_bytes = app->max_answer}, &answer);
    if (!answer.more) {
        reply(req, result, &answer, true);
        return;
    }
    reads_answer_free(&answer);
    http_problem(req, 413, "answer-too-large", "ask for fewer keys, or use /range",
        "the answer exceeds max_answer (%zu bytes)", app->max_answer);
}

static struct reads_bounds bounds_of(const struct app *app, const struct read_span *span)
{
    return (struct reads_bounds){.max_records = span->limit, .max_bytes = app->max_answer};
}

static void fwmatch(struct http_request *req, void *ctx)
{
    struct app *app = ctx;
    struct reads_layers layers;
    struct reads_answer answer = {0};
    struct read_span span;
    if (!read_protocol_fwmatch(req, &span) || !find_layers(req, app, &layers))
        return;
    int result = reads_prefix(&layers, span.prefix, span.start, bounds_of(app, &span), &answer);
    reply(req, result, &answer, span.start.len > 0);
}

static void range(struct http_request *req, void *ctx)
{
    struct app *app = ctx;
    struct reads_layers layers;
    struct reads_answer answer = {0};
    struct read_span span;
    if (!read_protocol_range(req, RECORD_SEPARATOR, &span) || !find_layers(req, app, &layers))
        return;
    int result = reads_range(&layers, span.start, span.end, bounds_of(app, &span), &answer);
    reply(req, result, &answer, true);
}

static void stream_stats(const struct app *app, size_t i, bool json, struct buf *out)
{
    const struct slice_cursor *c = aggregate_cursor(app->aggregate, i);
    uint64_t end = c->offset + watermark_poll_lag(app->watermark, i);
    if (json)
        buf_printf(out, "%s\"%s\":{\"id\":\"%s\",\"offset\":\"%" PRIu64 "\",\"end\":\"%" PRIu64 "\"}",
            i ? "," : "", c->stream, c->id, c->offset, end);
    else
        buf_printf(out, "stream %s: offset %" PRIu64 " end %" PRIu64 "\n", c->stream, c->offset, end);
}

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
               ",\"complete_until\":%" PRId64 ",\"streams\":{"
             : "slice: %" PRIu64 "\nevents: %" PRIu64 "\nskipped: %" PRIu64 "\nrejected: %" PRIu64
               "\nevents_total: %" PRIu64 "\nskipped_total: %" PRIu64 "\nrejected_total: %" PRIu64
               "\ncomplete_until: %" PRId64 "\n",
        aggregate_open_slice(app->aggregate), n.slice.events, n.slice.skipped, n.slice.rejected,
        n.total.events, n.total.skipped, n.total.rejected, watermark_poll_complete_until(app->watermark));
    for (size_t i = 0; i < app->streams.n; i++)
        stream_stats(app, i, json, out);
    if (json)
        buf_append_char(out, '}');
}

const struct http_route app_routes[] = {
    READ_PROTOCOL_ROUTES(get, mget, fwmatch, range),
    {.path = "/seal",
        .methods = HTTP_POST_,
        .handler = http_seal,
        .help = "seal slice ?slice= and begin the next"},
    {.path = "/clear",
        .methods = HTTP_POST_,
        .handler = http_clear,
        .help = "delete archived slices up to ?through="},
    {.path = "/slices", .methods = HTTP_GET_, .handler = http_slices, .help = "list the slices"},
    {0},
};
