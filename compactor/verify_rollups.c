#include "compactor/verify_rollups.h"

#include "compactor/record_sum.h"
#include <stdio.h>
#include <stdlib.h>

struct period {
    struct bytes text;   /* text of the period; BYTES_NONE: no period */
    struct bytes rollup; /* the line of the period's record, or BYTES_NONE */
    struct record_sum sum;
    bool has_counts; /* `sum` has a record */
    uint64_t parts;  /* number of quarter hours in an hour, of hours in a day, or of days in a month */
    int64_t start;
};

struct verify_rollups {
    const struct sorted_text *text;
    const struct value_sums *values;
    struct verify_report *report;
    bool has_more;
    bool has_values; /* the series is one of values */
    const struct manifest *manifest;
    struct bytes series;                     /* prefix of the current keys, such as "c.u|jehiah." */
    struct period periods[PERIOD_MONTH + 1]; /* the current hour, day and month */
    struct bytes total;                      /* remaining hours of the series' total */
    struct bytes total_hour;                 /* the hour before `total` */
    int64_t total_count;
    struct buf key;
};

struct verify_rollups *verify_rollups_new(const struct sorted_text *text, const struct manifest *manifest,
    const struct value_sums *values, struct verify_report *report)
{
    struct verify_rollups *v = mem_zalloc(sizeof *v);
    v->text = text;
    v->values = values;
    v->manifest = manifest;
    v->report = report;
    return v;
}

void verify_rollups_free(struct verify_rollups **v)
{
    if (!*v)
        return;
    for (enum period_unit unit = PERIOD_HOUR; unit <= PERIOD_MONTH; unit++)
        record_sum_free(&(*v)->periods[unit].sum);
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
    p->has_counts = false;
    p->parts = 0;
}

/* Ends a period. Returns NULL or the fault; *wrong is the key of the rollup, or of a record inside the period. */
static const char *close_period(struct verify_rollups *v, enum period_unit unit, struct bytes *wrong)
{
    struct period *p = &v->periods[unit];
    const char *why = NULL;
    if (!p->text.ptr)
        return NULL;
    if (manifest_is_counted(v->manifest, unit, p->start)) {
        p->text = BYTES_NONE;
        *wrong = p->rollup.ptr ? p->rollup : p->sum.key;
        return p->parts == 0         ? NULL
               : unit == PERIOD_HOUR ? "the hour is before quarters_since and has quarter hours"
                                     : "the day is before hours_from and has hours";
    }
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

/* Adds a record with counts of its own to the periods around it. */
static void add_counts(struct verify_rollups *v, const struct record_key *key, struct bytes line)
{
    bool is_new_part = true;
    for (enum period_unit unit = key->unit + 1; unit <= PERIOD_MONTH; unit++) {
        struct period *p = &v->periods[unit];
        p->parts += is_new_part;
        is_new_part = !p->has_counts;
        if (!p->has_counts)
            record_sum_begin(&p->sum, line);
        else
            record_sum_add_value(&p->sum, value_of(line));
        p->has_counts = true;
    }
}

const char *verify_rollups_add(
    struct verify_rollups *v, const struct record_key *key, struct bytes line, struct bytes *wrong)
{
    bool is_same = v->series.ptr && bytes_starts_with(line, v->series);
    const char *why = NULL;
    for (enum period_unit unit = PERIOD_HOUR; unit <= PERIOD_MONTH && !why; unit++) {
        struct bytes text = unit < key->unit ? BYTES_NONE : period_enclosing(key->period, key->unit, unit);
        if (!is_same || !bytes_equal(text, v->periods[unit].text))
            why = close_period(v, unit, wrong);
    }
    if (why)
        return why;
    if (!is_same)
        begin_series(v, key, line);
    for (enum period_unit unit = PERIOD_HOUR; unit <= PERIOD_MONTH; unit++)
        if (unit >= key->unit && !v->periods[unit].text.ptr)
            open_period(&v->periods[unit], period_enclosing(key->period, key->unit, unit), key->start);
    if (key->unit > PERIOD_QUARTER)
        v->periods[key->unit].rollup = line;
    if (manifest_is_counted(v->manifest, key->unit, key->start)) {
        compare_with_total(v, key, line);
        add_counts(v, key, line);
    }
    return NULL;
}

const char *verify_rollups_end(struct verify_rollups *v, struct bytes *wrong)
{
    const char *why = NULL;
    for (enum period_unit unit = PERIOD_HOUR; unit <= PERIOD_MONTH && !why; unit++)
        why = close_period(v, unit, wrong);
    return why;
}
