#include "api/query.h"

#include "api/period_query.h"
#include "api/where_query.h"
#include "base/suggest.h"
#include "counts/key_function.h"
#include "counts/mean.h"
#include <stdio.h>

static void point_to_former(struct query *q)
{
    struct counter blank = {.key_text = "", .field = ""};
    q->former.total = q->former.sub = blank;
    q->former.total.ns = q->former.total.label = q->former.total_ns;
    q->former.sub.ns = q->former.sub_ns;
    q->former.sub.label = q->former.sub_label;
    if (q->former.total_ns[0])
        q->total = &q->former.total;
    if (q->former.sub_ns[0])
        q->sub = &q->former.sub;
}

void query_copy(struct query *to, const struct query *from)
{
    *to = *from;
    if (to->is_former)
        point_to_former(to);
}

enum query_overlap query_overlap(const struct query *q, const struct record_key *period)
{
    int64_t end = period_end(period->unit, period->start);
    int64_t first = query_whole_after(q, q->from);
    if (period->unit <= PERIOD_HOUR) /* counts where it begins */
        return period->start >= first && period->start < q->to ? QUERY_WITHIN : QUERY_OUTSIDE;
    if ((period->start > first ? period->start : first) >= (end < q->to ? end : q->to))
        return QUERY_OUTSIDE;
    int64_t last = end - query_resolution(q, end - 1);
    return period->start >= first && last < q->to ? QUERY_WITHIN : QUERY_PARTLY;
}

bool query_is_utc(const struct query *q)
{
    const struct zone *zone = &q->calendar.zone;
    bool is_utc = zone->fixed ? zone->offset == 0
                              : strcmp(zone->name, "UTC") == 0 || strcmp(zone->name, "Etc/UTC") == 0;
    return is_utc && q->calendar.unit > UNIT_HOUR;
}

/* If the rows are days, weeks or months in UTC, each UTC day is part of one row. */
enum period_unit query_largest_period(const struct query *q)
{
    if (q->kind == QUERY_BREAKDOWN || q->kind == QUERY_COHORT ||
        (q->kind == QUERY_QUANTILE && !q->is_over_time))
        return PERIOD_MONTH;
    if (q->kind == QUERY_COMPARE || !query_is_utc(q)) /* the two spans of a comparison may overlap */
        return q->cuts_hours ? PERIOD_QUARTER : PERIOD_HOUR;
    return q->calendar.unit == UNIT_MONTH ? PERIOD_MONTH : PERIOD_DAY;
}

void query_append_key(const char *ns, const char *stored, const char *period, struct buf *target)
{
    struct buf raw = {0};
    buf_append_str(&raw, ns);
    buf_append_char(&raw, '|');
    buf_append_str(&raw, stored);
    if (period)
        buf_append_char(&raw, '.');
    buf_append_str(&raw, period ? period : "");
    url_encode(buf_bytes(&raw), target);
    buf_free(&raw);
}

/* Returns the start of the counted period nearest to `t` that a record's key can contain. */
static int64_t countable(const struct query *q, int64_t t)
{
    return query_whole_before(q, t < HOUR_FIRST ? HOUR_FIRST : t >= HOUR_END ? HOUR_END - 1 : t);
}

void query_append_range(const struct query *q, const struct query_range *r, struct buf *target)
{
    int64_t first = countable(q, query_whole_after(q, r->from)), last = countable(q, r->to - 1);
    char start[PERIOD_TEXT_MAX + 1], end[PERIOD_TEXT_MAX + 1];
    period_encode(r->is_by_day                ? PERIOD_DAY
                  : first % HOUR_SECONDS == 0 ? PERIOD_HOUR
                                              : PERIOD_QUARTER,
        first, start);
    period_encode(
        last < query_quarters_from(q) ? PERIOD_HOUR : PERIOD_QUARTER, last < first ? first : last, end);
    buf_append_str(target, "/range?start=");
    query_append_key(r->ns, r->stored, start, target);
    buf_append_str(target, "&end=");
    query_append_key(r->ns, r->stored, end, target);
    buf_printf(target, "&rollups=%s", period_unit_name(r->largest));
}

/* Returns false if `ns` is not a valid namespace, or the key is missing. */
static bool parse_former(struct parameters *p, struct bytes ns)
{
    struct query *q = p->q;
    const char *dot = memchr(ns.ptr, '.', ns.len);
    struct bytes sub = bytes_of(ns.ptr, dot ? (size_t)(dot - ns.ptr) : 0);
    struct bytes total = dot ? bytes_of(dot + 1, ns.len - sub.len - 1) : ns;
    if (!p->context->accepts_former || q->by_minute || !namespace_is_valid(total) ||
        (dot && !namespace_is_valid(sub)) || !parameters_get(p, "key", &q->key) || q->key.len == 0)
        return false;
    q->is_former = true;
    q->total = dot ? counters_find(p->context->counters, total) : NULL;
    if (!q->total)
        snprintf(q->former.total_ns, sizeof q->former.total_ns, "%.*s", (int)total.len, total.ptr);
    snprintf(q->former.sub_label, sizeof q->former.sub_label, "%.*s", (int)sub.len, sub.ptr);
    if (dot)
        snprintf(q->former.sub_ns, sizeof q->former.sub_ns, "%.*s", (int)ns.len, ns.ptr);
    point_to_former(q);
    return true;
}

static int parse_ns(struct parameters *p, struct bytes ns)
{
    const struct counters *c = p->context->counters;
    const struct counter *found = counters_find(c, ns), *unique = counters_find_unique(c, ns);
    if (unique && parameters_is_of_sets(p)) {
        p->q->unique = unique;
        found = &c->totals[unique->total];
        ns = bytes_str(found->ns);
    } else if (unique) {
        return BAD(p, "%s counts members; ask /v1/uniques", unique->ns);
    }
    if (!found && parse_former(p, ns))
        return 0;
    if (!found)
        return parameters_refuse_counter(p, ns, false);
    bool is_sub = memchr(ns.ptr, '.', ns.len) != NULL;
    p->q->sub = is_sub ? found : NULL;
    p->q->total = is_sub ? &c->totals[found->total] : found;
    parameters_get(p, "key", &p->q->key);
    return 0;
}

static int parse_by(struct parameters *p, struct bytes by)
{
    const struct counters *c = p->context->counters;
    const struct counter *total = p->q->total;
    if (p->q->sub)
        return BAD(p, "by= is only for totals; ns=%s is a subtotal already", p->q->sub->ns);
    p->q->sub = counters_find_sub_label(c, total, by);
    if (p->q->sub)
        return 0;
    size_t n = 0;
    const struct parameters_text shown = parameters_shown(by);
    struct suggest s = suggest_for(shown.text);
    parameters_hint(p, "%s is counted by (ns, label):", total->label);
    for (size_t i = 0; i < c->n_subtotals; i++) {
        if (&c->totals[c->subtotals[i].total] != total)
            continue;
        suggest_try(&s, c->subtotals[i].label);
        parameters_hint(p, "%s %s %s", n++ ? "," : "", c->subtotals[i].ns, c->subtotals[i].label);
    }
    if (n == 0)
        parameters_hint(p, " nothing; add [subtotal S.%s] to the configuration", total->ns);
    parameters_refuse(p, 404, "unknown-counter", "%s is not counted by \"%s\"", total->label, shown.text);
    return parameters_suggest(p, s.nearest);
}

/* Proposes the sections that count by the key of `of` over all events. `constant`: namespace of the total; NULL: none. */
static void hint_constant(struct parameters *p, const struct counter *of, const char *constant)
{
    char ns[NAMESPACE_MAX + 1];
    snprintf(ns, sizeof ns, "%s%.*s", of->value || of->having ? "all_" : "all",
        of->value || of->having ? NAMESPACE_MAX - 4 : 0, of->ns);
    parameters_hint(p, "add to the configuration:\n");
    if (!constant) {
        struct buf adding = {0};
        counter_append_adding(of, &adding);
        parameters_hint(p, "[total %s]\nkey = \"all\"\n%.*s", ns, (int)adding.len, adding.ptr);
        buf_free(&adding);
    }
    parameters_hint(p, "[subtotal %s.%s]\nkey = %s", of->ns, constant ? constant : ns, of->key_text);
}

/* Finds the subtotal that counts all events by the counter's key. */
static int parse_top(struct parameters *p)
{
    const struct counters *c = p->context->counters;
    struct query *q = p->q;
    struct bytes name;
    if (!parameters_get(p, "counter", &name))
        return MISSING(p, "name a counter: counter=LABEL");
    const struct counter *of = counters_find_total_label(c, name);
    of = of ? of : counters_find(c, name);
    if (!of || memchr(name.ptr, '.', name.len))
        return parameters_refuse_counter(p, name, true);
    const char *constant = NULL;
    for (size_t i = 0; i < c->n_subtotals && !q->sub; i++) {
        const struct counter *sub = &c->subtotals[i], *total = &c->totals[sub->total];
        if (total->kind == COUNTER_CONSTANT && counter_has_key_of(sub, of) && counter_adds_as(total, of)) {
            q->total = total;
            q->sub = sub;
            q->unit = of->unit;
        }
    }
    for (size_t i = 0; i < c->n_totals && !constant; i++)
        constant = c->totals[i].kind == COUNTER_CONSTANT && counter_adds_as(&c->totals[i], of)
                       ? c->totals[i].ns
                       : NULL;
    if (!q->sub && q->by_minute) {
        q->total = of;
    } else if (!q->sub) {
        hint_constant(p, of, constant);
        return parameters_refuse(
            p, 404, "not-counted", "no counter with a constant key is counted by %s", of->key_text);
    }
    if (q->sub)
        q->key = bytes_str(q->total->field);
    q->kind = QUERY_BREAKDOWN;
    return 0;
}

static int parse_counter(struct parameters *p)
{
    struct bytes ns, by, where;
    struct query *q = p->q;
    const struct counter *total;
    if (parameters_get(p, "where", &where))
        return where_query_parse(p);
    const struct url_param *label = parameters_label(p, &total);
    if (label) {
        q->total = total;
        q->key = label->value;
    } else if (!parameters_get(p, "ns", &ns)) {
        return MISSING(p, "name a counter: ns=NS&key=KEY, or LABEL=KEY");
    } else if (parse_ns(p, ns) != 0) {
        return -1;
    }
    if (parameters_is_of_sets(p) && q->sub)
        return BAD(p, "sets are not kept by subtotals; name a unique counter by count=LABEL");
    if (parameters_get(p, "by", &by) && parse_by(p, by) != 0)
        return -1;
    if (!q->key.len && q->total->kind != COUNTER_CONSTANT)
        return MISSING(p, "%s: no key; give key= or %s=", q->total->label, q->total->label);
    if (!q->key.len)
        q->key = bytes_str(q->total->field);
    return 0;
}

/* Refuses an empty value, and a repeated value, whose record would be counted twice. */
static int check_values(struct parameters *p)
{
    const struct url_param *params = p->given->params;
    struct bytes name = p->q->repeated;
    char stored[QUERY_SERIES_MAX][COMPONENT_HASH + 1];
    size_t n = 0;
    for (size_t i = 0; i < p->given->n; i++) {
        struct bytes value = params[i].value;
        if (!bytes_equal(params[i].name, name))
            continue;
        if (value.len == 0)
            return BAD(p, "%.*s is empty", (int)name.len, name.ptr);
        query_store(value, stored[n]);
        for (size_t j = 0; j < n; j++)
            if (strcmp(stored[j], stored[n]) == 0)
                return BAD(p, "%.*s=%s is given twice; a text and its cut form are one key", (int)name.len,
                    name.ptr, parameters_shown(value).text);
        n++;
    }
    return 0;
}

/* Parses the sub keys of a counter, or the keys of several series. */
static int parse_keys(struct parameters *p)
{
    struct query *q = p->q;
    bool has_sub = parameters_get(p, "sub", &q->sub_key);
    int64_t top = 0;
    if (parameters_number(p, "top", 1, QUERY_SERIES_MAX, &top) != 0)
        return -1;
    q->top = (uint64_t)top;
    if (q->n_values > 0 && q->sub && !bytes_equal_str(q->repeated, "sub"))
        return BAD(p, "several keys belong to a series of totals; with by=LABEL repeat sub for one key");
    if (!q->sub && (q->top > 0 || has_sub))
        return BAD(p, "%s needs by=LABEL, or the ns of a subtotal", has_sub ? "sub" : "top");
    bool is_of_subs = q->kind == QUERY_BREAKDOWN || q->kind == QUERY_QUANTILE;
    if (is_of_subs && !q->sub && p->kind != QUERY_TOP)
        return MISSING(p, "a %s needs by=LABEL, or the ns of a subtotal",
            q->kind == QUERY_BREAKDOWN ? "breakdown" : "quantile");
    if (!is_of_subs && q->sub && !has_sub && q->top == 0)
        return MISSING(p, "the series of %s needs sub=", q->sub->ns);
    return q->n_values > 0 ? check_values(p) : 0;
}

static int parse_partial(struct parameters *p)
{
    struct bytes text;
    int64_t seconds;
    p->q->allows_partial = parameters_get(p, "partial", &text);
    if (!p->q->allows_partial || bytes_equal_str(text, "allow"))
        return 0;
    if (!bytes_to_i64(text, &seconds) || seconds < 1 || seconds > QUERY_PATIENCE_MAX)
        return BAD(p, "partial must be allow, or a number of seconds from 1 to %d", QUERY_PATIENCE_MAX);
    p->q->patience = seconds * USEC_PER_SEC;
    return 0;
}

/* Finds the counter of events for mean=1. */
static int parse_mean(struct parameters *p)
{
    struct query *q = p->q;
    bool is_wanted;
    if (parameters_word(p, "mean", "1", &is_wanted) != 0 || !is_wanted)
        return is_wanted ? -1 : 0;
    const struct counter *of = query_counter(q);
    if (q->by_minute)
        return BAD(p, "there are no means by minute");
    if (!q->total->value)
        return parameters_refuse(
            p, 422, "no-value", "%s counts events; a mean needs a counter with value = FIELD", of->ns);
    if (q->n_values > 0 || q->top > 0)
        return BAD(p, "mean belongs to one series; ask for one key or sub key");
    const struct counters *c = p->context->counters;
    const struct counter *divisor = of == &q->former.sub ? NULL : mean_divisor(c, of);
    if (divisor) {
        q->events.total = q->sub ? &c->totals[divisor->total] : divisor;
        q->events.sub = q->sub ? divisor : NULL;
        return 0;
    }
    struct buf sections = {0};
    mean_append_sections(c, of, &sections);
    parameters_hint(p, "add to the configuration:\n%.*s", (int)sections.len, sections.ptr);
    buf_free(&sections);
    return parameters_refuse(p, 422, "no-events-counter",
        "a mean of %s divides by the number of events with the field %s, and no counter has this number for "
        "the same key",
        of->ns, q->total->value);
}

/* Parses q=, and refuses a subtotal that is not a histogram. */
static int parse_quantiles(struct parameters *p)
{
    const struct decimal_rule rule = {.scale = QUERY_QUANTILE_SCALE};
    struct query *q = p->q;
    struct bytes list = BYTES_LITERAL("0.5,0.95,0.99"), unit;
    if (q->kind != QUERY_QUANTILE)
        return 0;
    q->is_over_time = parameters_get(p, "unit", &unit);
    if (!q->sub->function || !key_function_is_bucket(q->sub->function)) {
        parameters_hint(
            p, "add to the configuration:\n[subtotal NAME.%s]\nkey = bucket(FIELD)", q->total->ns);
        return parameters_refuse(p, 422, "no-histogram", "%s is not a subtotal by bucket(FIELD)", q->sub->ns);
    }
    if (q->total->value)
        return parameters_refuse(p, 422, "no-histogram",
            "%s adds values; quantiles need a subtotal that counts events", q->sub->ns);
    parameters_get(p, "q", &list);
    for (bool more = true; more;) {
        const char *comma = list.len ? memchr(list.ptr, ',', list.len) : NULL;
        struct bytes text = bytes_of(list.ptr, comma ? (size_t)(comma - list.ptr) : list.len);
        int64_t *at = &q->quantiles[q->n_quantiles];
        if (q->n_quantiles == QUERY_QUANTILES_MAX || decimal_read(text, rule, at) != NULL || *at < 0 ||
            *at > QUERY_QUANTILE_ONE)
            return BAD(p, "q must be 1 to %d decimals from 0 to 1, such as 0.5,0.95", QUERY_QUANTILES_MAX);
        q->n_quantiles++;
        more = comma != NULL;
        list = bytes_of(text.ptr + text.len + more, list.len - text.len - more);
    }
    return 0;
}

/* Parses COUNT-TEXT with the text in hexadecimal digits, as in the member `next` of an answer. COUNT may be negative. */
static int parse_after(struct parameters *p)
{
    struct query *q = p->q;
    struct bytes after;
    struct buf text = {0};
    q->has_after = parameters_get(p, "after", &after);
    if (!q->has_after)
        return 0;
    const char *dash = after.len > 1 ? memchr(after.ptr + 1, '-', after.len - 1) : NULL;
    size_t len = dash ? (size_t)(dash - after.ptr) : 0;
    q->after_hex = dash ? bytes_of(dash + 1, after.len - len - 1) : BYTES_NONE;
    bool valid = dash && bytes_to_i64(bytes_of(after.ptr, len), &q->after_n) &&
                 (q->after_hex.len == 0 || buf_append_unhex(&text, q->after_hex));
    buf_free(&text);
    return valid ? 0 : BAD(p, "after must be the next of an answer");
}

static int parse_shape(struct parameters *p)
{
    struct bytes text;
    int64_t limit = QUERY_LIMIT_DEFAULT;
    if (parameters_number(p, "limit", 1, QUERY_LIMIT_MAX, &limit) != 0 || parse_after(p) != 0 ||
        parse_partial(p) != 0 || parse_mean(p) != 0 || parse_quantiles(p) != 0)
        return -1;
    p->q->limit = (uint64_t)limit;
    if (!parameters_get(p, "format", &text) || bytes_equal_str(text, "json"))
        return 0;
    p->q->format = QUERY_CSV;
    return bytes_equal_str(text, "csv") ? 0 : BAD(p, "format must be json or csv");
}

void query_store(struct bytes text, char out[COMPONENT_HASH + 1])
{
    char hash[COMPONENT_HASH + 1];
    struct bytes stored = component_store(text, hash);
    snprintf(out, COMPONENT_HASH + 1, "%.*s", (int)stored.len, stored.len ? stored.ptr : "");
}

struct bytes query_value(const struct query *q, size_t i)
{
    for (size_t at = 0; at < q->params->n; at++)
        if (bytes_equal(q->params->params[at].name, q->repeated) && i-- == 0)
            return q->params->params[at].value;
    return BYTES_NONE;
}

int query_parse(const struct query_context *context, enum query_kind kind, const struct url_query *params,
    struct query *out, struct query_error *error)
{
    struct parameters p = {.kind = kind, .context = context, .given = params, .q = out, .error = error};
    struct bytes where;
    *out = (struct query){
        .kind = kind, .asked = kind, .params = params, .quarters_since = context->quarters_since};
    *error = (struct query_error){0};
    out->by_minute = period_query_is_by_minute(&p);
    if (parameters_check(&p) != 0 || (kind == QUERY_TOP         ? parse_top(&p)
                                         : kind == QUERY_COHORT ? 0
                                                                : parse_counter(&p)) != 0)
        return -1;
    bool is_uncounted = parameters_get(&p, "where", &where) && !out->sub;
    if ((!is_uncounted && parse_keys(&p) != 0) || period_query_parse(&p) != 0 || parse_shape(&p) != 0)
        return -1;
    if (is_uncounted)
        return where_query_refuse(&p);
    query_store(out->key, out->stored);
    query_store(out->sub_key, out->stored_sub);
    return 0;
}
