#include "metricdb/metric_query.h"

#include "metricdb/query_params.h"
#include "metrics/exposition.h"
#include "promql/promql_json.h"

#include <stdio.h>
#include <stdlib.h>

#define SHOWN_MAX 100 /* bytes of a parameter in an error */

struct selector {
    struct promql *parsed; /* owns the matchers; NULL: all series */
    const struct label_matcher *matchers;
    size_t n_matchers;
};

struct metric_query {
    enum metric_query_kind kind;
    struct metric_limits limits;
    int64_t start, end, step, lookback, timeout;
    char *label;
    struct buf text; /* of the expression */
    struct promql *expression;
    struct selector *selectors;
    size_t n_selectors, cap_selectors;
};

/* The items that the answer of series, labels or values collects. */
struct collected {
    bool (*stop)(void *arg);
    void *stop_arg;
    struct metric_selection *selections; /* one for each selector; own the texts */
    size_t n_selections, n_series;
    const struct metric_series **series; /* METRIC_SERIES */
    struct bytes *texts;                 /* METRIC_LABELS and METRIC_VALUES */
    size_t n, cap;
};

void metric_answer_error(struct metric_answer *answer, const char *type, const char *fmt, ...)
{
    static const struct {
        const char *type;
        int status;
    } statuses[] = {
        {"bad_data", 400}, {"execution", 422}, {"timeout", 503}, {"unavailable", 503}, {"internal", 500}};
    struct buf text = {0};
    size_t i = 0;
    va_list ap;
    va_start(ap, fmt);
    buf_vprintf(&text, fmt, ap);
    va_end(ap);
    while (strcmp(statuses[i].type, type) != 0)
        i++;
    answer->status = statuses[i].status;
    buf_clear(&answer->body);
    buf_printf(&answer->body, "{\"status\":\"error\",\"errorType\":\"%s\",\"error\":", type);
    buf_append_json(&answer->body, buf_bytes(&text));
    buf_append_str(&answer->body, "}\n");
    buf_free(&text);
}

static bool refuse(struct metric_answer *a, const char *name, const char *why)
{
    metric_answer_error(a, "bad_data", "invalid parameter \"%s\": %s", name, why);
    return false;
}

static bool read_time(const struct url_query *params, const char *name, const int64_t *fallback, int64_t *out,
    struct metric_answer *a)
{
    char why[SHOWN_MAX + 60];
    struct bytes text = BYTES_NONE;
    if (fallback)
        *out = *fallback;
    bool is_there = url_query_get(params, name, &text) && text.len > 0;
    if ((!is_there && fallback) || query_time_read(text, out))
        return true;
    snprintf(why, sizeof why, "cannot parse \"%.*s\" to a valid timestamp",
        (int)(text.len < SHOWN_MAX ? text.len : SHOWN_MAX), text.len ? text.ptr : "");
    return refuse(a, name, why);
}

static bool read_duration(
    const struct url_query *params, const char *name, int64_t fallback, int64_t *out, struct metric_answer *a)
{
    char why[SHOWN_MAX + 60];
    struct bytes text = BYTES_NONE;
    *out = fallback;
    bool is_there = url_query_get(params, name, &text) && text.len > 0;
    if (!is_there && fallback >= 0)
        return true;
    if (!query_duration_read(text, out)) {
        snprintf(why, sizeof why, "cannot parse \"%.*s\" to a valid duration",
            (int)(text.len < SHOWN_MAX ? text.len : SHOWN_MAX), text.len ? text.ptr : "");
        return refuse(a, name, why);
    }
    return *out > 0 ||
           refuse(a, name,
               strcmp(name, "step") == 0
                   ? "zero or negative query resolution step widths are not accepted. Try a positive integer"
                   : "the duration must be positive");
}

static bool read_expression(struct metric_query *q, const struct url_query *params, struct metric_answer *a)
{
    struct error error;
    struct bytes text = BYTES_NONE;
    url_query_get(params, "query", &text);
    buf_append_bytes(&q->text, text);
    q->expression = promql_parse(text, &error);
    if (!q->expression)
        return refuse(a, "query", error.text);
    enum promql_type type = promql_type(q->expression);
    if (q->kind != METRIC_RANGE || type == PROMQL_SCALAR || type == PROMQL_VECTOR)
        return true;
    metric_answer_error(a, "bad_data",
        "invalid expression type \"%s\" for range query, must be Scalar or instant Vector",
        type == PROMQL_STRING ? "string" : "range vector");
    return false;
}

static bool read_selectors(struct metric_query *q, const struct url_query *params, struct metric_answer *a)
{
    struct error error;
    for (size_t i = 0; i < params->n; i++) {
        if (!bytes_equal_str(params->params[i].name, "match[]"))
            continue;
        struct selector *s = ARRAY_ADD(q->selectors, q->n_selectors, q->cap_selectors);
        *s = (struct selector){0};
        s->parsed = promql_parse_selector(params->params[i].value, &s->matchers, &s->n_matchers, &error);
        if (!s->parsed)
            return refuse(a, "match[]", error.text);
    }
    if (q->n_selectors == 0 && q->kind == METRIC_SERIES) {
        metric_answer_error(a, "bad_data", "no match[] parameter provided");
        return false;
    }
    if (q->n_selectors == 0)
        *ARRAY_ADD(q->selectors, q->n_selectors, q->cap_selectors) = (struct selector){0};
    return true;
}

static bool read_range(struct metric_query *q, const struct url_query *params, struct metric_answer *a)
{
    if (!read_time(params, "start", NULL, &q->start, a) || !read_time(params, "end", NULL, &q->end, a))
        return false;
    if (q->end < q->start)
        return refuse(a, "end", "end timestamp must not be before start time");
    if (!read_duration(params, "step", -1, &q->step, a))
        return false;
    if ((q->end - q->start) / q->step <= METRIC_STEPS_MAX)
        return true;
    metric_answer_error(a, "bad_data",
        "exceeded maximum resolution of 11,000 points per timeseries. Try decreasing the query resolution "
        "(?step=XX)");
    return false;
}

static bool read_params(struct metric_query *q, const struct url_query *params, struct bytes label,
    int64_t now, struct metric_answer *a)
{
    static const int64_t first = QUERY_TIME_MIN, last = QUERY_TIME_MAX;
    if (!read_duration(params, "timeout", q->limits.timeout, &q->timeout, a))
        return false;
    q->timeout = q->timeout < q->limits.timeout ? q->timeout : q->limits.timeout;
    if (q->kind == METRIC_INSTANT || q->kind == METRIC_RANGE) {
        bool has_times = q->kind == METRIC_RANGE ? read_range(q, params, a)
                                                 : read_time(params, "time", &now, &q->start, a);
        if (q->kind == METRIC_INSTANT)
            q->end = q->start;
        return has_times && read_duration(params, "lookback_delta", 0, &q->lookback, a) &&
               read_expression(q, params, a);
    }
    if (q->kind == METRIC_VALUES && !exposition_is_label_name(label)) {
        metric_answer_error(a, "bad_data", "invalid label name: \"%.*s\"",
            (int)(label.len < SHOWN_MAX ? label.len : SHOWN_MAX), label.ptr);
        return false;
    }
    return read_time(params, "start", &first, &q->start, a) && read_time(params, "end", &last, &q->end, a) &&
           read_selectors(q, params, a);
}

struct metric_query *metric_query_parse(enum metric_query_kind kind, const struct url_query *params,
    struct bytes label, int64_t now, const struct metric_limits *limits, struct metric_answer *refusal)
{
    struct metric_query *q = mem_zalloc(sizeof *q);
    q->kind = kind;
    q->limits = *limits;
    q->label = bytes_dup(label);
    if (!read_params(q, params, label, now, refusal))
        metric_query_free(&q);
    return q;
}

void metric_query_free(struct metric_query **qp)
{
    struct metric_query *q = *qp;
    if (!q)
        return;
    for (size_t i = 0; i < q->n_selectors; i++)
        promql_free(&q->selectors[i].parsed);
    free(q->selectors);
    promql_free(&q->expression);
    free(q->label);
    buf_free(&q->text);
    free(q);
    *qp = NULL;
}

int64_t metric_query_timeout(const struct metric_query *q)
{
    return q->timeout;
}

static void begin_answer(struct metric_answer *a)
{
    a->status = 200;
    buf_append_str(&a->body, "{\"status\":\"success\",\"data\":");
}

static void set_timeout(struct metric_answer *a)
{
    metric_answer_error(a, "timeout", "query timed out in expression evaluation");
}

static void set_too_long(const struct metric_query *q, struct metric_answer *a)
{
    metric_answer_error(a, "execution", "the answer needs more than %zu bytes: select fewer series or steps",
        q->limits.max_bytes);
}

static void print(const struct metric_query *q, const struct promql_result *result, struct metric_answer *a)
{
    begin_answer(a);
    bool fits = promql_json(&a->body, q->limits.max_bytes, result);
    for (size_t i = 0; i < result->n_warnings; i++) {
        buf_append_str(&a->body, i ? "," : ",\"warnings\":[");
        buf_append_json(&a->body, bytes_str(result->warnings[i]));
    }
    buf_append_str(&a->body, result->n_warnings ? "]}\n" : "}\n");
    if (!fits)
        set_too_long(q, a);
}

static void evaluate(const struct metric_query *q, const struct metric_source *source,
    struct answer_cache *cache, bool (*stop)(void *arg), void *arg, struct metric_answer *a)
{
    struct error error;
    struct cached_answer *found;
    const struct promql_request request = {.start = q->start,
        .end = q->end,
        .step = q->step,
        .lookback = q->lookback,
        .max_steps = METRIC_STEPS_MAX + 1,
        .max_series = q->limits.max_series,
        .max_buckets = q->limits.max_buckets,
        .max_bytes = q->limits.max_bytes,
        .stop = stop,
        .context = arg};
    switch (
        answer_cache_evaluate(cache, buf_bytes(&q->text), q->expression, source, &request, &found, &error)) {
    case PROMQL_OK:
        print(q, cached_answer_result(found), a);
        a->reused = cached_answer_reused(found);
        answer_cache_release(cache, &found);
        return;
    case PROMQL_BAD_QUERY:
        refuse(a, "query", error.text);
        return;
    case PROMQL_STOPPED:
        set_timeout(a);
        return;
    case PROMQL_NO_SOURCE:
        metric_answer_error(a, "internal", "%s", error.text);
        return;
    default:
        metric_answer_error(a, "execution", "%s", error.text);
        return;
    }
}

static int compare_texts(const void *a, const void *b)
{
    return bytes_compare(*(const struct bytes *)a, *(const struct bytes *)b);
}

static int compare_series(const void *a, const void *b)
{
    const struct metric_series *x = *(const struct metric_series *const *)a,
                               *y = *(const struct metric_series *const *)b;
    return metric_labels_compare(x->labels, x->n_labels, y->labels, y->n_labels);
}

/* Sorts the items and removes repeated ones. Returns the number of items that stay. */
static size_t sort_unique(void *items, size_t n, size_t size, int (*compare)(const void *, const void *))
{
    char *all = items;
    size_t kept = n > 0;
    if (n > 0)
        qsort(items, n, size, compare);
    for (size_t i = 1; i < n; i++)
        if (compare(all + (kept - 1) * size, all + i * size) != 0)
            memmove(all + kept++ * size, all + i * size, size);
    return kept;
}

/* Sorts only when the array is full, so that the time for an added text stays small. */
static void add_text(struct collected *c, struct bytes text)
{
    if (c->n == c->cap) {
        c->n = sort_unique(c->texts, c->n, sizeof *c->texts, compare_texts);
        ARRAY_ROOM(c->texts, c->cap, c->n * 2 + 64);
    }
    c->texts[c->n++] = text;
}

static void collect_texts(
    const struct metric_query *q, struct collected *c, const struct metric_series *series)
{
    for (size_t i = 0; i < series->n_labels; i++) {
        const struct metric_label *label = &series->labels[i];
        if (q->kind == METRIC_LABELS)
            add_text(c, label->name);
        else if (bytes_equal_str(label->name, q->label))
            add_text(c, label->value);
    }
}

static bool collect(const struct metric_query *q, const struct metric_source *source, struct collected *c,
    const struct selector *selector, struct metric_answer *a)
{
    struct error error;
    struct metric_selection *selection = &c->selections[c->n_selections];
    const struct metric_request request = {.matchers = selector->matchers,
        .n_matchers = selector->n_matchers,
        .from = q->start - 1,
        .to = q->end,
        .labels_only = true,
        .max_series = q->limits.max_series - c->n_series,
        .max_buckets = q->limits.max_buckets,
        .stop = c->stop,
        .stop_context = c->stop_arg};
    enum metric_result r = request.max_series == 0
                               ? METRIC_TOO_MANY
                               : source->select(source->context, &request, selection, &error);
    if (r == METRIC_TOO_MANY)
        metric_answer_error(a, "execution", "the selectors match more than %zu series", q->limits.max_series);
    else if (r == METRIC_BAD_PATTERN)
        refuse(a, "match[]", error.text);
    else if (r == METRIC_STOPPED)
        set_timeout(a);
    else if (r != METRIC_OK)
        metric_answer_error(a, "internal", "%s", error.text);
    if (r != METRIC_OK)
        return false;
    c->n_selections++;
    c->n_series += selection->n_series;
    for (size_t i = 0; i < selection->n_series; i++)
        if (q->kind == METRIC_SERIES)
            *ARRAY_ADD(c->series, c->n, c->cap) = &selection->series[i];
        else
            collect_texts(q, c, &selection->series[i]);
    return true;
}

static void print_collected(const struct metric_query *q, struct collected *c, struct metric_answer *a)
{
    c->n = q->kind == METRIC_SERIES ? sort_unique(c->series, c->n, sizeof *c->series, compare_series)
                                    : sort_unique(c->texts, c->n, sizeof *c->texts, compare_texts);
    begin_answer(a);
    for (size_t i = 0; i < c->n && a->body.len <= q->limits.max_bytes; i++) {
        buf_append_char(&a->body, i ? ',' : '[');
        if (q->kind == METRIC_SERIES)
            promql_json_labels(&a->body, c->series[i]->labels, c->series[i]->n_labels);
        else
            buf_append_json(&a->body, c->texts[i]);
    }
    buf_append_str(&a->body, c->n ? "]}\n" : "[]}\n");
    if (a->body.len > q->limits.max_bytes)
        set_too_long(q, a);
}

void metric_query_answer(const struct metric_query *q, const struct metric_source *source,
    struct answer_cache *cache, bool (*stop)(void *arg), void *arg, struct metric_answer *answer)
{
    struct collected c = {.stop = stop, .stop_arg = arg};
    bool ok = true;
    if (stop(arg)) {
        set_timeout(answer);
        return;
    }
    if (q->expression) {
        evaluate(q, source, cache, stop, arg, answer);
        return;
    }
    c.selections = mem_zalloc(q->n_selectors * sizeof *c.selections);
    for (size_t i = 0; i < q->n_selectors && ok; i++)
        ok = collect(q, source, &c, &q->selectors[i], answer);
    if (ok)
        print_collected(q, &c, answer);
    for (size_t i = 0; i < c.n_selections; i++)
        metric_selection_free(&c.selections[i]);
    free(c.selections);
    free(c.series);
    free(c.texts);
}
