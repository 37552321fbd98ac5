#include "api/http.h"

#include "api/etag.h"
#include "api/page/events.h"
#include "api/freshness.h"
#include "api/lookup.h"
#include "api/openapi.h"
#include "api/archive_reload.h"
#include "api/render.h"
#include <stdlib.h>

static bool may_see(struct http_request *req, const struct counter *total, struct bytes key)
{
    if (http_may_see(req, bytes_str(total->ns), key))
        return true;
    http_problem(req, 403, "forbidden", "see keys= in the token's line in --tokens-file",
        "the token may not see %s|%.*s", total->ns, (int)key.len, key.ptr);
    return false;
}

/* Answers the query, or refuses the query if the token may not see one of the keys. */
static void start(
    struct http_request *req, struct api *api, const struct query *q, const struct query_error *unknown)
{
    bool has_keys = q->n_values > 0 && !q->sub;
    for (size_t i = 0; has_keys && i < q->n_values; i++)
        if (!may_see(req, q->total, query_value(q, i)))
            return;
    if (!has_keys && !may_see(req, q->total, q->key))
        return;
    ask_start(api->asks, req, q, unknown);
}

static struct query_context context_of(const struct api *api, int64_t quarters_since)
{
    return (struct query_context){.counters = api->counters,
        .max_rows = api->max_rows,
        .now = clock_wall() / USEC_PER_SEC,
        .quarters_since = quarters_since,
        .streams = api->streams};
}

/* `quarters_since` is from earlier replies, and may be outdated. If `may_guess`, a refused query is parsed again as if
 * all counts were by quarter hour. The replies of the sources then contain the present time. */
static void handle_query_of(
    struct http_request *req, struct api *api, enum query_kind kind, int64_t quarters_since, bool may_guess)
{
    struct query query;
    struct query_context context = context_of(api, quarters_since), guess = context_of(api, HOUR_FIRST);
    struct query_error error, unused;
    int result = query_parse(&context, kind, http_query(req), &query, &error);
    if (result != 0 && may_guess && api->counters->has_quarters)
        result = query_parse(&guess, kind, http_query(req), &query, &unused);
    if (result == 0) {
        start(req, api, &query, NULL);
        return;
    }
    context.accepts_former = strcmp(error.code, "unknown-counter") == 0;
    if (context.accepts_former && query_parse(&context, kind, http_query(req), &query, &unused) == 0)
        start(req, api, &query, &error);
    else
        http_problem(req, error.status, error.code, *error.hint ? error.hint : NULL, "%s", error.detail);
}

static void handle_query(struct http_request *req, struct api *api, enum query_kind kind)
{
    handle_query_of(req, api, kind, cells_quarters_since(&api->cells), true);
}

/* Answers a query for sets, or refuses the query if the token may not see one of the keys. */
static void handle_sets_of(
    struct http_request *req, struct api *api, enum query_kind kind, int64_t quarters_since, bool may_guess)
{
    struct unique_query query;
    const struct query_context context = context_of(api, quarters_since), guess = context_of(api, HOUR_FIRST);
    struct query_error error, unused;
    int result = unique_query_parse(&context, kind, http_query(req), &query, &error);
    if (result != 0 && may_guess && api->counters->has_quarters)
        result = unique_query_parse(&guess, kind, http_query(req), &query, &unused);
    if (result != 0) {
        http_problem(req, error.status, error.code, *error.hint ? error.hint : NULL, "%s", error.detail);
        return;
    }
    for (size_t i = 0; i < query.n_sets; i++)
        if (!may_see(req, query.sets[i].total, query.sets[i].key))
            return;
    uniques_start(api->uniques, req, &query);
}

static void handle_sets(struct http_request *req, struct api *api, enum query_kind kind)
{
    handle_sets_of(req, api, kind, cells_quarters_since(&api->cells), true);
}

void api_ask_again(struct http_request *req, enum query_kind kind, int64_t quarters_since, void *api)
{
    (kind < QUERY_UNIQUES ? handle_query_of : handle_sets_of)(req, api, kind, quarters_since, false);
}

#define HANDLER(NAME, CALL)                                                                                  \
    static void handle_##NAME(struct http_request *req, void *ctx)                                           \
    {                                                                                                        \
        struct api *api = ctx;                                                                               \
        CALL;                                                                                                \
    }
HANDLER(uniques, handle_sets(req, api, QUERY_UNIQUES))
HANDLER(retention, handle_sets(req, api, QUERY_RETENTION))
HANDLER(cohort, handle_sets(req, api, QUERY_COHORT))
HANDLER(series, handle_query(req, api, QUERY_SERIES))
HANDLER(breakdown, handle_query(req, api, QUERY_BREAKDOWN))
HANDLER(compare, handle_query(req, api, QUERY_COMPARE))
HANDLER(top, handle_query(req, api, QUERY_TOP))
HANDLER(quantile, handle_query(req, api, QUERY_QUANTILE))
HANDLER(lookup, lookup_start(&api->cells, api->counters, api->max_search, req))
HANDLER(freshness, freshness_ask(&api->cells, req))
HANDLER(page, page_reply(api->page, req))
HANDLER(script, script_reply(req, api->public_path))
HANDLER(live, live_reply(api->live, req))
HANDLER(live_rate, live_reply_rate(api->live, req))
HANDLER(changes, changes_reply(api->changes, req))
HANDLER(pipeline, pipeline_reply(api->pipeline, req))
HANDLER(manage, manage_reply(req, api->pipeline))
HANDLER(metrics, metrics_proxy_pass(api->metricdb, "metricdb", req))
/* Types and help texts are not in the stream: only the scraper knows them. */
HANDLER(metadata, metrics_proxy_pass(api->scraper ? api->scraper : api->metricdb,
                      api->scraper ? "scraper" : "metricdb", req))
HANDLER(rules,
    metrics_proxy_pass(api->ruler ? api->ruler : api->metricdb, api->ruler ? "ruler" : "metricdb", req))

static void handle_counters(struct http_request *req, void *ctx)
{
    struct buf out = {0};
    const struct api *api = ctx;
    char *script = script_path(api->public_path);
    render_counters(api->counters, script, &out);
    free(script);
    etag_reply(req, "application/json", buf_bytes(&out), 0);
    buf_free(&out);
}

static void handle_openapi(struct http_request *req, void *ctx)
{
    (void)ctx;
    etag_reply(req, "application/json", openapi_document(), 0);
}

/* What the client may do, so that the page shows only this. */
static void handle_access(struct http_request *req, void *ctx)
{
    struct buf out = {0};
    (void)ctx;
    http_print_access(req, &out);
    buf_append_char(&out, '\n');
    http_add_header_text(req, "Cache-Control", "no-store");
    http_reply_buf(req, 200, "application/json", &out);
    buf_free(&out);
}

static void handle_sql(struct http_request *req, void *ctx)
{
    const struct api *api = ctx;
    if (api->sql)
        sql_children_ask(api->sql, req);
    else
        http_problem(req, 404, "sql-off", "set sql = yes under [api]", "statements in SQL are off");
}

#define OF_COUNTS (HTTP_VIEW_OVERVIEW | HTTP_VIEW_KEY)

const struct http_route api_routes[] = {
    HTTP_ROUTE(
        "/", HTTP_GET_, HTTP_ROUTE_OPEN | HTTP_ROUTE_FRAMED, handle_page, NULL, "the web page, or this list"),
    HTTP_ROUTE("/m.js", HTTP_GET_, HTTP_ROUTE_OPEN | HTTP_ROUTE_PUBLIC, handle_script, NULL,
        "the script with which a web site counts its visits"),
    HTTP_ROUTE("/app.js", HTTP_GET_, HTTP_ROUTE_OPEN, handle_page, NULL, NULL),
    HTTP_ROUTE("/app.css", HTTP_GET_, HTTP_ROUTE_OPEN, handle_page, NULL, NULL),
    HTTP_ROUTE("/icon.svg", HTTP_GET_, HTTP_ROUTE_OPEN, handle_page, NULL, NULL),
    HTTP_ROUTE("/map.json", HTTP_GET_, HTTP_ROUTE_OPEN, handle_page, NULL, NULL),
    HTTP_ROUTE("/part-*", HTTP_GET_, HTTP_ROUTE_OPEN, handle_page, NULL, NULL),
    HTTP_ROUTE("/v1/live", HTTP_GET_, HTTP_ROUTE_NO_HEAD | HTTP_VIEW_LIVE, handle_live, "stream from last if",
        "stream=NAME&if=CONDITION: the lines of a stream as Server-Sent Events"),
    HTTP_ROUTE("/v1/live/rate", HTTP_GET_, HTTP_ROUTE_NO_HEAD | HTTP_VIEW_LIVE | HTTP_VIEW_OVERVIEW,
        handle_live_rate, "stream",
        "once a second the number of new lines in a stream, or in all streams, as Server-Sent Events"),
    HTTP_ROUTE("/v1/changes", HTTP_GET_, HTTP_ROUTE_CHECKS_KEYS | HTTP_ROUTE_NO_HEAD | HTTP_VIEWS,
        handle_changes, "", "which answers may have changed, as Server-Sent Events"),
    HTTP_ROUTE("/v1/pipeline", HTTP_GET_, HTTP_VIEW_PIPELINE | HTTP_VIEW_QUEUES, handle_pipeline, "",
        "health and statistics of all daemons, and the last hour"),
    HTTP_ROUTE("/v1/manage", HTTP_GET_, HTTP_VIEW_QUEUES, handle_manage, "show url queue stream items from",
        "show=buried&queue=: the buried messages of a queue; show=producers, cursors or subscribers of a "
        "stream="),
    HTTP_ROUTE("/v1/manage", HTTP_POST_, HTTP_ROUTE_NEEDS_TOKEN | HTTP_VIEW_QUEUES, handle_manage,
        "act url queue stream id items for reader producer name",
        "act=pause, empty, kick, edit, delete or release of a queue=; act=leave-out or delete-cursor of a "
        "stream="),
    HTTP_ROUTE("/v1/access", HTTP_GET_, HTTP_ROUTE_CHECKS_KEYS | HTTP_VIEWS, handle_access, "",
        "what the client may do"),
    HTTP_ROUTE("/v1/series", HTTP_GET_, HTTP_ROUTE_CHECKS_KEYS | OF_COUNTS, handle_series, NULL,
        "LABEL=KEY, or ns= and key=: counts by minute, hour, day, week or month"),
    HTTP_ROUTE("/v1/breakdown", HTTP_GET_, HTTP_ROUTE_CHECKS_KEYS | OF_COUNTS, handle_breakdown, NULL,
        "LABEL=KEY&by=LABEL: the subtotals of a key, largest first"),
    HTTP_ROUTE("/v1/compare", HTTP_GET_, HTTP_ROUTE_CHECKS_KEYS | OF_COUNTS, handle_compare, NULL,
        "a series, and the series of the period before or, with against=year, of the year before"),
    HTTP_ROUTE("/v1/top", HTTP_GET_, HTTP_ROUTE_CHECKS_KEYS | OF_COUNTS, handle_top, NULL,
        "counter=LABEL: the largest keys of a counter"),
    HTTP_ROUTE("/v1/quantile", HTTP_GET_, HTTP_ROUTE_CHECKS_KEYS | OF_COUNTS, handle_quantile, NULL,
        "LABEL=KEY&by=LABEL&q=0.5,0.95: quantiles of a subtotal by bucket(FIELD)"),
    HTTP_ROUTE("/v1/uniques", HTTP_GET_, HTTP_ROUTE_CHECKS_KEYS | OF_COUNTS, handle_uniques, NULL,
        "LABEL=KEY&unit=: the numbers of different members by hour, day, week or month"),
    HTTP_ROUTE("/v1/retention", HTTP_GET_, HTTP_ROUTE_CHECKS_KEYS | OF_COUNTS, handle_retention, NULL,
        "LABEL=KEY&unit=week: how many of the members first seen in a unit are seen in each later unit"),
    HTTP_ROUTE("/v1/cohort", HTTP_GET_, HTTP_ROUTE_CHECKS_KEYS | OF_COUNTS, handle_cohort, NULL,
        "all=&any=&not=, each [PERIOD@]LABEL:KEY: the number of members in all sets of all=, in at least one "
        "set of any=, and in no set of not="),
    HTTP_ROUTE("/v1/sql", HTTP_GET_, HTTP_ROUTE_NEEDS_TOKEN | HTTP_ROUTE_NO_HEAD, handle_sql, "q",
        "the rows of a statement in SQL"),
    HTTP_ROUTE("/v1/lookup", HTTP_GET_, OF_COUNTS, handle_lookup,
        "prefix contains counter ns limit continuation format",
        "prefix=&contains=&counter=LABEL: the keys that begin with a text or contain a text"),
    HTTP_ROUTE("/v1/counters", HTTP_GET_, HTTP_ROUTE_CHECKS_KEYS | HTTP_VIEWS, handle_counters, "",
        "the configured counters"),
    HTTP_ROUTE("/v1/freshness", HTTP_GET_, HTTP_ROUTE_CHECKS_KEYS | HTTP_VIEWS, handle_freshness, "",
        "age of the newest event and of complete counts, for each stream; the archive's age"),
    HTTP_ROUTE("/v1/openapi.json", HTTP_GET_, HTTP_ROUTE_CHECKS_KEYS | HTTP_VIEWS, handle_openapi, "",
        "these endpoints as an OpenAPI 3.1 document"),
    HTTP_ROUTE("/v1/events", HTTP_POST_, HTTP_ROUTE_DECODES_BODY | HTTP_ROUTE_PUBLIC | HTTP_ROUTE_WRITES,
        events_post, "queue producer mark next all_or_none",
        "put events (lines or an array) onto the local queue"),
    HTTP_ROUTE("/v1/pixel.gif", HTTP_GET_, HTTP_ROUTE_NO_HEAD | HTTP_ROUTE_PUBLIC | HTTP_ROUTE_WRITES,
        events_pixel, NULL, "put an event with these parameters onto the local queue; replies with an image"),
    /* The pixel under a name that lists of ad blockers do not contain. */
    HTTP_ROUTE("/image.gif", HTTP_GET_, HTTP_ROUTE_NO_HEAD | HTTP_ROUTE_PUBLIC | HTTP_ROUTE_WRITES,
        events_pixel, NULL, NULL),
    HTTP_ROUTE("/v1/incr", HTTP_GET_ | HTTP_POST_, HTTP_ROUTE_NO_HEAD | HTTP_ROUTE_WRITES, events_incr,
        "ns key sub n queue producer mark next",
        "ns=&key=: put n= events (default 1) that count under this key onto the local queue"),
    HTTP_ROUTE("/api/v1/rules", HTTP_GET_ | HTTP_POST_, HTTP_VIEW_METRICS, handle_rules, NULL,
        "the rules of the ruler and their alerts"),
    HTTP_ROUTE("/api/v1/alerts", HTTP_GET_ | HTTP_POST_, HTTP_VIEW_METRICS, handle_rules, NULL,
        "the pending and firing alerts of the ruler"),
    HTTP_ROUTE("/api/v1/metadata", HTTP_GET_ | HTTP_POST_, HTTP_VIEW_METRICS, handle_metadata, NULL,
        "types, help texts and units of metrics, from the scraper"),
    HTTP_ROUTE("/api/v1/*", HTTP_GET_ | HTTP_POST_, HTTP_VIEW_METRICS, handle_metrics, NULL,
        "Prometheus' HTTP API over the metrics of metricdb"),
    HTTP_ROUTE("/reload", HTTP_GET_ | HTTP_POST_, HTTP_ROUTE_OPEN, archive_reload, "format",
        "open the archive's current generation, if the api reads the archive itself"),
    {.path = NULL},
};
