#include "compactor/verify_rollups.h"

#include "compactor/record_sum.h"
#include <stdio.h>
#include <stdlib.h>

struct period {
    struct bytes text;   /* text of the period; BYTES_NONE: no period */
    struct bytes rollup; /* the line of the period's record, or BYTES_NONE */
    struct record_sum sum;
    uint64_t parts; /* number of hours in a day, or of days in a month */
    int64_t start;
};

struct verify_rollups {
    const struct sorted_text *text;
    const struct value_sums *values;
    struct verify_report *report;
    bool has_more;
    bool has_values; /* the series is one of values */
    int64_t hours_from;
    struct bytes series; /* prefix of the current keys, such as "c.u|jehiah." */
    struct period day, month;
    struct bytes total;      /* remaining hours of the series' total */
    struct bytes total_hour; /* the hour before `total` */
    int64_t total_count;
    struct buf key;
};

struct verify_rollups *verify_rollups_new(const struct sorted_text *text, const struct value_sums *values,
    int64_t hours_from, struct verify_report *report)
{
    struct verify_rollups *v = mem_zalloc(sizeof *v);
    v->text = text;
    v->values = values;
    v->hours_from = hours_from;
    v->report = report;
    return v;
}

void verify_rollups_free(struct verify_rollups **v)
{
    if (!*v)
        return;
    record_sum_free(&(*v)->day.sum);
    record_sum_free(&(*v)->month.sum);
    buf_free(&(*v)->key);
    free(*v);
    *v = NULL;
}

bool verify_rollups_has_more(const struct verify_rollups *v)
{
    return v->has_more;
}

static struct bytes value_of(struct bytes line)
{
    struct record r = {.value = BYTES_NONE};
    record_split(line, RECORD_SEPARATOR, &r);
    return r.value;
}

static void open_period(struct period *p, struct bytes text, int64_t start)
{
    p->text = text;
    p->start = start;
    p->rollup = BYTES_NONE;
    p->parts = 0;
}

static void add_part(struct period *p, struct bytes line)
{
    if (p->parts++ == 0)
        record_sum_begin(&p->sum, line);
    else
        record_sum_add_value(&p->sum, value_of(line));
}

/* Ends a period. Returns NULL or the fault; *wrong is the key of the rollup, or of a record inside the period. */
static const char *close_period(struct period *p, struct bytes *wrong)
{
    if (!p->text.ptr)
        return NULL;
    const char *why = NULL;
    bool needed = p->parts > 1;
    struct bytes sum = needed && p->rollup.ptr ? record_sum_line(&p->sum) : BYTES_NONE;
    if (p->rollup.ptr && p->parts == 0)
        why = "the rollup has no parts";
    else if (p->rollup.ptr && !needed)
        why = "a rollup of one part";
    else if (!p->rollup.ptr && needed)
        why = "the rollup of this period is missing";
    else if (needed && !(sum.ptr && bytes_equal(value_of(sum), value_of(p->rollup))))
        why = "the rollup is not the sum of its parts";
    *wrong = p->rollup.ptr ? p->rollup : p->sum.key;
    p->text = BYTES_NONE;
    return why;
}

static const char *close_day(struct verify_rollups *v, struct bytes *wrong)
{
    struct period *d = &v->day;
    if (!d->text.ptr || d->start >= v->hours_from)
        return close_period(d, wrong);
    d->text = BYTES_NONE;
    *wrong = d->rollup;
    return d->parts > 0 ? "the day is before hours_from and has hours" : NULL;
}

static void begin_series(struct verify_rollups *v, const struct record_key *key, struct bytes line)
{
    const char *dot = memchr(key->ns.ptr, '.', key->ns.len);
    struct sorted_span found;
    v->series = bytes_of(line.ptr, (size_t)(key->period.ptr - line.ptr));
    buf_clear(&v->key);
    buf_append(&v->key, dot + 1, key->ns.len - (size_t)(dot + 1 - key->ns.ptr));
    buf_append_char(&v->key, '|');
    buf_append_bytes(&v->key, key->key);
    v->total = v->total_hour = BYTES_NONE;
    v->has_values = value_sums_find(v->values, key->ns) != NULL;
    if (!sorted_find(v->text, buf_bytes(&v->key), &found))
        return;
    v->total = value_of(bytes_of(v->text->text.ptr + found.begin, found.end - found.begin));
    if (v->total.len > 0 && v->total.ptr[v->total.len - 1] == '\n')
        v->total.len--;
}

/* Returns the total's counts inside a period. The caller passes periods in ascending order. */
static uint64_t total_of(struct verify_rollups *v, struct bytes period)
{
    uint64_t sum = 0;
    for (bool bad;;) {
        if (!v->total_hour.ptr && !record_next_count(&v->total, &v->total_hour, &v->total_count, &bad))
            return sum;
        if (bytes_starts_with(v->total_hour, period))
            sum += (uint64_t)v->total_count;
        else if (bytes_compare(v->total_hour, period) > 0)
            return sum;
        v->total_hour = BYTES_NONE;
    }
}

static void compare_with_total(struct verify_rollups *v, const struct record_key *key, struct bytes line)
{
    struct bytes rest = value_of(line), name;
    uint64_t sum = 0;
    int64_t n;
    bool bad;
    while (record_next_count(&rest, &name, &n, &bad))
        sum += (uint64_t)n;
    uint64_t total = total_of(v, key->period);
    if (sum == total)
        return;
    bool is_more = !v->has_values && sum > total;
    v->has_more = v->has_more || is_more;
    if (v->report->unequal++ == 0 || (is_more && v->report->example[0] == '\0'))
        snprintf(v->report->example, sizeof v->report->example, "%.*s",
            (int)(key->period.ptr + key->period.len - line.ptr), line.ptr);
}

static const char *take_hour(struct verify_rollups *v, const struct record_key *key, struct bytes line)
{
    compare_with_total(v, key, line);
    add_part(&v->day, line);
    if (v->day.parts == 1)
        v->month.parts++;
    if (v->month.parts == 1 && v->day.parts == 1)
        record_sum_begin(&v->month.sum, line);
    else
        record_sum_add_value(&v->month.sum, value_of(line));
    return NULL;
}

static const char *take_day(struct verify_rollups *v, const struct record_key *key, struct bytes line)
{
    v->day.rollup = line;
    if (key->start >= v->hours_from)
        return NULL;
    compare_with_total(v, key, line);
    add_part(&v->month, line);
    return NULL;
}

const char *verify_rollups_add(
    struct verify_rollups *v, const struct record_key *key, struct bytes line, struct bytes *wrong)
{
    struct bytes month = period_enclosing(key->period, key->unit, PERIOD_MONTH);
    struct bytes day =
        key->unit == PERIOD_MONTH ? BYTES_NONE : period_enclosing(key->period, key->unit, PERIOD_DAY);
    bool is_same = v->series.ptr && bytes_starts_with(line, v->series);
    const char *why = NULL;
    if (!is_same || !bytes_equal(day, v->day.text))
        why = close_day(v, wrong);
    if (!why && (!is_same || !bytes_equal(month, v->month.text)))
        why = close_period(&v->month, wrong);
    if (why)
        return why;
    if (!is_same)
        begin_series(v, key, line);
    if (!v->month.text.ptr)
        open_period(&v->month, month, key->start);
    if (day.ptr && !v->day.text.ptr)
        open_period(&v->day, day, key->start);
    if (key->unit == PERIOD_HOUR)
        return take_hour(v, key, line);
    if (key->unit == PERIOD_DAY)
        return take_day(v, key, line);
    v->month.rollup = line;
    return NULL;
}

const char *verify_rollups_end(struct verify_rollups *v, struct bytes *wrong)
{
    const char *why = close_day(v, wrong);
    return why ? why : close_period(&v->month, wrong);
}
