#include "api/query.h"

#include "api/period.h"
#include "api/query_parse.h"
#include "api/zone_names.h"
#include "counts/records.h"
#include "base/rfc3339.h"
#include "base/suggest.h"
#include <stdio.h>
#include <stdlib.h>

static const char *const reserved[] = {"ns", "key", "by", "sub", "unit", "units", "unit_reference_ts", "from",
    "to", "period", "timezone", "hour_offset", "week_start", "round", "limit", "format", "against", "counter",
    "partial", "top"};
/* Further parameters of queries for sets, each list with NULL at its end. */
static const char *const of_uniques[] = {"count", "window", "stickiness", NULL};
static const char *const of_retention[] = {"count", "lookback", NULL};
static const char *const of_cohort[] = {"count", "all", "any", "not", NULL};
static const char *const of_others[] = {NULL};

static const char *const *further_names(enum query_kind kind)
{
    return kind == QUERY_UNIQUES     ? of_uniques
           : kind == QUERY_RETENTION ? of_retention
           : kind == QUERY_COHORT    ? of_cohort
                                     : of_others;
}

/* Returns the i-th name of a parameter, or NULL if there are fewer. */
static const char *parameter_name(const struct parse *p, size_t i)
{
    size_t n = sizeof reserved / sizeof *reserved;
    return i < n ? reserved[i] : further_names(p->kind)[i - n];
}

static bool is_reserved(const struct parse *p, struct bytes name)
{
    const char *known;
    for (size_t i = 0; (known = parameter_name(p, i)); i++)
        if (bytes_equal_str(name, known))
            return true;
    return false;
}

static bool is_of_sets(const struct parse *p)
{
    return p->kind >= QUERY_UNIQUES;
}

/* True if a query of this kind takes the parameter, so that an error may propose the parameter. */
static bool is_taken(const struct parse *p, const char *name)
{
    static const char *const others[] = {"ns", "key", "unit", "by", "sub", "limit", "against", "counter",
        "top"}; /* the first three: of a cohort */
    size_t i = p->kind == QUERY_COHORT ? 0 : 3, n = is_of_sets(p) ? sizeof others / sizeof *others : 0;
    while (i < n && strcmp(others[i], name) != 0)
        i++;
    return i >= n;
}

int query_refuse(struct parse *p, int status, const char *code, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(p->error->detail, sizeof p->error->detail, fmt, ap);
    va_end(ap);
    p->error->status = status;
    p->error->code = code;
    return -1;
}

void query_hint(struct parse *p, struct buf *text)
{
    snprintf(p->error->hint, sizeof p->error->hint, "%.*s", (int)text->len, text->ptr);
    buf_free(text);
}

#define DAY_SECONDS INT64_C(86400)
#define AGAINST_FORMS "against must be before, year or FROM..TO"
#define MILLISECONDS 1000
#define MEANT_TEXT 128
#define NAME_SHOWN 64 /* maximum number of bytes of a name in an error message */

static struct bytes shown(struct bytes name)
{
    return bytes_of(name.ptr, name.len < NAME_SHOWN ? name.len : NAME_SHOWN);
}

static void hint_totals(struct parse *p, const char *more)
{
    const struct counters *c = p->context->counters;
    struct buf text = {0};
    buf_append_str(&text, "counters (ns, label):");
    for (size_t i = 0; i < c->n_totals; i++)
        buf_printf(&text, " %s %s%s", c->totals[i].ns, c->totals[i].label, i + 1 < c->n_totals ? "," : "");
    buf_append_str(&text, more);
    query_hint(p, &text);
}

static void hint_parameters(struct parse *p)
{
    struct buf text = {0};
    buf_append_str(&text, "parameters:");
    const char *name;
    for (size_t i = 0; (name = parameter_name(p, i)); i++)
        if (is_taken(p, name))
            buf_printf(&text, " %s", name);
    query_hint(p, &text);
}

static bool names_a_counter(const struct parse *p)
{
    if (p->kind == QUERY_COHORT)
        return true;
    for (size_t i = 0; i < p->params->n; i++) {
        struct bytes name = p->params->params[i].name;
        if (bytes_equal_str(name, "ns") || bytes_equal_str(name, "counter") ||
            (!is_reserved(p, name) && counters_find_total_label(p->context->counters, name)))
            return true;
    }
    return false;
}

/* Returns the end of an error message: ": did you mean X?" or an empty text. */
static const char *meant(const struct suggest *s, char out[MEANT_TEXT])
{
    *out = '\0';
    if (s->nearest)
        snprintf(out, MEANT_TEXT, ": did you mean %s?", s->nearest);
    return out;
}

/* Refuses an unknown parameter. If the request names no counter, the client may have meant the label of a counter
 * that is not configured. */
static int unknown_name(struct parse *p, struct bytes name)
{
    const struct counters *c = p->context->counters;
    char *written = bytes_dup(shown(name));
    struct suggest s = suggest_for(written);
    const char *known;
    for (size_t i = 0; (known = parameter_name(p, i)); i++)
        if (is_taken(p, known))
            suggest_try(&s, known);
    bool is_parameter = s.nearest || names_a_counter(p);
    for (size_t i = 0; i < c->n_totals && p->kind != QUERY_COHORT; i++)
        suggest_try(&s, c->totals[i].label);
    char end[MEANT_TEXT];
    meant(&s, end);
    if (is_parameter)
        hint_parameters(p);
    else
        hint_totals(p, "; a removed counter: its ns and key");
    if (is_parameter)
        query_refuse(p, 400, "unknown-parameter", "unknown parameter \"%s\"%s", written, end);
    else
        query_refuse(p, 404, "unknown-counter", "no parameter or counter \"%s\"%s", written, end);
    free(written);
    return -1;
}

int query_unknown_counter(struct parse *p, struct bytes name, bool or_label)
{
    const struct counters *c = p->context->counters;
    char *written = bytes_dup(shown(name)), end[MEANT_TEXT];
    struct suggest s = suggest_for(written);
    for (size_t i = 0; i < c->n_totals; i++) {
        suggest_try(&s, or_label ? c->totals[i].label : c->totals[i].ns);
        suggest_try(&s, c->totals[i].ns);
    }
    for (size_t i = 0; i < c->n_subtotals && !or_label; i++)
        suggest_try(&s, c->subtotals[i].ns);
    for (size_t i = 0; i < c->n_uniques && is_of_sets(p); i++)
        suggest_try(&s, c->uniques[i].ns);
    hint_totals(p, "");
    query_refuse(p, 404, "unknown-counter", "no counter \"%s\"%s", written, meant(&s, end));
    free(written);
    return -1;
}

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
    int64_t first = (q->from + HOUR_SECONDS - 1) / HOUR_SECONDS * HOUR_SECONDS; /* first hour of the span */
    if ((period->start > first ? period->start : first) >= (end < q->to ? end : q->to))
        return QUERY_OUTSIDE;
    return period->start >= first && end - HOUR_SECONDS < q->to ? QUERY_WITHIN : QUERY_PARTLY;
}

bool query_is_utc(const struct query *q)
{
    const struct zone *zone = &q->calendar.zone;
    bool is_utc = zone->fixed ? zone->offset == 0
                              : strcmp(zone->name, "UTC") == 0 || strcmp(zone->name, "Etc/UTC") == 0;
    return is_utc && q->calendar.unit != UNIT_HOUR;
}

/* If the rows are days, weeks or months in UTC, each UTC day is part of one row. */
enum period_unit query_largest_period(const struct query *q)
{
    if (q->kind == QUERY_BREAKDOWN || q->kind == QUERY_COHORT)
        return PERIOD_MONTH;
    if (q->kind == QUERY_COMPARE) /* the two spans may overlap */
        return PERIOD_HOUR;
    if (!query_is_utc(q))
        return PERIOD_HOUR;
    return q->calendar.unit == UNIT_MONTH ? PERIOD_MONTH : PERIOD_DAY;
}

/* Returns false if `ns` is not a valid namespace, or the key is missing. */
static bool parse_former(struct parse *p, struct bytes ns)
{
    struct query *q = p->q;
    const char *dot = memchr(ns.ptr, '.', ns.len);
    struct bytes sub = bytes_of(ns.ptr, dot ? (size_t)(dot - ns.ptr) : 0);
    struct bytes total = dot ? bytes_of(dot + 1, ns.len - sub.len - 1) : ns;
    if (!p->context->accepts_former || !namespace_is_valid(total) || (dot && !namespace_is_valid(sub)) ||
        !query_get(p, "key", &q->key) || q->key.len == 0)
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

static int parse_ns(struct parse *p, struct bytes ns)
{
    const struct counters *c = p->context->counters;
    const struct counter *found = counters_find(c, ns), *unique = counters_find_unique(c, ns);
    if (unique && is_of_sets(p)) {
        p->q->unique = unique;
        found = &c->totals[unique->total];
        ns = bytes_str(found->ns);
    } else if (unique) {
        return BAD(p, "%s counts members; ask /v1/uniques", unique->ns);
    }
    if (!found && parse_former(p, ns))
        return 0;
    if (!found)
        return query_unknown_counter(p, ns, false);
    bool is_sub = memchr(ns.ptr, '.', ns.len) != NULL;
    p->q->sub = is_sub ? found : NULL;
    p->q->total = is_sub ? &c->totals[found->total] : found;
    query_get(p, "key", &p->q->key);
    return 0;
}

/* If `ns` is absent, exactly one of the other parameters must be the label of a counter. If `ns` is present, no
 * parameter may be a label. */
static int parse_label(struct parse *p)
{
    struct bytes key;
    for (size_t i = 0; i < p->params->n; i++) {
        struct url_param param = p->params->params[i];
        if (is_reserved(p, param.name))
            continue;
        const struct counter *found = counters_find_total_label(p->context->counters, param.name);
        if (!found)
            return unknown_name(p, param.name);
        if (p->q->total == found && bytes_equal(param.name, p->q->repeated))
            continue;
        if (p->q->total)
            return BAD(p, "two counters are named; ask for one");
        if (query_get(p, "key", &key))
            return BAD(p, "key= goes with ns=; with a label, the label's value is the key");
        p->q->total = found;
        p->q->key = param.value;
    }
    return 0;
}

static int parse_by(struct parse *p, struct bytes by)
{
    const struct counters *c = p->context->counters;
    const struct counter *total = p->q->total;
    struct buf text = {0};
    if (p->q->sub)
        return BAD(p, "by= is only for totals; ns=%s is a subtotal already", p->q->sub->ns);
    p->q->sub = counters_find_sub_label(c, total, by);
    if (p->q->sub)
        return 0;
    size_t n = 0;
    char *written = bytes_dup(shown(by)), end[MEANT_TEXT];
    struct suggest s = suggest_for(written);
    buf_printf(&text, "%s is counted by (ns, label):", total->label);
    for (size_t i = 0; i < c->n_subtotals; i++) {
        if (&c->totals[c->subtotals[i].total] != total)
            continue;
        suggest_try(&s, c->subtotals[i].label);
        buf_printf(&text, "%s %s %s", n++ ? "," : "", c->subtotals[i].ns, c->subtotals[i].label);
    }
    if (n == 0)
        buf_printf(&text, " nothing; add [subtotal S.%s] to the configuration", total->ns);
    query_hint(p, &text);
    query_refuse(
        p, 404, "unknown-counter", "%s is not counted by \"%s\"%s", total->label, written, meant(&s, end));
    free(written);
    return -1;
}

/* Finds the subtotal that counts all events by the counter's key. */
static int parse_top(struct parse *p)
{
    const struct counters *c = p->context->counters;
    struct query *q = p->q;
    struct bytes name;
    if (!query_get(p, "counter", &name))
        return query_refuse(p, 400, "missing-parameter", "name a counter: counter=LABEL");
    for (size_t i = 0; i < p->params->n; i++) {
        struct bytes other = p->params->params[i].name;
        if (counters_find_total_label(c, other) || bytes_equal_str(other, "ns") ||
            bytes_equal_str(other, "key") || bytes_equal_str(other, "by") || bytes_equal_str(other, "sub"))
            return BAD(p, "top takes counter=LABEL, and neither key nor by");
        if (!is_reserved(p, other))
            return unknown_name(p, other);
    }
    const struct counter *of = counters_find_total_label(c, name);
    of = of ? of : counters_find(c, name);
    if (!of || memchr(name.ptr, '.', name.len))
        return query_unknown_counter(p, name, true);
    const char *constant = NULL;
    for (size_t i = 0; i < c->n_subtotals && !q->sub; i++) {
        const struct counter *sub = &c->subtotals[i], *total = &c->totals[sub->total];
        if (total->kind == COUNTER_CONSTANT && counter_has_key_of(sub, of)) {
            q->total = total;
            q->sub = sub;
        }
    }
    for (size_t i = 0; i < c->n_totals && !constant; i++)
        constant = c->totals[i].kind == COUNTER_CONSTANT ? c->totals[i].ns : NULL;
    if (!q->sub) {
        struct buf text = {0};
        buf_append_str(&text, "add to the configuration:\n");
        if (!constant)
            buf_append_str(&text, "[total all]\nkey = \"all\"\n");
        buf_printf(&text, "[subtotal %s.%s]\nkey = %s", of->ns, constant ? constant : "all", of->key_text);
        query_hint(p, &text);
        return query_refuse(
            p, 404, "not-counted", "no counter with a constant key is counted by %s", of->key_text);
    }
    q->key = bytes_str(q->total->field);
    q->kind = QUERY_BREAKDOWN;
    return 0;
}

/* Refuses parameters that name one counter, because each set of a cohort has its own. */
static int check_cohort(struct parse *p)
{
    static const char *const others[] = {"ns", "key", "by", "sub", "counter", "unit"};
    struct bytes value;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (query_get(p, others[i], &value))
            return BAD(p, "a cohort takes all=, any= and not=, and no %s", others[i]);
    for (size_t i = 0; i < p->params->n; i++) {
        struct bytes name = p->params->params[i].name;
        const struct counter *total = counters_find_total_label(p->context->counters, name);
        if (!is_reserved(p, name))
            return total ? BAD(p, "a cohort takes no %s=; write all=%s:KEY, any= or not=", total->label,
                               total->label)
                         : unknown_name(p, name);
    }
    return 0;
}

static int parse_counter(struct parse *p)
{
    struct bytes ns, by;
    struct query *q = p->q;
    bool has_ns = query_get(p, "ns", &ns);
    if (query_get(p, "counter", &by))
        return BAD(p, "counter is a parameter of top only; name the counter by ns= and key=, or by LABEL=");
    if ((has_ns && parse_ns(p, ns)) || parse_label(p))
        return -1;
    if (!q->total)
        return query_refuse(p, 400, "missing-parameter", "name a counter: ns=NS&key=KEY, or LABEL=KEY");
    if (is_of_sets(p) && (q->sub || query_get(p, "by", &by)))
        return BAD(p, "sets are not kept by subtotals; name a unique counter by count=LABEL");
    if (query_get(p, "by", &by) && parse_by(p, by))
        return -1;
    if (!q->key.len && q->total->kind != COUNTER_CONSTANT)
        return query_refuse(
            p, 400, "missing-parameter", "%s: no key; give key= or %s=", q->total->label, q->total->label);
    if (!q->key.len)
        q->key = bytes_str(q->total->field);
    return 0;
}

int query_parse_number(
    struct parse *p, const char *name, int64_t least, int64_t most, bool *there, int64_t *out)
{
    struct bytes text;
    int64_t n;
    *there = query_get(p, name, &text);
    if (!*there)
        return 0;
    if (!bytes_to_i64(text, &n) || n < least || n > most)
        return BAD(p, "%s must be a whole number from %lld to %lld", name, (long long)least, (long long)most);
    *out = n;
    return 0;
}

/* Refuses an empty value, and a repeated value, whose record would be counted twice. */
static int check_values(struct parse *p)
{
    const struct url_param *params = p->params->params;
    struct bytes name = p->q->repeated;
    char stored[QUERY_SERIES_MAX][COMPONENT_HASH + 1];
    size_t n = 0;
    for (size_t i = 0; i < p->params->n; i++) {
        struct bytes value = params[i].value;
        if (!bytes_equal(params[i].name, name))
            continue;
        if (value.len == 0)
            return BAD(p, "%.*s is empty", (int)name.len, name.ptr);
        query_store(value, stored[n]);
        for (size_t j = 0; j < n; j++)
            if (strcmp(stored[j], stored[n]) == 0)
                return BAD(p, "%.*s=%.*s is given twice; a text and its cut form are one key", (int)name.len,
                    name.ptr, (int)shown(value).len, value.ptr);
        n++;
    }
    return 0;
}

static int parse_several(struct parse *p)
{
    struct query *q = p->q;
    bool is_sub = bytes_equal_str(q->repeated, "sub"), has_top;
    int64_t top = 0;
    if (query_parse_number(p, "top", 1, QUERY_SERIES_MAX, &has_top, &top))
        return -1;
    q->top = (uint64_t)top;
    if (has_top && (q->kind != QUERY_SERIES || !q->sub || query_get(p, "sub", &q->sub_key)))
        return BAD(p, "top needs a series with by=LABEL and without sub");
    if (q->n_values > QUERY_SERIES_MAX)
        return BAD(p, "at most %d values of %.*s", QUERY_SERIES_MAX, (int)q->repeated.len, q->repeated.ptr);
    if (q->n_values > 0 && q->sub && !is_sub)
        return BAD(p, "several keys belong to a series of totals; with by=LABEL repeat sub for one key");
    return q->n_values > 0 ? check_values(p) : 0;
}

static int parse_sub_key(struct parse *p)
{
    struct query *q = p->q;
    bool has_sub = query_get(p, "sub", &q->sub_key);
    if (q->top > 0)
        return 0;
    if (q->kind == QUERY_BREAKDOWN && has_sub)
        return BAD(p, "sub is a parameter of series only");
    if (q->kind == QUERY_BREAKDOWN && !q->sub)
        return query_refuse(
            p, 400, "missing-parameter", "a breakdown needs by=LABEL, or the ns of a subtotal");
    if (q->kind != QUERY_BREAKDOWN && q->sub && !has_sub)
        return query_refuse(p, 400, "missing-parameter", "the series of %s needs sub=", q->sub->ns);
    if (q->kind != QUERY_BREAKDOWN && !q->sub && has_sub)
        return BAD(p, "sub needs by=LABEL, or the ns of a subtotal");
    return 0;
}

static int unknown_zone(struct parse *p, struct bytes name)
{
    const char *nearest = zone_names_nearest(name);
    struct buf text = {0};
    buf_append_str(&text, "timezone takes a name of the tz database, such as Europe/Berlin");
    query_hint(p, &text);
    char end[MEANT_TEXT];
    meant(&(struct suggest){.nearest = nearest}, end);
    name = shown(name);
    return BAD(p, "unknown time zone \"%.*s\"%s", (int)name.len, name.ptr, end);
}

static int parse_calendar(struct parse *p)
{
    struct calendar *c = &p->q->calendar;
    struct bytes text, name = BYTES_LITERAL("UTC");
    bool has_hours;
    int64_t hours = 0;
    c->unit = p->kind == QUERY_RETENTION ? UNIT_WEEK : UNIT_DAY;
    if (query_get(p, "unit", &text) && !unit_find(text, &c->unit))
        return BAD(p, "unit must be hour, day, week, mweek or month");
    if (query_get(p, "week_start", &text) && !weekday_find(text, &c->week_start))
        return BAD(p, "week_start must be a day's name, sunday to saturday");
    if (query_parse_number(p, "hour_offset", ZONE_OFFSET_FIRST, ZONE_OFFSET_LAST, &has_hours, &hours))
        return -1;
    if (query_get(p, "timezone", &name) && has_hours)
        return BAD(p, "timezone and hour_offset exclude each other");
    if (has_hours)
        zone_fixed((int)hours, &c->zone);
    else if (!zone_find(name, &c->zone))
        return unknown_zone(p, name);
    return 0;
}

/* Refuses a date that does not exist, or is outside the range of times that can be counted. */
static int refuse_date(struct parse *p, const char *name, struct bytes date, bool exists)
{
    bool is_local = date.len <= sizeof "0000-00-00" - 1;
    int year = rfc3339_digits(date.ptr, 4);
    bool is_outside = exists || year < 1970 || year > 2159;
    date = shown(date);
    if (is_outside)
        return BAD(p, "%s: %.*s is outside of the years 1970 to 2159 (UTC)", name, (int)date.len, date.ptr);
    return BAD(p, "%s: there is no %.*s%s%s", name, (int)date.len, date.ptr, is_local ? " in " : "",
        is_local ? p->q->calendar.zone.name : "");
}

static int parse_time(
    struct parse *p, const char *name, int64_t least, int64_t most, bool *there, int64_t *out)
{
    struct bytes text;
    int64_t t;
    *there = query_get(p, name, &text);
    if (!*there)
        return 0;
    bool is_date = period_time_is_date(text), exists = period_time(&p->q->calendar, text, &t);
    if (is_date && (!exists || t < least || t > most))
        return refuse_date(p, name, text, exists);
    if (!exists)
        return BAD(p,
            "%s must be Unix seconds, a date such as 2012-03-25, or a time such as 2012-03-25T01:00:00Z",
            name);
    if (t > most && t / MILLISECONDS >= HOUR_FIRST && t / MILLISECONDS <= most) {
        struct buf advice = {0};
        buf_append_str(&advice, "give Unix seconds, not milliseconds");
        query_hint(p, &advice);
    }
    if (t < least || t > most)
        return BAD(p, "%s must be from %lld to %lld", name, (long long)least, (long long)most);
    *out = t;
    return 0;
}

/* True if the zone's offset from UTC is not a whole number of hours somewhere in the span. */
static bool has_part_hours(const struct query *q, int64_t from, int64_t to)
{
    struct zone_span span;
    for (int64_t t = from < HOUR_FIRST ? HOUR_FIRST : from; t < to; t = span.to) {
        span = zone_span_at(&q->calendar.zone, t);
        if (span.offset % HOUR_SECONDS != 0)
            return true;
    }
    return false;
}

int query_check_zone(struct parse *p)
{
    struct query *q = p->q;
    struct bytes round;
    bool rounds = query_get(p, "round", &round);
    if (rounds && !bytes_equal_str(round, "hour"))
        return BAD(p, "round must be hour");
    q->is_rounded = has_part_hours(q, q->is_all ? HOUR_FIRST : q->from, q->is_all ? q->now : q->to) ||
                    (q->kind == QUERY_COMPARE && has_part_hours(q, q->before_from, q->before_to));
    if (!q->is_rounded || rounds)
        return 0;
    struct buf text = {0};
    buf_append_str(&text, "round=hour counts each UTC hour in the unit in which it begins");
    query_hint(p, &text);
    return query_refuse(p, 422, "part-hour-zone",
        "%s differs from UTC by a part of an hour, and counts are kept by UTC hour", q->calendar.zone.name);
}

static int parse_period(struct parse *p, struct bytes period)
{
    static const char *const others[] = {"from", "to", "units", "unit_reference_ts"};
    struct query *q = p->q;
    struct bytes value;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (query_get(p, others[i], &value))
            return BAD(p, "period and %s exclude each other", others[i]);
    q->is_all = bytes_equal_str(period, "all");
    if (q->is_all) {
        q->from = HOUR_FIRST;
        q->to = HOUR_END;
        return 0;
    }
    struct period found;
    bool exists = period_named(&q->calendar, period, p->context->now, &found);
    if (period_is_date(period) && (!exists || found.from >= HOUR_END))
        return refuse_date(p, "period", period, exists);
    if (!exists)
        return BAD(p, "period must be one such as " PERIOD_EXAMPLES);
    q->from = found.from;
    q->to = found.to;
    q->before_to = found.from;
    q->before_from = period_before(&q->calendar, &found);
    return 0;
}

static int parse_units(struct parse *p)
{
    struct query *q = p->q;
    bool has_units, has_reference, has_from, has_to;
    int64_t units = p->kind == QUERY_RETENTION ? QUERY_RETENTION_UNITS : QUERY_UNITS_DEFAULT,
            reference = p->context->now;
    if (query_parse_number(p, "units", 1, (int64_t)p->context->max_rows, &has_units, &units) ||
        parse_time(p, "unit_reference_ts", 0, HOUR_END - 1, &has_reference, &reference) ||
        parse_time(p, "from", 0, HOUR_END - 1, &has_from, &q->from) ||
        parse_time(p, "to", 1, HOUR_END, &has_to, &q->to))
        return -1;
    if ((has_from || has_to) && has_reference)
        return BAD(p, "unit_reference_ts excludes from and to");
    if (has_from && has_units)
        return BAD(p, "from and units exclude each other");
    int64_t last = units_start(&q->calendar, has_to ? q->to - 1 : reference);
    if (!has_to)
        q->to = units_next(&q->calendar, last);
    if (!has_from)
        q->from = units_back(&q->calendar, last, units - 1);
    q->before_to = q->from;
    q->before_from = has_from ? q->from - (q->to - q->from) : units_back(&q->calendar, q->from, units);
    return 0;
}

int query_parse_side(struct parse *p, const char *name, const char *forms, struct bytes text, int64_t *out)
{
    if (period_time(&p->q->calendar, text, out))
        return 0;
    if (period_time_is_date(text))
        return refuse_date(p, name, text, false);
    return BAD(p, "%s", forms);
}

/* Sets the span to compare with: the preceding span, unless `against` names another span. */
static int parse_against(struct parse *p)
{
    struct query *q = p->q;
    struct bytes against;
    bool is_given = query_get(p, "against", &against);
    if (is_given && q->kind != QUERY_COMPARE)
        return BAD(p, "against is a parameter of compare only");
    if (q->kind == QUERY_COMPARE && q->is_all)
        return BAD(p, "nothing is before all time; ask for a shorter period");
    if (is_given && bytes_equal_str(against, "year")) {
        q->before_from = period_year_before(&q->calendar, q->from);
        q->before_to = period_year_before(&q->calendar, q->to);
    } else if (is_given && !bytes_equal_str(against, "before")) {
        const char *dots = memmem(against.ptr, against.len, "..", 2);
        if (!dots)
            return BAD(p, AGAINST_FORMS);
        size_t len = (size_t)(dots - against.ptr);
        if (query_parse_side(p, "against", AGAINST_FORMS, bytes_of(against.ptr, len), &q->before_from) ||
            query_parse_side(
                p, "against", AGAINST_FORMS, bytes_of(dots + 2, against.len - len - 2), &q->before_to))
            return -1;
    }
    return 0;
}

static int check_rows(struct parse *p, int64_t from, int64_t to)
{
    static const int64_t shortest[] = {
        HOUR_SECONDS, 23 * HOUR_SECONDS, 6 * DAY_SECONDS, 6 * DAY_SECONDS, 27 * DAY_SECONDS};
    const struct query *q = p->q;
    int64_t series = is_of_sets(p)     ? 1
                     : q->top > 0      ? (int64_t)q->top + 1
                     : q->n_values > 0 ? (int64_t)q->n_values
                                       : 1;
    if ((to - from) / shortest[q->calendar.unit] <= (int64_t)p->context->max_rows / series)
        return 0;
    return BAD(p, "more than %llu rows; ask for a shorter span or a longer unit",
        (unsigned long long)p->context->max_rows);
}

/* Limits a span to the times that can be counted. */
static int clip(struct parse *p, int64_t *from, int64_t *to)
{
    if (*from < 0)
        *from = 0;
    if (*to > HOUR_END)
        *to = HOUR_END;
    return *from < *to ? 0 : BAD(p, "from must be before to");
}

static int parse_span(struct parse *p)
{
    struct query *q = p->q;
    struct bytes period;
    q->now = p->context->now;
    if ((query_get(p, "period", &period) ? parse_period(p, period) : parse_units(p)) || parse_against(p) ||
        clip(p, &q->from, &q->to))
        return -1;
    if (q->kind == QUERY_COMPARE &&
        (clip(p, &q->before_from, &q->before_to) || check_rows(p, q->before_from, q->before_to)))
        return -1;
    if (q->kind != QUERY_BREAKDOWN && q->kind != QUERY_COHORT && !q->is_all && check_rows(p, q->from, q->to))
        return -1;
    return is_of_sets(p) ? 0 : query_check_zone(p);
}

static int parse_partial(struct parse *p)
{
    struct bytes text;
    int64_t seconds;
    p->q->allows_partial = query_get(p, "partial", &text);
    if (!p->q->allows_partial || bytes_equal_str(text, "allow"))
        return 0;
    if (!bytes_to_i64(text, &seconds) || seconds < 1 || seconds > QUERY_PATIENCE_MAX)
        return BAD(p, "partial must be allow, or a number of seconds from 1 to %d", QUERY_PATIENCE_MAX);
    p->q->patience = seconds * USEC_PER_SEC;
    return 0;
}

static int parse_shape(struct parse *p)
{
    struct bytes text;
    bool there;
    int64_t limit = QUERY_LIMIT_DEFAULT;
    if (query_parse_number(p, "limit", 1, QUERY_LIMIT_MAX, &there, &limit))
        return -1;
    if (there && p->q->kind != QUERY_BREAKDOWN)
        return BAD(p, "limit is a parameter of breakdowns only");
    p->q->limit = (uint64_t)limit;
    if (parse_partial(p))
        return -1;
    if (!query_get(p, "format", &text) || bytes_equal_str(text, "json"))
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

static bool may_repeat(const struct parse *p, struct bytes name)
{
    if (p->kind == QUERY_COHORT)
        return bytes_equal_str(name, "all") || bytes_equal_str(name, "any") || bytes_equal_str(name, "not");
    return (p->kind == QUERY_SERIES || is_of_sets(p)) &&
           (bytes_equal_str(name, "key") || bytes_equal_str(name, "sub") ||
               (!is_reserved(p, name) && counters_find_total_label(p->context->counters, name)));
}

/* Refuses parameters that are given more than once, except the keys or the sub keys of several series. */
static int parse_repeated(struct parse *p)
{
    const struct url_param *params = p->params->params;
    struct query *q = p->q;
    for (size_t i = 0; i < p->params->n; i++) {
        struct bytes name = params[i].name;
        size_t before = 0;
        while (before < i && !bytes_equal(params[before].name, name))
            before++;
        if (before == i)
            continue;
        bool is_same = bytes_equal(q->repeated, name) || p->kind == QUERY_COHORT;
        if (!may_repeat(p, name) || (q->n_values > 0 && !is_same))
            return BAD(p, "repeated parameter: %.*s", (int)shown(name).len, name.ptr);
        q->repeated = p->kind == QUERY_COHORT ? BYTES_NONE : name;
        q->n_values += p->kind == QUERY_COHORT ? 0 : 1 + !is_same;
    }
    return 0;
}

int query_parse(const struct query_context *context, enum query_kind kind, const struct url_query *params,
    struct query *out, struct query_error *error)
{
    struct parse p = {.kind = kind, .context = context, .params = params, .q = out, .error = error};
    *out = (struct query){.kind = kind, .params = params};
    *error = (struct query_error){0};
    bool failed = parse_repeated(&p) ||
                  (kind == QUERY_TOP         ? parse_top(&p)
                      : kind == QUERY_COHORT ? check_cohort(&p)
                                             : parse_counter(&p)) ||
                  parse_several(&p) || parse_sub_key(&p) || parse_calendar(&p) || parse_span(&p) ||
                  parse_shape(&p);
    query_store(out->key, out->stored);
    query_store(out->sub_key, out->stored_sub);
    return failed ? -1 : 0;
}
