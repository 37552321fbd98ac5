#include "api/series.h"

#include <stdlib.h>

#define FIRST_COUNTS 32
#define DAY_SECONDS (24 * HOUR_SECONDS)
#define DAY_TEXT 3    /* characters of a day's text before the year 2032 */
#define FEW_DIGITS 15 /* of a count; 24 such counts add up to less than 2^64 */
#define DISORDER_MAX                                                                                         \
    2 /* an hour may belong to one of the latest units: clocks that go back over midnight repeat a date */

void series_init(struct series *s, const struct query *q)
{
    *s = (struct series){.query = q,
        .from = q->from,
        .to = q->to,
        .first = HOUR_END,
        .next = units_start(&q->calendar, q->from)};
}

void series_reset(struct series *s)
{
    for (size_t i = 0; i < s->n_runs; i++)
        free(s->runs[i].counts);
    series_init(s, s->query);
}

size_t series_bytes(const struct series *s)
{
    size_t bytes = 0;
    for (size_t i = 0; i < s->n_runs; i++)
        bytes += s->runs[i].cap * sizeof *s->runs[i].counts;
    return bytes;
}

/* Adds `n` to the unit's count if the unit is one of the latest in the run, or inserts it there. Returns false if the
 * unit is earlier. */
static bool run_add(struct series_run *r, int64_t unit, uint64_t n)
{
    size_t at = r->n;
    while (at > 0 && r->n - at < DISORDER_MAX && r->counts[at - 1].unit > unit)
        at--;
    if (at > 0 && r->counts[at - 1].unit == unit) {
        r->counts[at - 1].n += n;
        return true;
    }
    if (at > 0 && r->counts[at - 1].unit > unit)
        return false;
    if (r->n == r->cap) {
        r->cap = r->cap ? 2 * r->cap : FIRST_COUNTS;
        r->counts = mem_realloc(r->counts, r->cap * sizeof *r->counts);
    }
    memmove(r->counts + at + 1, r->counts + at, (r->n++ - at) * sizeof *r->counts);
    r->counts[at] = (struct series_count){unit, n};
    return true;
}

/* The hours from `hour` on for a day are in one unit if the first and the last are, and the zone keeps its offset. (No zone changes its
 * offset twice in a day.) */
static int64_t unit_of(struct series *s, int64_t hour)
{
    const struct calendar *c = &s->query->calendar;
    struct series_span *latest = &s->latest;
    int64_t last = hour + DAY_SECONDS - HOUR_SECONDS;
    if (hour >= latest->from && hour < latest->to)
        return latest->unit;
    *latest = (struct series_span){.from = hour, .to = hour + HOUR_SECONDS, .unit = units_order(c, hour)};
    if (c->unit != UNIT_HOUR && zone_offset(&c->zone, hour) == zone_offset(&c->zone, last) &&
        units_order(c, last) == latest->unit)
        latest->to = hour + DAY_SECONDS;
    return latest->unit;
}

/* The hour of the day, 0 to 23, or -1. */
static int hour_digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'n' ? c - 'a' + 10 : -1;
}

/* As hour_decode. Most hours of a record are of the day of the hour before. */
static bool read_hour(struct series_day *day, struct bytes text, int64_t *hour)
{
    size_t len = text.len - 1;
    int n = text.len > 0 ? hour_digit(text.ptr[len]) : -1;
    if (n >= 0 && day->len == len && len > 0 && memcmp(day->text, text.ptr, len) == 0) {
        *hour = day->start + n * HOUR_SECONDS;
        return true;
    }
    if (n < 0 || !hour_decode(text, hour))
        return false;
    memcpy(day->text, text.ptr, len);
    day->len = len;
    day->start = *hour - n * HOUR_SECONDS;
    return true;
}

/* `hour` may also be the start of a longer period within one unit. */
static bool add_hour(struct series *s, int64_t hour, uint64_t n, bool is_over)
{
    if (hour < s->query->from || hour >= s->query->to)
        return true;
    if (is_over) {
        s->is_too_large |= __builtin_add_overflow(s->over, n, &s->over);
        return true;
    }
    int64_t unit = unit_of(s, hour);
    s->first = hour < s->first ? hour : s->first;
    s->last = hour > s->last ? hour : s->last;
    s->is_too_large |= __builtin_add_overflow(s->total, n, &s->total);
    struct series_run *run = s->n_runs > 0 ? &s->runs[s->n_runs - 1] : NULL;
    if (run && run->n > 0 && run->counts[run->n - 1].unit == unit) {
        run->counts[run->n - 1].n += n;
        return true;
    }
    if (s->n_runs > 0 && run_add(&s->runs[s->n_runs - 1], unit, n))
        return true;
    return s->n_runs < SERIES_RUNS_MAX && run_add(&s->runs[s->n_runs++], unit, n);
}

/* Reads a number of a few digits that a space or the end follows. Returns the place after it and the space, or NULL. */
static const char *read_count(const char *p, const char *end, uint64_t *n)
{
    const char *from = p;
    *n = 0;
    while (p < end && (unsigned)(*p - '0') < 10 && p - from < FEW_DIGITS)
        *n = *n * 10 + (unsigned)(*p++ - '0');
    if (p == from || (p < end && (*p != ' ' || p + 1 == end)))
        return NULL;
    return p + (p < end);
}

/* Adds the counts at the beginning of a total's value that are of the same day and unit as the count before. Leaves every other count, and
 * whatever is malformed, in *value. */
static void add_same_day(struct series *s, struct bytes *value)
{
    const struct query *q = s->query;
    const struct series_day *day = &s->day;
    struct series_run *run = s->n_runs > 0 ? &s->runs[s->n_runs - 1] : NULL;
    const char *p = value->ptr, *end = p + value->len;
    uint64_t sum = 0, n;
    if (!run || run->n == 0 || run->counts[run->n - 1].unit != s->latest.unit || day->len != DAY_TEXT)
        return;
    while (end - p > DAY_TEXT + 2 && p[0] == day->text[0] && p[1] == day->text[1] && p[2] == day->text[2] &&
           p[DAY_TEXT + 1] == ':') {
        int digit = hour_digit(p[DAY_TEXT]);
        int64_t hour = day->start + digit * HOUR_SECONDS;
        if (digit < 0 || hour < s->latest.from || hour >= s->latest.to || hour < q->from || hour >= q->to)
            break;
        const char *next = read_count(p + DAY_TEXT + 2, end, &n);
        if (!next)
            break;
        s->first = hour < s->first ? hour : s->first;
        s->last = hour > s->last ? hour : s->last;
        sum += n;
        p = next;
    }
    run->counts[run->n - 1].n += sum;
    s->is_too_large |= __builtin_add_overflow(s->total, sum, &s->total);
    *value = bytes_of(p, (size_t)(end - p));
}

bool series_takes(struct series *s, const struct record_key *period)
{
    const struct calendar *c = &s->query->calendar;
    int64_t last = period_end(period->unit, period->start) - HOUR_SECONDS;
    enum query_overlap overlap = query_overlap(s->query, period);
    bool is_split = period->unit != PERIOD_HOUR && units_order(c, period->start) != units_order(c, last);
    s->needs_dropped_hours |= overlap == QUERY_PARTLY || (overlap == QUERY_WITHIN && is_split);
    return overlap == QUERY_WITHIN && !is_split;
}

bool series_add_count(struct series *s, int64_t start, uint64_t n)
{
    return add_hour(s, start, n, false);
}

bool series_add(struct series *s, const struct record *r)
{
    const struct query *q = s->query;
    struct bytes value = r->value, name, sub = bytes_str(q->stored_sub);
    struct record_key key;
    uint64_t n;
    bool bad = false;
    if (!record_key_parse(r->key, &key) || !bytes_equal_str(key.ns, q->sub ? q->sub->ns : q->total->ns))
        return false;
    if (key.is_subtotal && !series_takes(s, &key))
        return true;
    /* A total's record has one count for each hour. A subtotal's record has one count for each sub key of its hour. */
    bool is_other = bytes_equal_str(key.key, COMPONENT_OTHER);
    bool is_key = !is_other || strcmp(q->stored, COMPONENT_OTHER) == 0;
    while (record_next_count(&value, &name, &n, &bad)) {
        int64_t hour = key.start;
        if (q->sub) {
            is_other = bytes_equal_str(name, COMPONENT_OTHER);
            is_key = bytes_equal(name, sub);
        } else if (!read_hour(&s->day, name, &hour)) {
            return false;
        }
        bool is_plain = !q->sub && is_key && !is_other;
        if ((is_other && query_may_have_other(q) && !add_hour(s, hour, n, true)) ||
            (is_key && !add_hour(s, hour, n, false)))
            return false;
        if (is_plain && hour >= q->from && hour < q->to)
            add_same_day(s, &value);
    }
    return !bad;
}

bool series_trim(struct series *s, uint64_t max_rows)
{
    const struct query *q = s->query;
    const struct calendar *c = &q->calendar;
    uint64_t rows = 0;
    if (!q->is_all)
        return true;
    bool is_empty = s->first > s->last;
    int64_t last = is_empty || q->now > s->last ? q->now : s->last;
    s->from = s->next = units_start(c, is_empty ? last : s->first);
    s->to = units_next(c, units_start(c, last));
    for (int64_t t = s->from; t < s->to && rows <= max_rows; t = units_next(c, t))
        rows++;
    return rows <= max_rows;
}

bool series_next(struct series *s, struct series_row *row)
{
    const struct calendar *c = &s->query->calendar;
    if (s->next >= s->to)
        return false;
    *row = (struct series_row){.start = s->next, .end = units_next(c, s->next)};
    int64_t unit = units_order(c, row->start);
    for (size_t i = 0; i < s->n_runs; i++) {
        struct series_run *r = &s->runs[i];
        while (r->at < r->n && r->counts[r->at].unit <= unit)
            row->n += r->counts[r->at++].n;
    }
    s->next = row->end;
    s->n_rows++;
    return true;
}
