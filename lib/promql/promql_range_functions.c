#include "promql/promql_range_functions.h"

#include <math.h>
#include <stdlib.h>

static size_t samples_of(const struct sample_bucket *b)
{
    return (size_t)b->count + b->n_nan;
}

/* The amount that a counter lost by resets from the last sample of one bucket to the last sample of the next. */
static double lost_by_resets(const struct sample_bucket *before, const struct sample_bucket *b)
{
    if (samples_of(b) == 1)
        return b->last < before->last ? before->last : 0;
    return b->count > 0 ? b->rise - (b->last - before->last) : 0;
}

/* A sum that compensates for rounding errors (Neumaier). */
struct exact_sum {
    double sum, lost;
};

static void exact_add(struct exact_sum *s, double v)
{
    double t = s->sum + v;
    s->lost += fabs(s->sum) >= fabs(v) ? (s->sum - t) + v : (v - t) + s->sum;
    s->sum = t;
}

static double exact_value(const struct exact_sum *s)
{
    return isinf(s->sum) ? s->sum : s->sum + s->lost;
}

/* A change between two times, and the number of intervals between samples in it. */
struct change {
    double begin, end, first_value, change, intervals;
};

/* The change of a counter. Inside a bucket that an edge of the range divides, the counter rises linearly. */
static struct change counter_change(const struct window *w)
{
    const struct sample_bucket *first = w->n > 0 ? &w->buckets[0] : w->next;
    struct change c = {.begin = (double)first->last_at, .first_value = first->last};
    if (w->n > 0) {
        c.end = (double)w->buckets[w->n - 1].last_at;
        c.change = w->buckets[w->n - 1].last - first->last;
    }
    if (first->count > 1) {
        double from = (double)(first->first > w->from ? first->first : w->from), length = c.begin - from;
        double part = length / (double)(first->last_at - first->first + (first->last_at == first->first));
        c.intervals = part * (first->count - 1);
        double rise = part * first->rise * (first->count - 1) / first->count;
        c.change += rise;
        c.first_value -= rise;
        c.begin = from;
    }
    for (size_t i = 1; i < w->n; i++) {
        c.intervals += (double)samples_of(&w->buckets[i]);
        c.change += lost_by_resets(&w->buckets[i - 1], &w->buckets[i]);
    }
    if (w->next) { /* the part of its rise that lies in the range */
        double from = w->n > 0 ? c.end : c.begin,
               part = ((double)w->to - from) / ((double)w->next->last_at - from);
        c.change = w->n > 0 ? c.change + part * w->next->rise : part * c.change;
        c.intervals = w->n > 0 ? c.intervals + part * (double)samples_of(w->next) : part * c.intervals;
        c.end = (double)w->to;
    }
    return c;
}

static struct change gauge_change(const struct window *w)
{
    const struct sample_bucket *first = &w->buckets[0], *last = &w->buckets[w->n - 1];
    return (struct change){(double)first->last_at, (double)last->last_at, first->last,
        last->last - first->last, (double)w->n - 1};
}

/* Extends a change to the edges of the range: by the whole distance to an edge if it is less than 1.1 mean intervals between
 * samples, otherwise by half an interval. A counter is not extended to below zero. */
static bool extrapolate(
    const struct window *w, struct change c, bool is_counter, double seconds, double *value)
{
    double sampled = (c.end - c.begin) / 1000, mean = sampled / c.intervals;
    if (!(c.intervals > 0) || !(sampled > 0))
        return false;
    double before = (c.begin - (double)w->from) / 1000, after = ((double)w->to - c.end) / 1000;
    if (is_counter && c.change > 0 && c.first_value >= 0 && sampled * (c.first_value / c.change) < before)
        before = sampled * (c.first_value / c.change);
    double whole =
        sampled + (before < mean * 1.1 ? before : mean / 2) + (after < mean * 1.1 ? after : mean / 2);
    *value = c.change * (whole / sampled / seconds); /* rounded as in Prometheus */
    return true;
}

bool range_increase(const struct window *w, const double *args, double *value)
{
    (void)args;
    return extrapolate(w, counter_change(w), true, 1, value);
}

bool range_rate(const struct window *w, const double *args, double *value)
{
    (void)args;
    return extrapolate(w, counter_change(w), true, (double)(w->to - w->from) / 1000, value);
}

bool range_delta(const struct window *w, const double *args, double *value)
{
    (void)args;
    return extrapolate(w, gauge_change(w), false, 1, value);
}

bool range_idelta(const struct window *w, const double *args, double *value)
{
    (void)args;
    if (w->n < 2)
        return false;
    *value = w->buckets[w->n - 1].last - w->buckets[w->n - 2].last;
    return true;
}

bool range_irate(const struct window *w, const double *args, double *value)
{
    (void)args;
    if (w->n < 2)
        return false;
    const struct sample_bucket *b = &w->buckets[w->n - 1], *before = b - 1;
    double rise = samples_of(b) == 1 && b->last < before->last ? b->last
                  : samples_of(b) == 1                         ? b->last - before->last
                                                               : b->rise;
    *value = rise / ((double)(b->last_at - before->last_at) / 1000);
    return true;
}

/* The line of the least squares through the last samples: its slope, and its value at a time. */
static bool regression(const struct window *w, int64_t at, double *slope, double *value)
{
    struct exact_sum x = {0}, y = {0}, xy = {0}, xx = {0};
    double n = (double)w->n;
    bool is_constant = true;
    if (w->n < 2)
        return false;
    for (size_t i = 0; i < w->n; i++) {
        double dx = (double)(w->buckets[i].last_at - at) / 1000, dy = w->buckets[i].last;
        is_constant = is_constant && dy == w->buckets[0].last;
        exact_add(&x, dx);
        exact_add(&y, dy);
        exact_add(&xy, dx * dy);
        exact_add(&xx, dx * dx);
    }
    if (is_constant) {
        *slope = isinf(w->buckets[0].last) ? NAN : 0;
        *value = isinf(w->buckets[0].last) ? NAN : w->buckets[0].last;
        return true;
    }
    double sum_x = x.sum + x.lost, sum_y = y.sum + y.lost;
    *slope = (xy.sum + xy.lost - sum_x * sum_y / n) / (xx.sum + xx.lost - sum_x * sum_x / n);
    *value = sum_y / n - *slope * sum_x / n;
    return true;
}

bool range_deriv(const struct window *w, const double *args, double *value)
{
    double ignored;
    (void)args;
    return regression(w, w->buckets[0].last_at, value, &ignored);
}

bool range_predict(const struct window *w, const double *args, double *value)
{
    double slope, now;
    if (!regression(w, w->at, &slope, &now))
        return false;
    *value = slope * *args + now;
    return true;
}

bool range_resets(const struct window *w, const double *args, double *value)
{
    size_t n = 0;
    (void)args;
    for (size_t i = 1; i < w->n; i++) {
        const struct sample_bucket *b = &w->buckets[i], *before = b - 1;
        /* With several samples, the lost amount has a rounding error. */
        n += samples_of(b) == 1 ? b->last < before->last
                                : lost_by_resets(before, b) > 1e-9 * (fabs(b->last) + fabs(before->last));
    }
    *value = (double)n;
    return true;
}

bool range_changes(const struct window *w, const double *args, double *value)
{
    size_t n = 0;
    (void)args;
    for (size_t i = 0; i < w->n; i++) {
        const struct sample_bucket *b = &w->buckets[i];
        bool inside = b->count > 0 && (b->min != b->max || (b->n_nan > 0)) && samples_of(b) > 1;
        bool differs = i > 0 && b->last != b[-1].last && !(isnan(b->last) && isnan(b[-1].last));
        n += inside || differs;
    }
    *value = (double)n;
    return true;
}

static bool has_nan(const struct window *w)
{
    for (size_t i = 0; i < w->n; i++)
        if (w->buckets[i].n_nan > 0)
            return true;
    return false;
}

bool range_count(const struct window *w, const double *args, double *value)
{
    size_t n = 0;
    (void)args;
    for (size_t i = 0; i < w->n; i++)
        n += samples_of(&w->buckets[i]);
    *value = (double)n;
    return true;
}

bool range_sum(const struct window *w, const double *args, double *value)
{
    struct exact_sum sum = {0};
    (void)args;
    for (size_t i = 0; i < w->n; i++)
        exact_add(&sum, w->buckets[i].sum);
    *value = has_nan(w) ? NAN : exact_value(&sum);
    return true;
}

/* A running mean, because the sum may exceed the largest number. */
bool range_avg(const struct window *w, const double *args, double *value)
{
    struct exact_sum mean = {0};
    double n = 0;
    (void)args;
    for (size_t i = 0; i < w->n; i++) {
        const struct sample_bucket *b = &w->buckets[i];
        n += b->count;
        bool stays = isinf(mean.sum) && (isinf(b->sum) ? (mean.sum > 0) == (b->sum > 0) : !isnan(b->sum));
        if (!stays && b->count > 0)
            exact_add(&mean, b->sum / n - mean.sum * (b->count / n));
    }
    *value = has_nan(w) ? NAN : exact_value(&mean);
    return true;
}

bool range_max(const struct window *w, const double *args, double *value)
{
    (void)args;
    *value = NAN;
    for (size_t i = 0; i < w->n; i++)
        if (w->buckets[i].count > 0 && (w->buckets[i].max > *value || isnan(*value)))
            *value = w->buckets[i].max;
    return true;
}

bool range_min(const struct window *w, const double *args, double *value)
{
    (void)args;
    *value = NAN;
    for (size_t i = 0; i < w->n; i++)
        if (w->buckets[i].count > 0 && (w->buckets[i].min < *value || isnan(*value)))
            *value = w->buckets[i].min;
    return true;
}

bool range_last(const struct window *w, const double *args, double *value)
{
    (void)args;
    *value = w->buckets[w->n - 1].last;
    return true;
}

bool range_present(const struct window *w, const double *args, double *value)
{
    (void)w;
    (void)args;
    *value = 1;
    return true;
}

static int compare_numbers(const void *a, const void *b)
{
    double x, y;
    memcpy(&x, a, sizeof x);
    memcpy(&y, b, sizeof y);
    if (isnan(x) || isnan(y))
        return isnan(y) - isnan(x);
    return x < y ? -1 : x > y;
}

double quantile_of(double q, double *values, size_t n)
{
    if (n == 0 || isnan(q))
        return NAN;
    if (q < 0 || q > 1)
        return q < 0 ? -INFINITY : INFINITY;
    qsort(values, n, sizeof *values, compare_numbers);
    double rank = q * (double)(n - 1), below = floor(rank);
    size_t lower = (size_t)below, upper = lower + 1 < n ? lower + 1 : n - 1;
    return values[lower] * (1 - (rank - below)) + values[upper] * (rank - below);
}

bool range_quantile(const struct window *w, const double *args, double *value)
{
    double *values = mem_alloc(w->n * sizeof *values);
    for (size_t i = 0; i < w->n; i++)
        values[i] = w->buckets[i].n_nan > 0 ? NAN : w->buckets[i].sum / w->buckets[i].count;
    *value = quantile_of(*args, values, w->n);
    free(values);
    return true;
}
