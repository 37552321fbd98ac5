#include "api/period_query.h"

#include "api/period.h"
#include "api/zone_names.h"
#include "base/rfc3339.h"

#define DAY_SECONDS INT64_C(86400)
#define MILLISECONDS 1000
#define AGAINST_FORMS "against must be before, year or FROM..TO"

static int refuse_zone(struct parameters *p, struct bytes name)
{
    parameters_hint(p, "timezone takes a name of the tz database, such as Europe/Berlin");
    BAD(p, "unknown time zone \"%s\"", parameters_shown(name).text);
    return parameters_suggest(p, zone_names_nearest(name));
}

/* Returns the number of minutes of a period such as 30m, or 0. */
static int64_t minutes_of(struct bytes period)
{
    int64_t n;
    bool is_back = period.len > 0 && period.ptr[0] == '-';
    if (period.len < 2 || period.ptr[period.len - 1] != 'm' ||
        !bytes_to_i64(bytes_of(period.ptr + is_back, period.len - is_back - 1), &n))
        return 0;
    return n;
}

bool period_query_is_by_minute(const struct parameters *p)
{
    struct bytes text;
    return (parameters_get(p, "unit", &text) && bytes_equal_str(text, "minute")) ||
           (parameters_get(p, "period", &text) && minutes_of(text) != 0);
}

static int parse_calendar(struct parameters *p)
{
    struct calendar *c = &p->q->calendar;
    struct bytes text, name = BYTES_LITERAL("UTC");
    int64_t hours = ZONE_OFFSET_FIRST - 1;
    c->unit = p->kind == QUERY_RETENTION ? UNIT_WEEK : UNIT_DAY;
    if (p->q->by_minute)
        c->unit = UNIT_MINUTE;
    if (parameters_get(p, "unit", &text) &&
        (!unit_find(text, &c->unit) || (p->q->by_minute && c->unit != UNIT_MINUTE)))
        return BAD(p, p->q->by_minute ? "a period of minutes goes with unit=minute only"
                                      : "unit must be minute, 15m, hour, day, week, mweek or month");
    bool has_start = parameters_get(p, "week_start", &text);
    if (has_start && !weekday_find(text, &c->week_start))
        return BAD(p, "week_start must be a day's name, sunday to saturday");
    if (has_start && c->unit == UNIT_MWEEK)
        return BAD(p, "an mweek begins on Monday; give week_start with unit=week");
    if (parameters_number(p, "hour_offset", ZONE_OFFSET_FIRST, ZONE_OFFSET_LAST, &hours) != 0)
        return -1;
    parameters_get(p, "timezone", &name);
    if (hours >= ZONE_OFFSET_FIRST)
        zone_fixed((int)hours, &c->zone);
    else if (!zone_find(name, &c->zone))
        return refuse_zone(p, name);
    return 0;
}

/* Refuses a date that does not exist, or is outside the range of times that can be counted. */
static int refuse_date(struct parameters *p, const char *name, struct bytes date, bool exists)
{
    bool is_local = date.len <= sizeof "0000-00-00" - 1;
    int year = rfc3339_digits(date.ptr, 4);
    const struct parameters_text shown = parameters_shown(date);
    if (exists || year < 1970 || year > 2159)
        return BAD(p, "%s: %s is outside of the years 1970 to 2159 (UTC)", name, shown.text);
    return BAD(p, "%s: there is no %s%s%s", name, shown.text, is_local ? " in " : "",
        is_local ? p->q->calendar.zone.name : "");
}

/* Sets *out if the parameter is given. */
static int parse_time(struct parameters *p, const char *name, int64_t least, int64_t most, int64_t *out)
{
    struct bytes text;
    int64_t t;
    if (!parameters_get(p, name, &text))
        return 0;
    bool is_date = period_time_is_date(text), exists = period_time(&p->q->calendar, text, &t);
    if (is_date && (!exists || t < least || t > most))
        return refuse_date(p, name, text, exists);
    if (!exists)
        return BAD(p,
            "%s must be Unix seconds, a date such as 2012-03-25, or a time such as 2012-03-25T01:00:00Z",
            name);
    if (t > most && t / MILLISECONDS >= HOUR_FIRST && t / MILLISECONDS <= most)
        parameters_hint(p, "give Unix seconds, not milliseconds");
    if (t < least || t > most)
        return BAD(p, "%s must be from %lld to %lld", name, (long long)least, (long long)most);
    *out = t;
    return 0;
}

/* True if the zone's offset from UTC is not a whole number of periods of `length` seconds somewhere in the span. */
static bool has_parts_of(const struct query *q, int64_t length, int64_t from, int64_t to)
{
    struct zone_span span;
    for (int64_t t = from < HOUR_FIRST ? HOUR_FIRST : from; t < to; t = span.to) {
        span = zone_span_at(&q->calendar.zone, t);
        if (span.offset % length != 0)
            return true;
    }
    return false;
}

static bool is_part_hour(const struct query *q, int64_t t)
{
    return zone_offset(&q->calendar.zone, t) % query_resolution(q, t) != 0;
}

/* True if the zone's offset from UTC is not a whole number of counted periods somewhere in the span. */
static bool has_parts(const struct query *q, int64_t from, int64_t to)
{
    int64_t since = query_quarters_from(q);
    return has_parts_of(q, HOUR_SECONDS, from, to < since ? to : since) ||
           has_parts_of(q, QUARTER_SECONDS, from > since ? from : since, to);
}

/* Limits a span to the times that can be counted. */
static int clip(struct parameters *p, int64_t *from, int64_t *to)
{
    if (*from < 0)
        *from = 0;
    if (*to > HOUR_END)
        *to = HOUR_END;
    return *from < *to ? 0 : BAD(p, "from must be before to");
}

static void hint_bounds(struct parameters *p, const char *name, int64_t from, int64_t to)
{
    char texts[2][RFC3339_TEXT];
    parameters_hint(
        p, name ? "%s..%s" : "from=%s&to=%s", rfc3339_write(from, texts[0]), rfc3339_write(to, texts[1]));
}

/* Refuses bounds that cut a counted period, with the bounds of whole periods. */
static int refuse_bounds(struct parameters *p, const char *name, int64_t from, int64_t to)
{
    const struct query *q = p->q;
    bool cuts_from = query_whole_before(q, from) != from;
    const char *period = query_resolution(q, cuts_from ? from : to) == HOUR_SECONDS ? "hour" : "quarter hour";
    int64_t first = query_whole_after(q, from), end = query_whole_before(q, to);
    char text[RFC3339_TEXT];
    parameters_hint(p, "whole %ss outward, as with bounds=outward: ", period);
    hint_bounds(p, name, query_whole_before(q, from), query_whole_after(q, to));
    parameters_hint(p, "; inward: ");
    if (first < end)
        hint_bounds(p, name, first, end);
    else
        parameters_hint(p, "no whole %s", period);
    return BAD(p, "%s: %s is within a counted %s",
        name        ? name
        : cuts_from ? "from"
                    : "to",
        rfc3339_write(cuts_from ? from : to, text), period);
}

/* Refuses bounds that cut a counted period, or with bounds=outward moves them outward. A zone that cuts the periods
 * itself has rules of its own (round=hour). `name`: the parameter of a range FROM..TO; NULL: the bounds are from= and
 * to=. */
static int fit_bounds(struct parameters *p, const char *name, int64_t *from, int64_t *to)
{
    bool is_outward;
    if (parameters_word(p, "bounds", "outward", &is_outward) != 0 || clip(p, from, to) != 0)
        return -1;
    int64_t first = query_whole_before(p->q, *from), end = query_whole_after(p->q, *to);
    if ((first == *from && end == *to) || is_part_hour(p->q, *from) || is_part_hour(p->q, *to) ||
        has_parts(p->q, *from, *to))
        return 0;
    if (!is_outward)
        return refuse_bounds(p, name, *from, *to);
    p->q->is_outward = true;
    *from = first;
    *to = end;
    return 0;
}

static int parse_side(
    struct parameters *p, const char *name, const char *forms, struct bytes text, int64_t *out)
{
    if (period_time(&p->q->calendar, text, out))
        return 0;
    return period_time_is_date(text) ? refuse_date(p, name, text, false) : BAD(p, "%s", forms);
}

int period_query_range(
    struct parameters *p, const char *name, const char *forms, struct bytes text, int64_t *from, int64_t *to)
{
    const char *dots = text.len > 0 ? memmem(text.ptr, text.len, "..", 2) : NULL;
    if (!dots)
        return BAD(p, "%s", forms);
    size_t len = (size_t)(dots - text.ptr);
    if (parse_side(p, name, forms, bytes_of(text.ptr, len), from) != 0 ||
        parse_side(p, name, forms, bytes_of(dots + 2, text.len - len - 2), to) != 0)
        return -1;
    return fit_bounds(p, name, from, to);
}

/* Refuses unit=15m for a time that was counted by hour. */
static int refuse_quarters(struct parameters *p, int64_t from)
{
    int64_t since = query_quarters_from(p->q);
    char text[RFC3339_TEXT];
    if (from >= since)
        return 0;
    if (since >= HOUR_END) {
        parameters_hint(p, "resolution = 15m in [input] counts by quarter hour from then on");
        return parameters_refuse(p, 422, "no-quarter-hours", "counts are kept by hour");
    }
    parameters_hint(p, "ask for unit=15m from %s on", rfc3339_write(since, text));
    return parameters_refuse(p, 422, "no-quarter-hours", "counts before %s are kept by hour", text);
}

int period_query_check_zone(struct parameters *p, int64_t from, int64_t to)
{
    struct query *q = p->q;
    bool rounds;
    if (parameters_word(p, "round", "hour", &rounds) != 0)
        return -1;
    int64_t end = q->is_all ? q->now : to;
    if (q->calendar.unit == UNIT_QUARTER && refuse_quarters(p, from) != 0)
        return -1;
    q->cuts_hours |= q->calendar.unit == UNIT_QUARTER || from % HOUR_SECONDS != 0 || to % HOUR_SECONDS != 0 ||
                     has_parts_of(q, HOUR_SECONDS, from, end);
    if (!has_parts(q, from, end))
        return 0;
    q->is_rounded = true;
    if (rounds)
        return 0;
    parameters_hint(p, "round=hour counts each UTC hour in the unit in which it begins");
    char text[RFC3339_TEXT] = "";
    if (q->quarters_since > 0)
        parameters_hint(p, "; from %s on the counts are exact", rfc3339_write(q->quarters_since, text));
    return parameters_refuse(p, 422, "part-hour-zone",
        "%s differs from UTC by a part of an hour, and counts%s%s are kept by UTC hour",
        q->calendar.zone.name, *text ? " before " : "", text);
}

/* Refuses the parameter `unit` for a breakdown, because a breakdown has no rows for units of time. */
static int refuse_unit(struct parameters *p)
{
    struct bytes unit;
    if (p->q->kind != QUERY_BREAKDOWN || !parameters_get(p, "unit", &unit))
        return 0;
    parameters_hint(p, "unit= sets the unit of units=N, and of a time with only one of from and to; with "
                       "unit=mweek, a period of weeks begins on Monday");
    return BAD(p, "unit has no effect on sums over the whole time; remove unit");
}

static int parse_period(struct parameters *p, struct bytes period)
{
    struct query *q = p->q;
    q->is_all = bytes_equal_str(period, "all");
    if (q->is_all) {
        q->from = HOUR_FIRST;
        q->to = HOUR_END;
        return refuse_unit(p);
    }
    struct period found;
    bool exists = period_named(&q->calendar, period, q->now, &found);
    if (period_is_date(period) && (!exists || found.from >= HOUR_END))
        return refuse_date(p, "period", period, exists);
    if (!exists)
        return BAD(p, "period must be one such as " PERIOD_EXAMPLES);
    q->from = found.from;
    q->to = found.to;
    q->before_to = found.from;
    q->before_from = period_before(&q->calendar, &found);
    return found.unit == UNIT_WEEK || found.unit == UNIT_MWEEK ? 0 : refuse_unit(p);
}

static int parse_units(struct parameters *p)
{
    struct query *q = p->q;
    struct bytes text;
    bool has_from = parameters_get(p, "from", &text), has_to = parameters_get(p, "to", &text);
    int64_t units = p->kind == QUERY_RETENTION ? QUERY_RETENTION_UNITS : QUERY_UNITS_DEFAULT,
            reference = q->now;
    if (parameters_number(p, "units", 1, (int64_t)p->context->max_rows, &units) != 0 ||
        parse_time(p, "unit_reference_ts", 0, HOUR_END - 1, &reference) != 0 ||
        parse_time(p, "from", 0, HOUR_END - 1, &q->from) != 0 ||
        parse_time(p, "to", 1, HOUR_END, &q->to) != 0)
        return -1;
    int64_t last = units_start(&q->calendar, has_to ? q->to - 1 : reference);
    if (!has_to)
        q->to = units_next(&q->calendar, last);
    if (!has_from)
        q->from = units_back(&q->calendar, last, units - 1);
    if (has_from && has_to && refuse_unit(p) != 0)
        return -1;
    if ((has_from || has_to) && fit_bounds(p, NULL, &q->from, &q->to) != 0)
        return -1;
    q->before_to = q->from;
    q->before_from = has_from ? q->from - (q->to - q->from) : units_back(&q->calendar, q->from, units);
    return 0;
}

/* Sets the span to compare with: the preceding span, unless `against` names another span. */
static int parse_against(struct parameters *p)
{
    struct query *q = p->q;
    struct bytes against = BYTES_LITERAL("before");
    q->compares = parameters_get(p, "against", &against) || q->kind == QUERY_COMPARE;
    if (q->compares && q->is_all)
        return BAD(p, "no time precedes period=all; ask for a shorter period");
    if (bytes_equal_str(against, "before"))
        return 0;
    if (!bytes_equal_str(against, "year"))
        return period_query_range(p, "against", AGAINST_FORMS, against, &q->before_from, &q->before_to);
    q->before_from = period_year_before(&q->calendar, q->from);
    q->before_to = period_year_before(&q->calendar, q->to);
    return 0;
}

/* Returns the time that is as far after `other` as `t` is after `start`, by the clocks of the zone, but at most `end`. */
static int64_t same_part(const struct calendar *c, int64_t start, int64_t t, int64_t other, int64_t end)
{
    int64_t offset = zone_offset(&c->zone, other);
    int64_t wall = other + offset + t + zone_offset(&c->zone, t) - start - zone_offset(&c->zone, start);
    int64_t same = wall - zone_offset(&c->zone, wall - offset);
    return same < end ? same : end;
}

static int64_t later_of(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Sets the parts of the unit in progress and of the unit at the same position in the earlier span, and the parts of both
 * spans. Spans of whole units, such as months, may have units of different lengths, so their parts end with those of the
 * units. A span that begins within a unit has its own part, because its units do not line up with those of the other. */
static void find_parts(struct query *q)
{
    const struct calendar *c = &q->calendar;
    int64_t row, end, other, other_end;
    if (q->now < q->from || q->now >= q->to)
        return;
    query_rows(q, q->from, q->to, &row, &end);
    query_rows(q, q->before_from, q->before_to, &other, &other_end);
    bool is_whole = row == q->from && other == q->before_from;
    int64_t unit = units_start(c, q->now), begin = later_of(unit, q->from);
    for (; row < unit; row = units_next(c, row))
        other = other < other_end ? units_next(c, other) : other;
    q->part_end = q->row_part_end = later_of(query_whole_before(q, q->now), begin);
    int64_t most = other < other_end ? units_next(c, other) : q->before_to;
    most = most < q->before_to ? most : q->before_to;
    q->before_row_part_end = same_part(c, begin, q->part_end, later_of(other, q->before_from), most);
    q->before_part_end =
        is_whole ? q->before_row_part_end : same_part(c, q->from, q->part_end, q->before_from, q->before_to);
}

/* Ends a span in progress with the last counted period that has passed, and the earlier span with the same part. */
static void end_so_far(struct query *q)
{
    if (q->now < q->from || q->now >= q->to)
        return;
    int64_t passed = query_whole_before(q, q->now);
    q->is_so_far = true;
    q->to = passed > q->from ? passed : q->from;
    q->before_to = same_part(&q->calendar, q->from, q->to, q->before_from, q->before_to);
}

static int check_rows(struct parameters *p, int64_t from, int64_t to)
{
    static const int64_t shortest[] = {MINUTE_SECONDS, QUARTER_SECONDS, HOUR_SECONDS, 23 * HOUR_SECONDS,
        6 * DAY_SECONDS, 6 * DAY_SECONDS, 27 * DAY_SECONDS};
    const struct query *q = p->q;
    int64_t series = parameters_is_of_sets(p) ? 1
                     : q->top > 0             ? (int64_t)q->top + 1
                     : q->n_values > 0        ? (int64_t)q->n_values
                                              : 1;
    if ((to - from) / shortest[q->calendar.unit] <= (int64_t)p->context->max_rows / series)
        return 0;
    return BAD(p, "more than %llu rows; ask for a shorter span or a longer unit",
        (unsigned long long)p->context->max_rows);
}

static int parse_minutes(struct parameters *p)
{
    struct query *q = p->q;
    struct bytes period, other;
    bool has_period = parameters_get(p, "period", &period), has_from = parameters_get(p, "from", &other),
         has_to = parameters_get(p, "to", &other);
    int64_t n = has_period ? minutes_of(period) : QUERY_MINUTES_DEFAULT;
    q->to = (q->now / MINUTE_SECONDS + 1) * MINUTE_SECONDS;
    if (parse_time(p, "from", 0, HOUR_END - 1, &q->from) != 0 ||
        parse_time(p, "to", 1, HOUR_END, &q->to) != 0)
        return -1;
    if (q->kind != QUERY_SERIES && q->kind != QUERY_BREAKDOWN)
        return BAD(p, "only series, breakdown and top have counts by minute");
    if (q->n_values > 0 || q->top > 0)
        return BAD(p, "a series by minute has one key: ask for one key");
    if (parameters_get(p, "against", &other))
        return BAD(p, "there are no comparisons by minute");
    if (parameters_get(p, "where", &other))
        return BAD(p, "there are no conditions by minute");
    if (parameters_get(p, "after", &other))
        return BAD(p, "after is not available for counts by minute; use a larger limit");
    if (parameters_get(p, "units", &other) || parameters_get(p, "unit_reference_ts", &other) ||
        (has_period && (has_from || has_to)) || has_from < has_to)
        return BAD(p, "counts by minute take either period, or from and to");
    bool is_long = n < 1 || n > QUERY_MINUTES_MAX;
    if (!has_from && !is_long)
        q->from = q->to - n * MINUTE_SECONDS;
    if (q->from % MINUTE_SECONDS != 0 || q->to % MINUTE_SECONDS != 0)
        return BAD(p, "from and to must be whole minutes");
    if (is_long || q->from >= q->to || q->to - q->from > QUERY_MINUTES_MAX * MINUTE_SECONDS)
        return BAD(p, "a period of minutes has 1 to %d minutes, such as period=30m", QUERY_MINUTES_MAX);
    return 0;
}

int period_query_parse(struct parameters *p)
{
    struct query *q = p->q;
    struct bytes period;
    q->now = p->context->now;
    if (parse_calendar(p) != 0)
        return -1;
    if (q->by_minute)
        return parse_minutes(p);
    if ((parameters_get(p, "period", &period) ? parse_period(p, period) : parse_units(p)) != 0 ||
        parse_against(p) != 0 || clip(p, &q->from, &q->to) != 0)
        return -1;
    if (q->compares && clip(p, &q->before_from, &q->before_to) != 0)
        return -1;
    if (q->kind == QUERY_COMPARE && check_rows(p, q->before_from, q->before_to) != 0)
        return -1;
    bool has_rows = q->kind != QUERY_BREAKDOWN && q->kind != QUERY_COHORT &&
                    (q->kind != QUERY_QUANTILE || parameters_get(p, "unit", &period));
    if (has_rows && !q->is_all && check_rows(p, q->from, q->to) != 0)
        return -1;
    if (q->kind == QUERY_COMPARE)
        find_parts(q);
    else if (q->compares)
        end_so_far(q);
    if (parameters_is_of_sets(p))
        return 0;
    return q->compares && period_query_check_zone(p, q->before_from, q->before_to) != 0
               ? -1
               : period_query_check_zone(p, q->from, q->to);
}
