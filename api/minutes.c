#include "api/minutes.h"

#include "api/completeness_reply.h"
#include "api/etag.h"
#include "api/render.h"
#include "json/json_fields.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define MINUTES_MAGIC 0x6d696e73u
#define LOOKUPS_MAX 500 /* hashes in one request */
#define HINT "ask for fewer rows, or raise --max-buffered"

/* A minute of a series, or a key of a breakdown. */
struct row {
    int64_t t; /* minute of a series, Unix seconds */
    int64_t n;
    char stored[COMPONENT_HASH + 1];
    char *text; /* text of a hashed key; NULL: unknown */
    size_t text_len;
};

struct minutes {
    unsigned magic;
    struct http_request *req;
    struct sources *sources;
    struct question *question;
    struct query query;
    bool is_series, is_refused;
    struct row *rows;
    size_t n_rows, room, bytes;
    size_t asked;    /* number of rows whose texts were requested */
    struct buf hash; /* hash and text of the latest lookup */
    struct buf text;
    int64_t total;
    uint64_t distinct;
    struct completeness complete;
};

static void clear(void *arg)
{
    struct minutes *m = arg;
    for (size_t i = 0; i < m->n_rows; i++)
        free(m->rows[i].text);
    buf_clear(&m->hash);
    m->n_rows = m->bytes = 0;
    m->total = 0;
    m->distinct = 0;
}

static void minutes_free(struct minutes *m)
{
    assert(m->magic == MINUTES_MAGIC);
    clear(m);
    free(m->rows);
    buf_free(&m->hash);
    buf_free(&m->text);
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

static void set_text(struct minutes *m, struct row *row, struct bytes text)
{
    if (row->text && bytes_compare(text, bytes_of(row->text, row->text_len)) >= 0)
        return;
    free(row->text);
    row->text = bytes_dup(text);
    row->text_len = text.len;
    m->bytes += text.len;
}

static bool read_lookup(struct minutes *m, const struct record *r, struct bytes *hash)
{
    struct record_key key;
    if (!record_key_parse(r->key, &key) || !key.is_lookup)
        return false;
    *hash = key.key;
    buf_clear(&m->text);
    return lookup_unescape(r->value, &m->text) == 0;
}

static bool add_row(struct minutes *m, const struct record *r, int64_t n)
{
    struct row *row = ARRAY_ADD(m->rows, m->n_rows, m->room);
    *row = (struct row){.n = n};
    m->bytes += sizeof *row;
    if (m->is_series) {
        m->total += n;
        return bytes_to_i64(r->key, &row->t);
    }
    if (r->key.len > COMPONENT_HASH)
        return false;
    snprintf(row->stored, sizeof row->stored, "%.*s", (int)r->key.len, r->key.ptr);
    if (bytes_equal(buf_bytes(&m->hash), r->key))
        set_text(m, row, buf_bytes(&m->text));
    return true;
}

static bool on_record(void *arg, const struct record *r)
{
    struct minutes *m = arg;
    struct bytes hash;
    int64_t n;
    if (bytes_starts_with(r->key, BYTES_LITERAL("lookup|"))) {
        buf_clear(&m->hash);
        if (!read_lookup(m, r, &hash))
            return false;
        buf_append_bytes(&m->hash, hash);
        return true;
    }
    if (!bytes_to_i64(r->value, &n))
        return false;
    if (bytes_equal_str(r->key, "|total"))
        m->total = n;
    else if (bytes_equal_str(r->key, "|distinct"))
        m->distinct = (uint64_t)n;
    else
        return add_row(m, r, n);
    return true;
}

static bool on_text(void *arg, const struct record *r)
{
    struct minutes *m = arg;
    struct bytes hash;
    if (!read_lookup(m, r, &hash))
        return false;
    for (size_t i = 0; i < m->n_rows; i++)
        if (bytes_equal_str(hash, m->rows[i].stored))
            set_text(m, &m->rows[i], buf_bytes(&m->text));
    return true;
}

static bool on_piece(void *arg, size_t held)
{
    const struct minutes *m = arg;
    return http_hold(m->req, sizeof *m + held + m->bytes) == HTTP_HOLD_OK;
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

static struct bytes text_of(const struct row *row)
{
    return row->text ? bytes_of(row->text, row->text_len) : bytes_str(row->stored);
}

static int by_count(const void *a, const void *b)
{
    const struct row *x = a, *y = b;
    return x->n != y->n ? (x->n < y->n ? 1 : -1) : bytes_compare(text_of(x), text_of(y));
}

static void render_complete(bool is_complete, bool is_csv, struct buf *out)
{
    buf_append_str(out, is_csv ? "," : ",\"complete\":");
    buf_append_str(out, is_complete ? "true" : "false");
    buf_append_str(out, is_csv ? "\n" : "}");
}

static void render_series(const struct minutes *m, bool is_csv, struct buf *out)
{
    const struct query *q = &m->query;
    size_t next = 0;
    for (int64_t t = q->from; t < q->to; t += MINUTE_SECONDS) {
        int64_t n = next < m->n_rows && m->rows[next].t == t ? m->rows[next++].n : 0;
        buf_append_str(out, is_csv || t == q->from ? "" : ",");
        buf_printf(out, is_csv ? "%" PRId64 "," : "{\"t\":%" PRId64 ",\"date\":\"", t);
        units_print_date(&q->calendar, t, out);
        buf_append_str(out, is_csv ? "," : "\",\"n\":");
        render_number(q->total, n, out);
        render_complete(t + MINUTE_SECONDS <= m->complete.until, is_csv, out);
    }
}

/* Returns the sum of the rows. */
static int64_t shown_of(const struct minutes *m)
{
    int64_t shown = 0;
    for (size_t i = 0; i < m->n_rows; i++)
        shown += m->rows[i].n;
    return shown;
}

/* Rows have no shares if one of them, or the rest, is negative (render.c). */
static void render_keys(const struct minutes *m, bool is_csv, struct buf *out)
{
    bool has_shares = m->total >= shown_of(m) && (m->n_rows == 0 || m->rows[m->n_rows - 1].n >= 0);
    for (size_t i = 0; i < m->n_rows; i++) {
        const struct row *row = &m->rows[i];
        buf_append_str(out, is_csv ? "" : i ? ",{\"key\":" : "{\"key\":");
        (is_csv ? buf_append_csv : buf_append_json)(out, text_of(row));
        buf_append_str(out, is_csv ? "," : ",\"n\":");
        render_number(m->query.total, row->n, out);
        buf_append_str(out, is_csv ? "," : ",\"share\":");
        if (has_shares)
            buf_printf(out, "%.6f", m->total ? (double)row->n / (double)m->total : 0);
        else
            buf_append_str(out, is_csv ? "" : "null");
        render_complete(m->query.to <= m->complete.until, is_csv, out);
    }
}

static void render_json(const struct minutes *m, struct buf *out)
{
    const struct query *q = &m->query;
    render_head(q, &m->complete, out);
    if (m->is_series && q->sub)
        render_member(out, "sub", q->sub_key);
    if (m->is_series)
        render_member(out, "unit", BYTES_LITERAL("minute"));
    buf_printf(out, "\"from\":%" PRId64 ",\"to\":%" PRId64 ",", q->from, q->to);
    render_member(out, "timezone", bytes_str(q->calendar.zone.name));
    buf_append_str(out, "\"total\":");
    render_number(q->total, m->total, out);
    buf_append_char(out, ',');
    render_completeness(q->from, &m->complete, out);
    if (!m->is_series)
        buf_printf(out, "\"distinct\":%" PRIu64 ",", m->distinct);
    buf_append_str(out, "\"rows\":[");
    (m->is_series ? render_series : render_keys)(m, false, out);
    buf_append_char(out, ']');
    if (!m->is_series) {
        buf_append_str(out, ",\"other\":");
        render_number(q->total, m->total - shown_of(m), out);
    }
    buf_append_str(out, "}\n");
}

static void reply(struct minutes *m)
{
    bool is_csv = m->query.format == QUERY_CSV;
    struct buf out = {0};
    if (!m->is_series && m->n_rows > 1)
        qsort(m->rows, m->n_rows, sizeof *m->rows, by_count);
    if (!is_csv) {
        render_json(m, &out);
    } else if (m->is_series) {
        buf_append_str(&out, "t,date,n,complete\n");
        render_series(m, true, &out);
    } else {
        buf_append_str(&out, "key,n,share,complete\n");
        render_keys(m, true, &out);
    }
    completeness_add_headers(m->req, &m->complete);
    etag_reply(m->req, is_csv ? "text/csv; charset=utf-8" : "application/json", buf_bytes(&out), 0);
    buf_free(&out);
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
    if (!m->req || m->is_refused) {
        minutes_free(m);
        return;
    }
    if (result == SOURCE_OK && !m->is_series && ask_texts(m))
        return;
    if (result == SOURCE_OK)
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
    buf_append_str(&target, "/mget?");
    for (; m->asked < m->n_rows && n < LOOKUPS_MAX; m->asked++) {
        const struct row *row = &m->rows[m->asked];
        if (row->text || !component_is_hash(bytes_str(row->stored)))
            continue;
        buf_append_str(&target, n++ ? "&k=lookup%7C" : "k=lookup%7C");
        url_encode(bytes_str(row->stored), &target);
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
