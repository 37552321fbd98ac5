#include "api/lookup.h"

#include "api/etag.h"
#include "api/inquiry.h"
#include "api/render.h"
#include "base/suggest.h"
#include "read/read_protocol.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define LOOKUP_MAGIC 0x6c6f6f6bu
#define LIMIT_DEFAULT 100
#define ROUNDS_MAX 100

/* The counts of a key in one total. A sum may be 0 although the total has the key. */
struct key_sum {
    int64_t n;
    bool is_found;
};

/* The answer of one source. */
struct source_keys {
    struct buf lines; /* lines of the form `TEXT,NS:N NS:N` */
    size_t last;      /* offset of the last line in `lines` */
    bool has_more;
    struct buf next; /* key from which the source's next answer continues */
    size_t at;       /* offset of the next line to merge */
};

struct lookup {
    struct inquiry inquiry;
    unsigned magic;
    struct buf rows; /* text of the rows that were found */
    uint64_t n_keys;
    const struct counters *counters;
    struct bytes prefix, contains; /* may be empty */
    uint64_t max_search;
    struct buf start;
    const struct counter *only; /* NULL: all totals */
    uint64_t limit;
    bool is_csv;
    struct source_keys *sources; /* by cells_source */
    size_t n_sources;
    bool is_too_large; /* a sum of the answer exceeds 64 bits */
};

static void clear_answers(void *arg)
{
    struct lookup *l = arg;
    for (size_t i = 0; i < l->n_sources; i++) {
        buf_free(&l->sources[i].lines);
        buf_free(&l->sources[i].next);
        l->sources[i] = (struct source_keys){0};
    }
}

static void lookup_free(void *arg)
{
    struct lookup *l = arg;
    assert(l->magic == LOOKUP_MAGIC);
    clear_answers(l);
    free(l->sources);
    buf_free(&l->start);
    buf_free(&l->rows);
    l->magic = 0;
    free(l);
}

static struct bytes first_line(const struct source_keys *s)
{
    const char *lf = s->at < s->lines.len ? memchr(s->lines.ptr + s->at, '\n', s->lines.len - s->at) : NULL;
    return lf ? bytes_of(s->lines.ptr + s->at, (size_t)(lf - s->lines.ptr) - s->at) : BYTES_NONE;
}

/* Adds a record. A long record is passed on in several records with the same key. */
static bool on_record(void *arg, const struct record *r)
{
    struct lookup *l = arg;
    struct source_keys *s = &l->sources[cells_source(l->inquiry.question)];
    struct bytes last = bytes_of(s->lines.ptr + s->last, s->lines.len - s->last);
    if (last.len > r->key.len && bytes_starts_with(last, r->key) &&
        last.ptr[r->key.len] == RECORD_SEPARATOR) {
        s->lines.ptr[s->lines.len - 1] = ' ';
    } else {
        if (last.len > 0) {
            struct record before;
            if (!record_split(last, RECORD_SEPARATOR, &before) ||
                record_key_compare(before.key, r->key, RECORD_SEPARATOR) >= 0)
                return false;
        }
        s->last = s->lines.len;
        buf_append_bytes(&s->lines, r->key);
        buf_append_char(&s->lines, RECORD_SEPARATOR);
    }
    buf_append_bytes(&s->lines, r->value);
    buf_append_char(&s->lines, '\n');
    return true;
}

static void on_source(void *arg, struct bytes next)
{
    struct lookup *l = arg;
    struct source_keys *s = &l->sources[cells_source(l->inquiry.question)];
    s->has_more = next.len > 0;
    text_key_encode(next, &s->next);
}

static size_t bytes(const void *arg)
{
    const struct lookup *l = arg;
    size_t n = sizeof *l + l->n_sources * sizeof *l->sources + l->rows.cap;
    for (size_t i = 0; i < l->n_sources; i++)
        n += l->sources[i].lines.cap;
    return n;
}

/* Returns the lowest key of all sources. Empty: no key remains whose counts are known to be complete. */
static struct bytes first_key(const struct lookup *l)
{
    struct bytes first = BYTES_NONE;
    for (size_t i = 0; i < l->n_sources; i++) {
        struct record r;
        if (record_split(first_line(&l->sources[i]), RECORD_SEPARATOR, &r) &&
            (first.len == 0 || record_key_compare(r.key, first, RECORD_SEPARATOR) < 0))
            first = r.key;
    }
    for (size_t i = 0; i < l->n_sources; i++) {
        const struct source_keys *s = &l->sources[i];
        if (s->has_more && first.len > 0 &&
            record_key_compare(first, buf_bytes(&s->next), RECORD_SEPARATOR) >= 0)
            return BYTES_NONE;
    }
    return first;
}

static const struct counter *find_total(const struct lookup *l, struct bytes ns)
{
    for (size_t i = 0; i < l->counters->n_totals; i++)
        if (bytes_equal_str(ns, l->counters->totals[i].ns))
            return &l->counters->totals[i];
    return NULL;
}

/* Reads the lines of a key and adds up the counts of each total. */
static void sum_key(struct lookup *l, struct bytes key, struct key_sum *sums)
{
    memset(sums, 0, l->counters->n_totals * sizeof *sums);
    for (size_t i = 0; i < l->n_sources; i++) {
        struct source_keys *s = &l->sources[i];
        struct bytes line = first_line(s), ns;
        struct record r;
        int64_t n;
        bool bad = false;
        if (!record_split(line, RECORD_SEPARATOR, &r) || !bytes_equal(r.key, key))
            continue;
        while (record_next_count(&r.value, &ns, &n, &bad)) {
            const struct counter *total = find_total(l, ns);
            if (!total)
                continue;
            struct key_sum *sum = &sums[total - l->counters->totals];
            sum->is_found = true;
            count_sum_add(&sum->n, n);
            l->is_too_large |= sum->n == COUNT_SUM_TOO_LARGE;
        }
        s->at += line.len + 1;
    }
}

static void append_row(struct lookup *l, struct bytes key, const struct counter *c, int64_t n)
{
    struct buf *out = &l->rows;
    if (l->is_csv) {
        buf_append_csv(out, key);
        buf_printf(out, ",%s,%s,", c->ns, c->label);
        render_number(c, n, out);
        buf_append_char(out, '\n');
        return;
    }
    buf_append_str(out, out->len == 0 ? "{\"key\":" : ",{\"key\":");
    buf_append_json(out, key);
    buf_printf(out, ",\"ns\":\"%s\",\"label\":", c->ns);
    buf_append_json(out, bytes_str(c->label));
    buf_append_str(out, ",\"n\":");
    render_number(c, n, out);
    buf_append_char(out, '}');
}

/* Appends the rows of the keys that all sources have sent. */
static void append_rows(struct lookup *l)
{
    struct key_sum *sums = mem_alloc((l->counters->n_totals + 1) * sizeof *sums);
    struct bytes first;
    for (; l->n_keys < l->limit && (first = first_key(l)).len > 0; l->n_keys++) {
        struct buf text = {0}, key = {0};
        buf_append_bytes(&key, first);
        text_key_decode(first, &text);
        sum_key(l, buf_bytes(&key), sums);
        for (size_t i = 0; i < l->counters->n_totals; i++)
            if (sums[i].is_found)
                append_row(l, buf_bytes(&text), &l->counters->totals[i], sums[i].n);
        buf_free(&text);
        buf_free(&key);
    }
    free(sums);
}

/* Appends the text of the next key. Returns false if no more keys follow. */
static bool find_next(const struct lookup *l, struct buf *out)
{
    struct bytes next = first_key(l);
    for (size_t i = 0; i < l->n_sources; i++) {
        const struct source_keys *s = &l->sources[i];
        if (s->has_more &&
            (next.len == 0 || record_key_compare(buf_bytes(&s->next), next, RECORD_SEPARATOR) < 0))
            next = buf_bytes(&s->next);
    }
    text_key_decode(next, out);
    return next.len > 0;
}

/* Appends the token of the next key: its text in hexadecimal digits, which need no escapes in JSON or a URL. */
static bool append_continuation(const struct lookup *l, struct buf *out)
{
    struct buf text = {0};
    bool more = find_next(l, &text);
    buf_append_hex(out, buf_bytes(&text));
    buf_free(&text);
    return more;
}

static void send_reply(struct lookup *l, struct bytes body, struct bytes token)
{
    struct http_request *req = l->inquiry.req;
    http_add_header(req, "X-Millrace-Complete-Until", "%" PRId64, l->inquiry.complete.until);
    if (token.len > 0)
        http_add_header(req, "X-Millrace-Continuation", "%.*s", (int)token.len, token.ptr);
    etag_reply(req, l->is_csv ? "text/csv; charset=utf-8" : "application/json", body, 0);
}

static void reply(void *arg)
{
    struct lookup *l = arg;
    struct buf out = {0}, token = {0};
    if (l->is_csv) {
        buf_append_str(&out, "key,ns,label,n\n");
    } else {
        buf_append_char(&out, '{');
        render_member(&out, "prefix", l->prefix);
        if (l->contains.len > 0)
            render_member(&out, "contains", l->contains);
        render_complete_until(&l->inquiry.complete, &out);
        buf_append_str(&out, ",\"rows\":[");
    }
    buf_append_bytes(&out, buf_bytes(&l->rows));
    bool more = append_continuation(l, &token);
    if (!l->is_csv && more)
        buf_printf(&out, "],\"continuation\":\"%.*s\"}\n", (int)token.len, token.ptr);
    else if (!l->is_csv)
        buf_append_str(&out, "]}\n");
    if (l->is_too_large)
        http_problem(l->inquiry.req, 422, "sum-too-large",
            "ask for the series of one key over a shorter time",
            "the counts of a key add up to more than 64 bits");
    else
        send_reply(l, buf_bytes(&out), buf_bytes(&token));
    buf_free(&out);
    buf_free(&token);
    lookup_free(l);
}

static bool bad(struct http_request *req, const char *detail)
{
    http_problem(req, 400, "bad-parameter", NULL, "%s", detail);
    return false;
}

static bool read_total(struct lookup *l, struct http_request *req)
{
    struct bytes name;
    bool by_ns = http_param(req, "ns", &name), by_label = !by_ns && http_param(req, "counter", &name);
    if (by_ns && http_param(req, "counter", &name))
        return bad(req, "give counter= or ns=, not both");
    if (!by_ns && !by_label) {
        if (l->counters->n_totals <= READ_TOTALS_MAX)
            return true;
        return bad(req, "too many totals are configured; give counter= or ns=");
    }
    char *written = bytes_dup(name);
    struct suggest near = suggest_for(written);
    for (size_t i = 0; i < l->counters->n_totals && !l->only; i++) {
        const struct counter *c = &l->counters->totals[i];
        suggest_try(&near, by_ns ? c->ns : c->label);
        if (bytes_equal_str(name, by_ns ? c->ns : c->label))
            l->only = c;
    }
    if (!l->only)
        http_problem(req, 404, "unknown-counter", "GET /v1/counters lists the counters",
            "no total has this %s%s%s%s", by_ns ? "namespace" : "label",
            near.nearest ? ": did you mean " : "", near.nearest ? near.nearest : "", near.nearest ? "?" : "");
    free(written);
    return l->only != NULL;
}

static bool read_params(struct lookup *l, struct http_request *req)
{
    struct bytes text;
    bool has_prefix = http_param(req, "prefix", &l->prefix);
    if (!http_param(req, "contains", &l->contains) && !has_prefix)
        return bad(req, "give prefix=, which may be empty, or contains=");
    if (http_param(req, "continuation", &text) && (text.len == 0 || !buf_append_unhex(&l->start, text)))
        return bad(req, "continuation must be that of an answer");
    if (http_param(req, "format", &text)) {
        l->is_csv = bytes_equal_str(text, "csv");
        if (!l->is_csv && !bytes_equal_str(text, "json"))
            return bad(req, "format must be json or csv");
    }
    return http_param_u64(req, "limit", LIMIT_DEFAULT, 1, READ_KEYS_MAX, &l->limit) && read_total(l, req);
}

/* Sets the key from which the sources continue. Returns false if `limit` keys were found, no keys follow, or ROUNDS_MAX
 * questions were asked again. */
static bool go_on(struct lookup *l, size_t rounds)
{
    struct buf next = {0};
    if (l->n_keys >= l->limit || rounds > ROUNDS_MAX || !find_next(l, &next)) {
        buf_free(&next);
        return false;
    }
    buf_free(&l->start);
    l->start = next;
    clear_answers(l);
    return true;
}

/* Asks again if the sources have searched for long, and found fewer keys than the limit. */
static enum inquiry_next ask(void *arg, size_t n, struct source_question *question, struct buf *target)
{
    struct lookup *l = arg;
    (void)question;
    if (n > 0 && !go_on(l, n))
        return INQUIRY_NEXT;
    buf_printf(target, "/keys?limit=%" PRIu64 "&prefix=", l->limit);
    url_encode(l->prefix, target);
    if (l->contains.len > 0) {
        buf_printf(target, "&max_search=%" PRIu64 "&contains=", l->max_search);
        url_encode(l->contains, target);
    }
    if (l->start.len > 0)
        buf_append_str(target, "&start=");
    url_encode(buf_bytes(&l->start), target);
    for (size_t i = 0; i < l->counters->n_totals; i++)
        if (!l->only || l->only == &l->counters->totals[i])
            buf_printf(target, "&ns=%s", l->counters->totals[i].ns);
    return INQUIRY_ASK;
}

static bool end(void *arg)
{
    append_rows(arg);
    return true;
}

static bool fail(void *arg, enum source_result result, const char *why)
{
    struct lookup *l = arg;
    (void)why;
    if (result != SOURCE_TOO_LARGE)
        return false;
    http_problem(l->inquiry.req, 422, "search-too-large",
        "give counter= and the beginning of the keys (prefix=), or raise [api] max_search",
        "the search has to read more than %" PRIu64 " bytes of the archive (max_search)", l->max_search);
    lookup_free(l);
    return true;
}

static const struct inquiry_step step = {
    ask, end, {.on_restart = clear_answers, .on_record = on_record, .on_source = on_source}};

static const struct inquiry_spec spec = {.steps = &step,
    .n_steps = 1,
    .bytes = bytes,
    .answer = reply,
    .fail = fail,
    .free = lookup_free,
    .hint = "ask for fewer keys, or raise --max-buffered"};

void lookup_start(
    struct cells *cells, const struct counters *counters, uint64_t max_search, struct http_request *req)
{
    struct lookup *l = mem_zalloc(sizeof *l);
    *l = (struct lookup){.magic = LOOKUP_MAGIC,
        .inquiry = {.spec = &spec,
            .cells = cells,
            .req = req,
            .retry = "try again; answers are never partial"},
        .n_sources = cells->n * SOURCES_MAX,
        .counters = counters,
        .max_search = max_search};
    l->sources = mem_zalloc(l->n_sources * sizeof *l->sources);
    if (read_params(l, req))
        inquiry_begin(&l->inquiry);
    else
        lookup_free(l);
}
