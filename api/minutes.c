#include "api/minutes.h"

#include "api/completeness_reply.h"
#include "api/etag.h"
#include "api/render.h"
#include "json/json_fields.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>

#define MINUTES_MAGIC 0x6d696e73u
#define LOOKUPS_MAX 500 /* hashes in one request */
#define HINT "ask for fewer rows, or raise --max-buffered"

struct minutes {
    unsigned magic;
    struct http_request *req;
    struct sources *sources;
    struct question *question;
    struct query query;
    bool is_series, is_refused;
    struct series series;
    struct breakdown breakdown; /* of the largest keys only */
    int64_t total;              /* of all keys */
    size_t distinct;
    bool is_selected; /* the breakdown has its rows, but not all texts */
    size_t asked;     /* number of rows whose texts were requested */
    struct completeness complete;
};

static void clear(void *arg)
{
    struct minutes *m = arg;
    series_reset(&m->series);
    breakdown_reset(&m->breakdown);
    m->is_selected = false;
    m->total = 0;
    m->distinct = 0;
}

static void minutes_free(struct minutes *m)
{
    assert(m->magic == MINUTES_MAGIC);
    clear(m);
    m->magic = 0;
    free(m);
}

static void on_gone(struct http_request *req, void *arg)
{
    struct minutes *m = arg;
    (void)req;
    m->req = NULL;
    source_cancel(m->question);
}

static void select_rows(struct minutes *m)
{
    while (!m->is_selected)
        m->is_selected = breakdown_select(&m->breakdown);
}

static bool on_text(void *arg, const struct record *r)
{
    struct minutes *m = arg;
    select_rows(m);
    return breakdown_add_lookup(&m->breakdown, r);
}

static bool on_record(void *arg, const struct record *r)
{
    struct minutes *m = arg;
    int64_t n, t;
    if (bytes_starts_with(r->key, BYTES_LITERAL("lookup|")))
        return on_text(arg, r);
    if (m->is_selected || !bytes_to_i64(r->value, &n))
        return false;
    if (m->is_series)
        return bytes_to_i64(r->key, &t) && series_add_count(&m->series, t, n);
    if (bytes_equal_str(r->key, "|total"))
        m->total = n;
    else if (bytes_equal_str(r->key, "|distinct"))
        m->distinct = (size_t)n;
    else
        return breakdown_add_count(&m->breakdown, r->key, n);
    return true;
}

static bool on_piece(void *arg, size_t held)
{
    const struct minutes *m = arg;
    return http_hold(m->req, sizeof *m + held + series_bytes(&m->series) + m->breakdown.bytes) ==
           HTTP_HOLD_OK;
}

/* Passes on the aggregator's refusal. */
static void on_refused(void *arg, struct bytes problem)
{
    struct minutes *m = arg;
    struct json_doc *doc = json_doc_parse(problem);
    struct bytes code = json_doc_text(doc, "/code"), hint = json_doc_text(doc, "/hint"),
                 detail = json_doc_text(doc, "/detail");
    struct json_value from = json_doc_at(doc, "/from");
    struct buf members = {0};
    char *name = bytes_dup(code.len > 0 ? code : BYTES_LITERAL("minutes-refused"));
    buf_append_str(&members, "\"hint\":");
    buf_append_json(&members, hint);
    if (from.type == JSON_I64)
        buf_printf(&members, ",\"from\":%" PRId64, from.v.i64);
    buf_append_char(&members, '\0');
    m->is_refused = true;
    if (m->req)
        http_problem_with(
            m->req, 422, name, members.ptr, "%.*s", (int)detail.len, detail.len ? detail.ptr : "");
    free(name);
    buf_free(&members);
    json_doc_free(&doc);
}

static void reply(struct minutes *m)
{
    struct breakdown *b = &m->breakdown;
    struct buf out = {0};
    size_t at = 0;
    if (m->is_series) {
        render_series_begin(&m->series, &m->complete, &out);
        render_series_rows(&m->series, &m->complete, SIZE_MAX, &out);
    } else {
        select_rows(m);
        breakdown_order(b);
        b->total = m->total;
        b->distinct = m->distinct;
        render_breakdown_begin(b, NULL, &m->complete, &out);
        render_breakdown_rows(b, NULL, &m->complete, &at, SIZE_MAX, &out);
    }
    completeness_add_headers(m->req, &m->complete);
    etag_reply(m->req, m->query.format == QUERY_CSV ? "text/csv; charset=utf-8" : "application/json",
        buf_bytes(&out), 0);
    buf_free(&out);
}

static bool is_too_large(const struct minutes *m)
{
    return m->series.is_too_large || m->breakdown.is_too_large || m->total == COUNT_SUM_TOO_LARGE;
}

static bool ask_texts(struct minutes *m);

/* Replies unless the answer needs further texts. Keeps the completeness of the counts. */
static void on_done(
    void *arg, enum source_result result, const struct completeness *complete, const char *why)
{
    struct minutes *m = arg;
    m->question = NULL;
    if (m->asked == 0)
        m->complete = *complete;
    m->complete.by_minute = true;
    if (!m->req || m->is_refused) {
        minutes_free(m);
        return;
    }
    if (result == SOURCE_OK && !m->is_series && ask_texts(m))
        return;
    if (result == SOURCE_OK && is_too_large(m))
        http_problem(
            m->req, 422, "sum-too-large", "ask for a shorter time", "the counts add up to more than 64 bits");
    else if (result == SOURCE_OK)
        reply(m);
    else if (result == SOURCE_STOPPED)
        http_refuse_hold(m->req, HTTP_HOLD_OVERLOADED, HINT);
    else
        completeness_refuse(m->req, complete, true, why);
    minutes_free(m);
}

/* Asks for the next texts of hashed keys. Returns false if no text is unknown. */
static bool ask_texts(struct minutes *m)
{
    struct buf target = {0};
    size_t n = 0;
    select_rows(m);
    buf_append_str(&target, "/mget?");
    for (; m->asked < m->breakdown.n_rows && n < LOOKUPS_MAX; m->asked++) {
        if (!breakdown_wants_text(&m->breakdown, m->asked))
            continue;
        buf_append_str(&target, n++ ? "&k=lookup%7C" : "k=lookup%7C");
        url_encode(breakdown_stored(&m->breakdown.rows[m->asked].sum), &target);
    }
    buf_append_char(&target, '\0');
    if (n > 0)
        m->question = source_ask(m->sources, &(struct source_question){.target = target.ptr,
                                                 .arg = m,
                                                 .on_record = on_text,
                                                 .on_piece = on_piece,
                                                 .on_done = on_done});
    buf_free(&target);
    return n > 0;
}

static void append_param(struct buf *target, const char *name, const char *value)
{
    buf_printf(target, "&%s=", name);
    url_encode(bytes_str(value), target);
}

void minutes_start(struct sources *sources, struct http_request *req, const struct query *q)
{
    struct minutes *m = mem_zalloc(sizeof *m);
    struct buf target = {0};
    *m = (struct minutes){
        .magic = MINUTES_MAGIC, .req = req, .sources = sources, .is_series = q->kind == QUERY_SERIES};
    query_copy(&m->query, q);
    series_init(&m->series, &m->query);
    breakdown_init(&m->breakdown, &m->query);
    buf_printf(&target, "/minutes?ns=%s&from=%" PRId64 "&to=%" PRId64 "&limit=%" PRIu64, query_counter(q)->ns,
        q->from, q->to, q->limit);
    if (q->key.len > 0)
        append_param(&target, "key", q->stored);
    if (q->sub_key.len > 0)
        append_param(&target, "sub", q->stored_sub);
    buf_append_char(&target, '\0');
    http_on_gone(req, on_gone, m);
    m->question = source_ask(sources, &(struct source_question){.target = target.ptr,
                                          .skips_archive = true,
                                          .arg = m,
                                          .on_restart = clear,
                                          .on_record = on_record,
                                          .on_refused = on_refused,
                                          .on_piece = on_piece,
                                          .on_done = on_done});
    buf_free(&target);
}
