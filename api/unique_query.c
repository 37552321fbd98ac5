#include "api/unique_query.h"

#include "api/period.h"
#include "api/period_query.h"

#define MASK_UNITS 64 /* units of a retention, lookback included */
#define PERIOD_FORM "a set's period must be one such as " PERIOD_EXAMPLES ", or FROM..TO"
#define SET_FORM "a set is [PERIOD@]LABEL:KEY, such as page:/pricing or 2026-11@page:/pricing"

/* Finds the unique counter of a total that count= names. */
static int find_unique(struct parameters *p, const struct counter *total, const struct counter **out)
{
    const struct counters *c = p->context->counters;
    struct bytes label;
    const struct counter *only = NULL;
    size_t n = 0;
    bool is_named = parameters_get(p, "count", &label);
    for (size_t i = 0; i < c->n_uniques; i++)
        if (&c->totals[c->uniques[i].total] == total) {
            only = &c->uniques[i];
            n++;
        }
    *out = is_named ? counters_find_unique_label(c, total, label) : n == 1 ? only : NULL;
    if (*out)
        return 0;
    if (n == 0) {
        parameters_hint(p, "add to the configuration:\n[unique v.%s]\nmember = FIELD", total->ns);
        return parameters_refuse(p, 404, "not-counted", "%s has no unique counter", total->label);
    }
    parameters_hint(p, "%s counts the members (count=):", total->label);
    for (size_t i = 0, shown = 0; i < c->n_uniques; i++)
        if (&c->totals[c->uniques[i].total] == total)
            parameters_hint(p, "%s %s", shown++ ? "," : "", c->uniques[i].label);
    if (!is_named)
        return BAD(p, "%s has %zu unique counters; name one by count=", total->label, n);
    return parameters_refuse(p, 404, "unknown-counter", "%s does not count the members \"%s\"", total->label,
        parameters_shown(label).text);
}

static int refuse_hours(struct parameters *p, const struct counter *unique, const char *what)
{
    parameters_hint(p, "a counter with `by = quarter` in [unique V.NS] answers for quarter hours");
    return parameters_refuse(
        p, 422, "hour-sets", "%s has a set for each UTC hour (by = hour); %s", unique->ns, what);
}

/* Refuses quarter hours. A zone of part hours has rules of its own (round=hour). */
static int check_hours(struct parameters *p, const struct counter *unique, int64_t from, int64_t to)
{
    struct query *q = p->q;
    int64_t since = q->quarters_since;
    if (q->calendar.unit == UNIT_QUARTER)
        return refuse_hours(p, unique, "ask for unit=hour or longer");
    q->quarters_since = 0;
    int r = period_query_check_zone(p, from, to);
    q->quarters_since = since;
    if (r != 0 || q->is_rounded || (from % HOUR_SECONDS == 0 && to % HOUR_SECONDS == 0))
        return r;
    return refuse_hours(p, unique, "the time must begin and end at a full hour UTC");
}

static int refuse_days(struct parameters *p, const struct counter *unique, const char *what)
{
    parameters_hint(p, "a counter with `by = hour` in [unique V.NS] answers for hours and zones of whole "
                       "hours, `by = quarter` in every zone");
    return parameters_refuse(
        p, 422, "day-sets", "%s has a set for each UTC day (by = day); %s", unique->ns, what);
}

/* Refuses a query that the sets of the counter cannot answer. */
static int check_periods(struct parameters *p, const struct counter *unique, int64_t from, int64_t to)
{
    if (unique->by == PERIOD_QUARTER)
        return period_query_check_zone(p, from, to);
    if (unique->by == PERIOD_HOUR)
        return check_hours(p, unique, from, to);
    if (p->q->calendar.unit <= UNIT_HOUR)
        return refuse_days(p, unique, "ask for unit=day or longer");
    if (!query_is_utc(p->q))
        return refuse_days(p, unique, "ask for timezone=UTC");
    if (from % SECONDS_PER_DAY != 0 || to % SECONDS_PER_DAY != 0)
        return refuse_days(p, unique, "the time must begin and end at midnight UTC");
    return 0;
}

static int add_set(struct parameters *p, struct unique_query *u, enum set_role role,
    const struct counter *total, const struct counter *unique, struct bytes key)
{
    struct query_set *s = &u->sets[u->n_sets++];
    if (key.len == 0 && total->kind == COUNTER_CONSTANT)
        key = bytes_str(total->field);
    if (key.len == 0)
        return MISSING(p, "%s: no key", total->label);
    *s = (struct query_set){
        .role = role, .total = total, .unique = unique, .key = key, .from = p->q->from, .to = p->q->to};
    query_store(key, s->stored);
    return 0;
}

/* Parses the sets of uniques and retention, which are the keys. */
static int parse_keys(struct parameters *p, struct unique_query *u)
{
    struct query *q = p->q;
    const struct counter *named = q->unique;
    struct bytes label;
    if ((!named || parameters_get(p, "count", &label)) && find_unique(p, q->total, &q->unique) != 0)
        return -1;
    if (named && named != q->unique)
        return BAD(
            p, "%s counts the members \"%s\", not count=%s", named->ns, named->label, q->unique->label);
    if (check_periods(p, q->unique, q->from, q->to) != 0)
        return -1;
    for (size_t i = 0; i < q->n_values; i++)
        if (add_set(p, u, SET_ALL, q->total, q->unique, query_value(q, i)) != 0)
            return -1;
    return q->n_values > 0 ? 0 : add_set(p, u, SET_ALL, q->total, q->unique, q->key);
}

/* Moves the beginning of the time to read by `units` before the first row. */
static void read_earlier(struct unique_query *u, int64_t units)
{
    const struct calendar *c = &u->query.calendar;
    int64_t from = units_back(c, units_start(c, u->query.from), units);
    for (size_t i = 0; i < u->n_sets; i++)
        u->sets[i].from = u->query.is_all || from < HOUR_FIRST ? HOUR_FIRST : from;
}

static int parse_uniques(struct parameters *p, struct unique_query *u)
{
    u->window = 1;
    if (parse_keys(p, u) != 0 || parameters_number(p, "window", 1, UNIQUE_WINDOW_MAX, &u->window) != 0)
        return -1;
    if (u->window > 1)
        read_earlier(u, u->window - 1);
    return parameters_word(p, "stickiness", "1", &u->is_sticky);
}

static int parse_retention(struct parameters *p, struct unique_query *u)
{
    const struct calendar *c = &p->q->calendar;
    int64_t units = 0;
    u->lookback = UNIQUE_LOOKBACK_DEFAULT;
    if (parse_keys(p, u) != 0 || parameters_number(p, "lookback", 0, MASK_UNITS - 1, &u->lookback) != 0)
        return -1;
    int64_t end = units_start(c, p->q->from); /* rows are whole units */
    for (p->q->from = end; end < p->q->to && units <= MASK_UNITS; end = units_next(c, end))
        units++;
    if (units + u->lookback > MASK_UNITS)
        return BAD(p, "a retention has at most %d units, lookback included", MASK_UNITS);
    p->q->to = end;
    for (size_t i = 0; i < u->n_sets; i++)
        u->sets[i].to = end;
    read_earlier(u, u->lookback);
    return 0;
}

/* Parses the PERIOD of a set in a cohort. */
static int parse_period(struct parameters *p, struct bytes text, struct query_set *s)
{
    struct period found;
    if (bytes_equal_str(text, "all")) {
        s->from = HOUR_FIRST;
        s->to = HOUR_END;
    } else if (period_named(&p->q->calendar, text, p->context->now, &found)) {
        s->from = found.from;
        s->to = found.to;
    } else if (period_query_range(p, "set", PERIOD_FORM, text, &s->from, &s->to) != 0) {
        return -1;
    }
    s->from = s->from < HOUR_FIRST ? HOUR_FIRST : s->from;
    s->to = s->to > HOUR_END ? HOUR_END : s->to;
    return s->from < s->to ? 0 : BAD(p, "the period of a set must begin before its end");
}

/* Parses [PERIOD@]LABEL:KEY. Neither a period nor a label contains a colon. */
static int parse_set(struct parameters *p, struct unique_query *u, enum set_role role, struct bytes text)
{
    const struct counters *c = p->context->counters;
    const char *colon = text.len > 0 ? memchr(text.ptr, ':', text.len) : NULL;
    size_t len = colon ? (size_t)(colon - text.ptr) : 0;
    const char *at = len > 0 ? memchr(text.ptr, '@', len) : NULL;
    size_t before = at ? (size_t)(at - text.ptr) + 1 : 0;
    struct bytes label = bytes_of(text.ptr + before, len - before);
    if (len == 0)
        return BAD(p, SET_FORM);
    const struct counter *total = counters_find_total_label(c, label),
                         *unique = total ? NULL : counters_find_unique(c, label);
    if (unique)
        total = &c->totals[unique->total];
    else if (!total && !memchr(label.ptr, '.', label.len))
        total = counters_find(c, label);
    if (!total)
        return parameters_refuse_counter(p, label, true);
    if (u->n_sets == SET_OPERANDS_MAX)
        return BAD(p, "a cohort has at most %d sets", SET_OPERANDS_MAX);
    if ((!unique && find_unique(p, total, &unique) != 0) ||
        add_set(p, u, role, total, unique, bytes_of(colon + 1, text.len - len - 1)) != 0)
        return -1;
    struct query_set *s = &u->sets[u->n_sets - 1];
    if (at && parse_period(p, bytes_of(text.ptr, before - 1), s) != 0)
        return -1;
    if (!counter_has_key_of(u->sets[0].unique, unique))
        return BAD(p, "%s and %s have different members: %s and %s", u->sets[0].unique->ns, unique->ns,
            u->sets[0].unique->key_text, unique->key_text);
    return check_periods(p, unique, s->from, s->to);
}

/* Refuses a count= that no set uses, because each set names its unique counter by a namespace. */
static int check_count(struct parameters *p, const struct unique_query *u)
{
    struct bytes label;
    bool is_used = !parameters_get(p, "count", &label);
    for (size_t i = 0; i < u->n_sets && !is_used; i++)
        is_used = bytes_equal_str(label, u->sets[i].unique->label);
    return is_used ? 0 : BAD(p, "no set uses count=%s", parameters_shown(label).text);
}

static int parse_cohort(struct parameters *p, struct unique_query *u)
{
    static const char *const roles[] = {"all", "any", "not"}; /* in the order of enum set_role */
    bool has_members = false;
    for (size_t i = 0; i < p->given->n; i++) {
        struct url_param param = p->given->params[i];
        for (int role = 0; role < 3; role++) {
            if (!bytes_equal_str(param.name, roles[role]))
                continue;
            has_members = has_members || role != SET_NOT;
            if (parse_set(p, u, (enum set_role)role, param.value) != 0)
                return -1;
        }
    }
    if (!has_members)
        return MISSING(p, "a cohort needs all= or any=; " SET_FORM);
    return check_count(p, u);
}

int unique_query_parse(const struct query_context *context, enum query_kind kind,
    const struct url_query *params, struct unique_query *out, struct query_error *error)
{
    struct parameters p = {
        .kind = kind, .context = context, .given = params, .q = &out->query, .error = error};
    *out = (struct unique_query){.n_sets = 0};
    if (query_parse(context, kind, params, &out->query, error) != 0)
        return -1;
    if (kind == QUERY_RETENTION && out->query.is_all)
        return BAD(&p, "retention needs a limited time: give period, or from and to");
    if (out->query.from < HOUR_FIRST)
        out->query.from = HOUR_FIRST;
    return kind == QUERY_UNIQUES     ? parse_uniques(&p, out)
           : kind == QUERY_RETENTION ? parse_retention(&p, out)
                                     : parse_cohort(&p, out);
}
