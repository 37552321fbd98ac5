#include "api/series.h"

#include "api/day_counts.h"
#include <stdlib.h>

#define DAY_SECONDS (24 * HOUR_SECONDS)
#define DISORDER_MAX                                                                                         \
    2 /* an hour may belong to one of so many latest units, because clocks that go back repeat a date */

void series_init(struct series *s, const struct query *q)
{
    *s = (struct series){.query = q, .from = q->from, .to = q->to, .first = HOUR_END};
    query_rows(q, q->from, q->to, &s->next, &s->end);
}

void series_reset(struct series *s)
{
    for (size_t i = 0; i < s->n_runs; i++)
        free(s->runs[i].counts);
    free(s->runs);
    series_init(s, s->query);
}

size_t series_bytes(const struct series *s)
{
    size_t bytes = s->runs_cap * sizeof *s->runs;
    for (size_t i = 0; i < s->n_runs; i++)
        bytes += s->runs[i].cap * sizeof *s->runs[i].counts;
    return bytes;
}

void series_copy(struct series *to, const struct series *from)
{
    const struct query *q = to->query;
    *to = *from;
    to->query = q;
    to->runs_cap = to->n_runs;
    to->runs = mem_alloc(to->n_runs * sizeof *to->runs);
    for (size_t i = 0; i < to->n_runs; i++) {
        struct series_run *r = &to->runs[i];
        *r = from->runs[i];
        r->cap = r->n;
        r->counts = mem_alloc(r->n * sizeof *r->counts);
        memcpy(r->counts, from->runs[i].counts, r->n * sizeof *r->counts);
    }
}

/* Adds `n` to the count of a unit. A missing unit is inserted if it belongs among the latest units of the run.
 * Returns false if the unit is earlier. */
static bool run_add(struct series_run *r, int64_t unit, int64_t n)
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
    ARRAY_ROOM(r->counts, r->cap, r->n + 1);
    memmove(r->counts + at + 1, r->counts + at, (r->n++ - at) * sizeof *r->counts);
    r->counts[at] = (struct series_count){unit, n};
    return true;
}

static int64_t unit_of(struct series *s, int64_t hour)
{
    struct series_span *latest = &s->latest;
    if (hour < latest->from || hour >= latest->to)
        latest->unit = units_span(&s->query->calendar, hour, &latest->from, &latest->to);
    return latest->unit;
}

#define HOUR_DIGITS "0123456789abcdefghijklmn"

static int hour_digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'n' ? c - 'a' + 10 : -1;
}

/* Adds `n` to a count of the nearest run, or of a new run. Returns false if too many runs are needed. */
static bool add_to_runs(struct series *s, int64_t unit, int64_t n)
{
    size_t best = s->n_runs;
    for (size_t i = 0; i < s->n_runs; i++) {
        int64_t last = s->runs[i].counts[s->runs[i].n - 1].unit;
        if (last <= unit && (best == s->n_runs || last > s->runs[best].counts[s->runs[best].n - 1].unit))
            best = i;
    }
    for (size_t i = 0; best == s->n_runs && i < s->n_runs; i++) /* the order of a date that repeats */
        if (run_add(&s->runs[i], unit, n)) {
            s->run = i;
            return true;
        }
    if (best == SERIES_RUNS_MAX * (s->query->n_cells > 1 ? s->query->n_cells : 1))
        return false;
    if (best == s->n_runs)
        *ARRAY_ADD(s->runs, s->n_runs, s->runs_cap) = (struct series_run){.n = 0};
    s->run = best;
    return run_add(&s->runs[best], unit, n);
}

/* Adds `n` events that begin at `hour`. No end of a part is within these events. */
static bool add_to_unit(struct series *s, int64_t unit, int64_t hour, int64_t n)
{
    s->is_too_large |= !query_add_absolute(&s->absolute, n);
    if (s->is_too_large)
        return true;
    s->total += n;
    s->so_far += hour < s->query->part_end ? n : 0;
    s->rows_so_far += hour < s->query->row_part_end ? n : 0;
    struct series_run *run = s->n_runs > 0 ? &s->runs[s->run] : NULL;
    if (run && run->counts[run->n - 1].unit == unit) {
        run->counts[run->n - 1].n += n;
        return true;
    }
    return add_to_runs(s, unit, n);
}

static void note_hour(struct series *s, int64_t hour)
{
    s->first = hour < s->first ? hour : s->first;
    s->last = hour > s->last ? hour : s->last;
}

/* Adds the count of a counted period, or of a longer period that starts at `start` and is within one unit. */
static bool add_period(struct series *s, int64_t start, int64_t n, bool is_over)
{
    if (start < s->query->from || start >= s->query->to)
        return true;
    if (is_over) {
        s->is_too_large |= __builtin_add_overflow(s->over.counter, n, &s->over.counter);
        return true;
    }
    note_hour(s, start);
    return add_to_unit(s, unit_of(s, start), start, n);
}

/* Returns `cut` if it is within (start, end), otherwise `end`. */
static int64_t earlier_within(int64_t start, int64_t end, int64_t cut)
{
    return cut > start && cut < end ? cut : end;
}

/* Finds the first day in a total's value, and sets `d` to the hours of this day that belong to the same row or are
 * outside the span. Returns false if the first count is malformed. */
static bool find_day(struct series *s, struct bytes value, struct day_counts *d, int64_t *day, int64_t *hour)
{
    const struct query *q = s->query;
    enum period_unit period;
    d->len = value.len > 0 && value.ptr[0] >= 'w' ? HOUR_TEXT_MAX - 1 : HOUR_TEXT_MAX - 2;
    int digit = value.len > d->len ? hour_digit(value.ptr[d->len]) : -1;
    if (digit < 0 || !period_decode(bytes_of(value.ptr, d->len), &period, day) || period != PERIOD_DAY)
        return false;
    *hour = *day + digit * HOUR_SECONDS;
    int64_t end = *day + DAY_SECONDS, row_end = q->from;
    if (*hour >= q->from && *hour < q->to) {
        unit_of(s, *hour);
        row_end = s->latest.to < q->to ? s->latest.to : q->to;
    }
    end = earlier_within(*hour, end, row_end);
    end = earlier_within(*hour, end, q->part_end);
    end = earlier_within(*hour, end, q->row_part_end);
    memcpy(d->day, value.ptr, d->len);
    d->first = value.ptr[d->len];
    d->last = HOUR_DIGITS[(end - 1 - *day) / HOUR_SECONDS];
    return true;
}

/* Adds the well-formed counts at the beginning of a total's value. Returns false if the hours are out of order. */
static bool add_days(struct series *s, struct bytes *value)
{
    struct day_counts d;
    int64_t day, hour;
    while (find_day(s, *value, &d, &day, &hour)) {
        int64_t sum = 0;
        char last = day_counts_take(&d, value, &sum);
        if (!last)
            return true;
        if (hour < s->query->from || hour >= s->query->to)
            continue;
        note_hour(s, hour);
        note_hour(s, day + hour_digit(last) * HOUR_SECONDS);
        if (!add_to_unit(s, unit_of(s, hour), hour, sum))
            return false;
    }
    return true;
}

bool series_takes(struct series *s, const struct record_key *period)
{
    const struct calendar *c = &s->query->calendar;
    int64_t last = period_end(period->unit, period->start) - 1;
    enum query_overlap overlap = query_overlap(s->query, period);
    bool is_split = period->unit > PERIOD_HOUR && units_order(c, period->start) != units_order(c, last);
    int64_t end = earlier_within(period->start, last + 1, s->query->part_end);
    end = earlier_within(period->start, end, s->query->row_part_end);
    s->is_part_unknown |= period->unit > PERIOD_HOUR && end <= last;
    s->needs_dropped_hours |= overlap == QUERY_PARTLY || (overlap == QUERY_WITHIN && is_split);
    return overlap == QUERY_WITHIN && !is_split;
}

bool series_add_count(struct series *s, int64_t start, int64_t n)
{
    return add_period(s, start, n, false);
}

bool series_add(struct series *s, const struct record *r)
{
    const struct query *q = s->query;
    struct bytes value = r->value, name, sub = bytes_str(q->stored_sub);
    struct record_key key;
    int64_t n;
    bool bad = false;
    if (!record_key_parse(r->key, &key) || !bytes_equal_str(key.ns, q->sub ? q->sub->ns : q->total->ns))
        return false;
    if (key.is_subtotal && !series_takes(s, &key))
        return true;
    /* A total's record has one count for each hour or quarter hour. A subtotal's record has one count for each sub key of
     * its period. */
    bool is_other = bytes_equal_str(key.key, COMPONENT_OTHER);
    bool is_key = !is_other || strcmp(q->stored, COMPONENT_OTHER) == 0;
    if (!q->sub && !is_other && !add_days(s, &value))
        return false;
    while (record_next_count(&value, &name, &n, &bad)) {
        enum period_unit unit;
        int64_t start = key.start;
        if (q->sub) {
            is_other = bytes_equal_str(name, COMPONENT_OTHER);
            is_key = bytes_equal(name, sub);
        } else if (!total_period_decode(name, &unit, &start)) {
            return false;
        }
        if ((is_other && query_may_have_other(q) && !add_period(s, start, n, true)) ||
            (is_key && !add_period(s, start, n, false)))
            return false;
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
    s->to = s->end = units_next(c, units_start(c, last));
    for (int64_t t = s->from; t < s->to && rows <= max_rows; t = units_next(c, t))
        rows++;
    return rows <= max_rows;
}

void series_bounds_note(struct series_bounds *b, const struct record *r)
{
    struct record_key key;
    if (!record_key_parse(r->key, &key))
        return;
    if (!b->has_records || key.start < b->first.start)
        b->first = key;
    if (!b->has_records || period_end(key.unit, key.start) > period_end(b->last.unit, b->last.start))
        b->last = key;
    b->has_records = true;
}

void series_bound_all(struct series *total, const struct series_bounds *b, struct query *q)
{
    if (b->has_records && total->first >= period_end(b->first.unit, b->first.start))
        total->first = b->first.start;
    if (b->has_records && total->last < b->last.start)
        total->last = period_end(b->last.unit, b->last.start) - 1;
    series_trim(total, UINT64_MAX);
    q->from = total->from;
    q->to = total->to;
}

int64_t series_take(struct series *s, int64_t unit)
{
    int64_t n = 0;
    for (size_t i = 0; i < s->n_runs; i++) {
        struct series_run *r = &s->runs[i];
        while (r->at < r->n && r->counts[r->at].unit <= unit)
            n += r->counts[r->at++].n;
    }
    s->n_rows++;
    s->taken += n;
    return n;
}

int64_t series_part(const struct series *s, const struct series_row *row)
{
    return s->rows_so_far - (s->taken - row->n);
}

bool series_next(struct series *s, struct series_row *row)
{
    const struct calendar *c = &s->query->calendar;
    if (s->next >= s->end)
        return false;
    *row = (struct series_row){.start = s->next, .end = units_next(c, s->next)};
    int64_t unit = units_order(c, row->start);
    row->n = series_take(s, unit);
    if (s->events)
        row->events = series_take(s->events, unit);
    s->next = row->end;
    return true;
}
