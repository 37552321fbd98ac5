#include "api/http.h"

#include "api/breakdown.h"
#include "api/series.h"
#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>

#define ASK_MAGIC 0x61736b21u
#define LOOKUPS_MAX 1000 /* in one request, within HTTP_TARGET_MAX and URL_PARAMS_MAX */

/* A client's request in progress. */
struct ask {
    unsigned magic;
    struct api *api;
    struct http_request *req;
    struct question *question; /* in progress */
    struct query query;
    struct series series;
    struct breakdown breakdown;
    size_t looked_up; /* candidates whose texts were requested */
    int64_t complete_until;
};

static void ask_free(struct ask *a)
{
    a->magic = 0;
    series_free(&a->series);
    breakdown_reset(&a->breakdown);
    free(a);
}

/* The client disconnected: cancel the question; its on_done frees the rest. */
static void ask_gone(struct http_request *req, void *arg)
{
    struct ask *a = arg;
    assert(a->magic == ASK_MAGIC && a->req == req);
    a->req = NULL;
    source_cancel(a->question);
}

/* Answers in JSON or CSV. Every event before complete_until is counted. A row is complete if its unit ends by that time. */

static void member(struct buf *out, const char *name, struct bytes text)
{
    buf_printf(out, "\"%s\":", name);
    buf_append_json(out, text);
    buf_append_char(out, ',');
}

static void render_head(const struct query *q, struct buf *out)
{
    buf_append_char(out, '{');
    member(out, "ns", bytes_str(q->sub ? q->sub->ns : q->total->ns));
    member(out, "key", q->key);
    member(out, "label", bytes_str(q->total->label));
    if (q->sub)
        member(out, "by", bytes_str(q->sub->label));
}

static void render_span(const struct query *q, uint64_t total, int64_t complete_until, struct buf *out)
{
    buf_printf(out, "\"from\":%" PRId64 ",\"to\":%" PRId64 ",", q->from, q->to);
    member(out, "timezone", bytes_str(q->calendar.zone.name));
    buf_printf(out, "\"total\":%" PRIu64 ",\"complete_until\":%" PRId64 ",", total, complete_until);
}

static void render_series(const struct series *s, int64_t complete_until, struct buf *out)
{
    const struct query *q = s->query;
    bool csv = q->format == QUERY_CSV;
    if (csv) {
        buf_append_str(out, "t,date,n,complete\n");
    } else {
        render_head(q, out);
        if (q->sub)
            member(out, "sub", q->sub_key);
        member(out, "unit", bytes_str(unit_name(q->calendar.unit)));
        render_span(q, s->total, complete_until, out);
        buf_append_str(out, "\"rows\":[");
    }
    for (size_t i = 0; i < s->n; i++) {
        const char *complete = series_row_end(s, i) <= complete_until ? "true" : "false";
        buf_printf(out, csv ? "%s%" PRId64 "," : "%s{\"t\":%" PRId64 ",\"date\":\"", !csv && i ? "," : "",
            s->rows[i].start);
        units_print_date(&q->calendar, s->rows[i].start, out);
        buf_printf(
            out, csv ? ",%" PRIu64 ",%s\n" : "\",\"n\":%" PRIu64 ",\"complete\":%s}", s->rows[i].n, complete);
    }
    if (!csv)
        buf_append_str(out, "]}\n");
}

static void render_breakdown(const struct breakdown *b, int64_t complete_until, struct buf *out)
{
    bool csv = b->query->format == QUERY_CSV;
    if (csv) {
        buf_append_str(out, "key,n,share\n");
    } else {
        render_head(b->query, out);
        render_span(b->query, b->total, complete_until, out);
        buf_printf(out, "\"distinct\":%zu,\"rows\":[", b->distinct);
    }
    for (size_t i = 0; i < b->n_rows; i++) {
        const struct breakdown_row *row = &b->rows[i];
        double share = b->total ? (double)row->n / (double)b->total : 0;
        if (csv) {
            buf_append_csv(out, breakdown_text(row));
            buf_printf(out, ",%" PRIu64 ",%.6f\n", row->n, share);
        } else {
            buf_append_str(out, i ? ",{" : "{");
            member(out, "key", breakdown_text(row));
            buf_printf(out, "\"n\":%" PRIu64 ",\"share\":%.6f}", row->n, share);
        }
    }
    if (!csv)
        buf_printf(out, "],\"other\":%" PRIu64 "}\n", b->total - b->shown);
}

static void counter_json(const struct counter *c, struct buf *out)
{
    member(out, "ns", bytes_str(c->ns));
    member(out, "label", bytes_str(c->label));
    buf_append_str(out, "\"key\":");
    buf_append_json(out, bytes_str(c->key_text));
}

static void render_counters(const struct counters *c, struct buf *out)
{
    buf_append_char(out, '{');
    member(out, "time", bytes_str(c->time_field));
    buf_append_str(out, "\"totals\":[");
    for (size_t i = 0; i < c->n_totals; i++) {
        buf_append_str(out, i ? ",{" : "{");
        counter_json(&c->totals[i], out);
        buf_append_str(out, ",\"subtotals\":[");
        for (size_t j = 0, n = 0; j < c->n_subtotals; j++) {
            if (c->subtotals[j].total != i)
                continue;
            buf_append_str(out, n++ ? ",{" : "{");
            counter_json(&c->subtotals[j], out);
            buf_append_char(out, '}');
        }
        buf_append_str(out, "]}");
    }
    buf_append_str(out, "]}\n");
}

static void answer(struct ask *a)
{
    struct buf out = {0};
    if (a->query.kind == QUERY_SERIES)
        render_series(&a->series, a->complete_until, &out);
    else
        render_breakdown(&a->breakdown, a->complete_until, &out);
    http_add_header(a->req, "X-Millrace-Complete-Until", "%lld", (long long)a->complete_until);
    http_reply(a->req, 200, a->query.format == QUERY_CSV ? "text/csv; charset=utf-8" : "application/json",
        buf_bytes(&out));
    buf_free(&out);
    ask_free(a);
}

static void unavailable(struct ask *a, const char *why)
{
    http_problem(a->req, 503, "upstream-unavailable", "try again; answers are never partial", "%s", why);
    ask_free(a);
}

static void ask_restart(void *arg)
{
    struct ask *a = arg;
    if (a->query.kind == QUERY_SERIES)
        series_reset(&a->series);
    else
        breakdown_reset(&a->breakdown);
}

static bool ask_record(void *arg, const struct record *r)
{
    struct ask *a = arg;
    return a->query.kind == QUERY_SERIES ? series_add(&a->series, r) : breakdown_add(&a->breakdown, r);
}

/* The second half of a breakdown requests the texts of hashed subtotals. */

static void look_up(struct ask *a);

static bool lookup_record(void *arg, const struct record *r)
{
    return breakdown_add_lookup(&((struct ask *)arg)->breakdown, r);
}

static void lookup_done(void *arg, enum source_result result, int64_t complete_until, const char *why)
{
    struct ask *a = arg;
    bool missing = false;
    (void)complete_until; /* that of the counts is used */
    a->question = NULL;
    for (size_t i = 0; i < a->looked_up; i++)
        missing = missing || breakdown_wants_text(&a->breakdown, i);
    if (!a->req)
        ask_free(a);
    else if (result != SOURCE_OK)
        unavailable(a, why);
    else if (missing)
        unavailable(a, "a hashed key has no lookup record");
    else
        look_up(a);
}

/* Requests the next batch of texts; answers once all are known. */
static void look_up(struct ask *a)
{
    struct breakdown *b = &a->breakdown;
    struct buf target = {0};
    size_t n = 0;
    buf_append_str(&target, "/mget?");
    for (; a->looked_up < b->n_rows && n < LOOKUPS_MAX; a->looked_up++) {
        if (!breakdown_wants_text(b, a->looked_up))
            continue;
        buf_append_str(&target, n++ ? "&k=lookup%7C" : "k=lookup%7C");
        url_encode(b->rows[a->looked_up].stored, &target);
    }
    buf_append_char(&target, '\0');
    if (n) {
        const struct source_question q = {
            .target = target.ptr, .arg = a, .on_record = lookup_record, .on_done = lookup_done};
        a->question = source_ask(a->api->sources, &q);
    } else {
        breakdown_finish(b);
        answer(a);
    }
    buf_free(&target);
}

static void counts_done(void *arg, enum source_result result, int64_t complete_until, const char *why)
{
    struct ask *a = arg;
    a->question = NULL;
    a->complete_until = complete_until;
    if (!a->req) {
        ask_free(a);
    } else if (result != SOURCE_OK) {
        unavailable(a, why);
    } else if (a->query.kind == QUERY_SERIES) {
        answer(a);
    } else {
        breakdown_select(&a->breakdown);
        look_up(a);
    }
}

static void append_key(struct buf *target, const char *ns, const char *stored, int64_t hour)
{
    char text[HOUR_TEXT_MAX + 1];
    struct buf raw = {0};
    buf_append_str(&raw, ns);
    buf_append_char(&raw, '|');
    buf_append_str(&raw, stored);
    if (hour >= 0) {
        hour_encode(hour, text);
        buf_append_char(&raw, '.');
        buf_append_str(&raw, text);
    }
    url_encode(buf_bytes(&raw), target);
    buf_free(&raw);
}

/* The nearest hour that can be written. */
static int64_t countable_hour(int64_t t)
{
    int64_t last = HOUR_END - HOUR_SECONDS, hour = t / HOUR_SECONDS * HOUR_SECONDS;
    return hour < HOUR_FIRST ? HOUR_FIRST : hour > last ? last : hour;
}

/* A total is one record. A subtotal has one record for each hour, adjacent in key order. A span without any hour still asks for one
 * hour, because the reply has complete_until; the answer omits that hour. */
static void ask_start(struct ask *a)
{
    const struct query *q = &a->query;
    struct buf target = {0};
    if (q->kind == QUERY_SERIES)
        series_init(&a->series, q);
    else
        breakdown_init(&a->breakdown, q);
    if (!q->sub) {
        buf_append_str(&target, "/mget?k=");
        append_key(&target, q->total->ns, q->stored, -1);
    } else {
        int64_t first = countable_hour(q->from + HOUR_SECONDS - 1), last = countable_hour(q->to - 1);
        buf_append_str(&target, "/range?start=");
        append_key(&target, q->sub->ns, q->stored, first);
        buf_append_str(&target, "&end=");
        append_key(&target, q->sub->ns, q->stored, last < first ? first : last);
    }
    buf_append_char(&target, '\0');
    const struct source_question question = {.target = target.ptr,
        .arg = a,
        .on_restart = ask_restart,
        .on_record = ask_record,
        .on_done = counts_done};
    http_on_gone(a->req, ask_gone, a);
    a->question = source_ask(a->api->sources, &question);
    buf_free(&target);
}

static void handle_query(struct http_request *req, struct api *api, enum query_kind kind)
{
    struct ask *a = mem_zalloc(sizeof *a);
    *a = (struct ask){.magic = ASK_MAGIC, .api = api, .req = req};
    const struct query_context context = {
        .counters = api->counters, .max_rows = api->max_rows, .now = clock_wall() / USEC_PER_SEC};
    struct query_error error;
    if (query_parse(&context, kind, http_query(req), &a->query, &error) == 0) {
        ask_start(a);
        return;
    }
    http_problem(req, error.status, error.code, *error.hint ? error.hint : NULL, "%s", error.detail);
    ask_free(a);
}

static void handle_series(struct http_request *req, void *ctx)
{
    handle_query(req, ctx, QUERY_SERIES);
}

static void handle_breakdown(struct http_request *req, void *ctx)
{
    handle_query(req, ctx, QUERY_BREAKDOWN);
}

static void handle_counters(struct http_request *req, void *ctx)
{
    struct buf out = {0};
    render_counters(((struct api *)ctx)->counters, &out);
    http_reply(req, 200, "application/json", buf_bytes(&out));
    buf_free(&out);
}

struct post {
    struct http_request *req; /* NULL: the client disconnected */
    size_t lines;
};

static void post_gone(struct http_request *req, void *arg)
{
    (void)req;
    ((struct post *)arg)->req = NULL;
}

static void post_done(enum http_client_result result, const struct http_reply_view *reply, void *arg)
{
    struct post *p = arg;
    if (!p->req) {
        free(p);
        return;
    }
    if (result == HTTP_CLIENT_REFUSED)
        http_problem(p->req, 503, "upstream-unavailable", "try again", "cannot connect to the queue");
    else if (result != HTTP_CLIENT_OK)
        http_problem(p->req, 503, "upstream-unavailable",
            "the queue may have stored the events; use producer, mark and next to make a retry harmless",
            "the queue did not answer: %s", http_client_strerror(result));
    else if (reply->status != 200) { /* a refusal of the queue is passed on unchanged */
        const char *retry = http_reply_header(reply, "Retry-After");
        if (*retry)
            http_add_header(p->req, "Retry-After", "%s", retry);
        http_reply(p->req, reply->status, http_reply_header(reply, "Content-Type"), reply->body);
    } else
        http_replyf(p->req, 200, "application/json", "{\"accepted\":%zu%s}\n", p->lines,
            *http_reply_header(reply, "X-Millrace-Duplicate") ? ",\"duplicate\":true" : "");
    free(p);
}

/* Converts a posted body to the body of an /mput and returns the number of events. Drops empty lines and each CR before an LF. */
static size_t clean_events(struct bytes body, struct buf *out)
{
    const char *at = body.ptr, *end = body.len ? body.ptr + body.len : at;
    size_t n = 0;
    while (at != end) {
        const char *lf = memchr(at, '\n', (size_t)(end - at));
        const char *stop = lf ? lf : end;
        size_t len = (size_t)(stop - at);
        if (len && at[len - 1] == '\r')
            len--;
        if (len) {
            buf_append(out, at, len);
            buf_append_char(out, '\n');
            n++;
        }
        at = lf ? lf + 1 : end;
    }
    return n;
}

static void handle_events(struct http_request *req, void *ctx)
{
    static const char *const marks[] = {"queue", "producer", "mark", "next"};
    struct api *api = ctx;
    struct buf lines = {0}, target = {0};
    struct bytes value;
    bool names_producer = false;
    http_add_header(req, "Access-Control-Allow-Origin", "*");
    if (http_method(req) ==
        HTTP_OPTIONS_) { /* any page may post events; counts are not readable across origins */
        http_add_header(req, "Access-Control-Allow-Methods", "POST, OPTIONS");
        http_add_header(req, "Access-Control-Allow-Headers", "Content-Type, Authorization");
        http_add_header(req, "Access-Control-Max-Age", "86400");
        http_reply(req, 204, NULL, BYTES_NONE);
        return;
    }
    buf_append_str(&target, "/mput?separator=%0A");
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) {
        if (!http_param(req, marks[i], &value))
            continue;
        names_producer = true;
        buf_printf(&target, "&%s=", marks[i]);
        url_encode(value, &target);
    }
    buf_append_char(&target, '\0');
    size_t n = clean_events(http_body(req), &lines);
    /* Pages of other origins may neither name a queue nor move a mark. */
    bool allowed = !names_producer || http_require_same_origin(req);
    bool is_empty = n == 0 && !http_param(req, "mark", &value);
    if (allowed && is_empty)
        http_problem(req, 400, "empty-body", "post events, one JSON object a line", "the body has no events");
    if (allowed && !is_empty) {
        struct post *p = mem_zalloc(sizeof *p);
        *p = (struct post){.req = req, .lines = n};
        http_on_gone(req, post_gone, p);
        http_client_request(api->queue, &(struct http_call_spec){.method = "POST",
                                            .target = target.ptr,
                                            .content_type = "application/octet-stream",
                                            .body = buf_bytes(&lines),
                                            .arg = p,
                                            .on_done = post_done});
    }
    buf_free(&lines);
    buf_free(&target);
}

const struct http_route api_routes[] = {
    {.path = "/v1/series",
        .methods = HTTP_GET_,
        .handler = handle_series,
        .help = "LABEL=KEY, or ns= and key=: counts by hour, day, week or month"},
    {.path = "/v1/breakdown",
        .methods = HTTP_GET_,
        .handler = handle_breakdown,
        .help = "LABEL=KEY&by=LABEL: the subtotals of a key, largest first"},
    {.path = "/v1/counters",
        .methods = HTTP_GET_,
        .handler = handle_counters,
        .help = "the configured counters"},
    {.path = "/v1/events",
        .methods = HTTP_POST_ | HTTP_OPTIONS_,
        .flags = HTTP_ROUTE_IDENTITY_BODY | HTTP_ROUTE_PUBLIC,
        .handler = handle_events,
        .help = "put events, one a line, onto the local queue"},
    {.path = NULL},
};
