#include "base/stats.h"
#include "base/log.h"
#include "base/lower_bound.h"
#include <assert.h>
#include <dirent.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static const usec_t bounds[] = {10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10000, 25000, 50000, 100000,
    250000, 500000, 1000000, 2500000, 5000000, 10000000, 30000000, 60000000};
#define N_BOUNDS (sizeof bounds / sizeof *bounds)

#define MINUTE (60 * USEC_PER_SEC)
#define DAY (1440 * MINUTE)
static const usec_t delay_bounds[] = {USEC_PER_SEC, 10 * USEC_PER_SEC, MINUTE, 5 * MINUTE, 15 * MINUTE,
    60 * MINUTE, 360 * MINUTE, DAY, 2 * DAY, 7 * DAY, 30 * DAY, 365 * DAY};

static const struct scale {
    const usec_t *bounds;
    size_t n;
    usec_t sum_unit; /* unit of the sum; a sum of delays in microseconds could exceed 64 bits */
} latencies = {bounds, N_BOUNDS, 1},
  delays = {delay_bounds, sizeof delay_bounds / sizeof *delay_bounds, USEC_PER_SEC};

struct stats_histogram {
    const struct scale *scale;
    _Atomic uint64_t buckets[N_BOUNDS + 1]; /* the first scale->n + 1 buckets are used */
    _Atomic uint64_t sum;                   /* in scale->sum_unit */
};

enum kind { COUNTER, GAUGE, HISTOGRAM };
static const char *const kind_names[] = {"counter", "gauge", "histogram"};

struct member {
    char *labels; /* "" for none */
    struct stats_counter counter;
    struct stats_histogram histogram;
    stats_gauge_fn *read;
    void *ctx;
    struct member *next;
};
struct family {
    char *name, *help;
    enum kind kind;
    struct member *first, **last;
    struct family *next;
};

struct stats {
    pthread_mutex_t lock; /* protects the families and their members */
    char *daemon;
    usec_t started;
    struct family *first, **last;
};

static double resident_bytes(void *ctx)
{
    (void)ctx;
    FILE *f = fopen("/proc/self/statm", "re");
    unsigned long size, resident;
    if (!f)
        return 0;
    int n = fscanf(f, "%lu %lu", &size, &resident); /* NOLINT(cert-err34-c): the kernel's own numbers */
    fclose(f);
    return n == 2 ? (double)resident * (double)sysconf(_SC_PAGESIZE) : 0;
}

static double open_descriptors(void *ctx)
{
    (void)ctx;
    DIR *d = opendir("/proc/self/fd");
    double n = 0;
    if (!d)
        return 0;
    while (readdir(d))
        n++;
    closedir(d);
    return n - 3; /* ".", ".." and the directory itself */
}

static double logged_errors(void *ctx)
{
    (void)ctx;
    return (double)log_count(LOG_LEVEL_ERROR);
}

static double dropped_lines(void *ctx)
{
    (void)ctx;
    return (double)log_dropped();
}

static double uptime_seconds(void *ctx)
{
    return (double)(clock_monotonic() - ((const struct stats *)ctx)->started) / 1e6;
}

struct stats *stats_new(const char *daemon)
{
    struct stats *s = mem_zalloc(sizeof *s);
    s->daemon = mem_strdup(daemon);
    s->started = clock_monotonic();
    s->last = &s->first;
    pthread_mutex_init(&s->lock, NULL);
    stats_gauge(s, "resident_memory_bytes", NULL, "Resident memory of the process", resident_bytes, s);
    stats_gauge(s, "open_descriptors", NULL, "Open file descriptors of the process", open_descriptors, s);
    stats_gauge(s, "logged_errors", NULL, "Log lines of level error since the start", logged_errors, s);
    stats_gauge(s, "log_lines_dropped", NULL, "Log lines dropped since the start", dropped_lines, s);
    stats_gauge(s, "uptime_seconds", NULL, "Time since the start", uptime_seconds, s);
    return s;
}

static void free_member(struct member *m)
{
    free(m->labels);
    free(m);
}

void stats_free(struct stats **sp)
{
    struct stats *s = *sp;
    if (!s)
        return;
    for (struct family *f = s->first, *next; f; f = next) {
        next = f->next;
        for (struct member *m = f->first, *after; m; m = after) {
            after = m->next;
            free_member(m);
        }
        free(f->name);
        free(f->help);
        free(f);
    }
    pthread_mutex_destroy(&s->lock);
    free(s->daemon);
    free(s);
    *sp = NULL;
}

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);
    return n >= m && strcmp(s + n - m, end) == 0;
}

static struct family *family_of(struct stats *s, const char *name, enum kind kind, const char *help)
{
    bool is_total = ends_with(name, "_total"), is_time = ends_with(name, "_seconds");
    assert((kind == COUNTER) == is_total && (kind != HISTOGRAM || is_time));
    (void)is_total;
    (void)is_time;
    for (struct family *f = s->first; f; f = f->next)
        if (strcmp(f->name, name) == 0) {
            assert(f->kind == kind);
            return f;
        }
    struct family *f = mem_zalloc(sizeof *f);
    f->name = mem_strdup(name);
    f->help = mem_strdup(help);
    f->kind = kind;
    f->last = &f->first;
    *s->last = f;
    s->last = &f->next;
    return f;
}

static struct member *member_of(struct family *f, const char *labels)
{
    if (!labels)
        labels = "";
    for (struct member *m = f->first; m; m = m->next)
        if (strcmp(m->labels, labels) == 0)
            return m;
    struct member *m = mem_zalloc(sizeof *m);
    m->labels = mem_strdup(labels);
    *f->last = m;
    f->last = &m->next;
    return m;
}

struct stats_counter *stats_counter(struct stats *s, const char *name, const char *labels, const char *help)
{
    pthread_mutex_lock(&s->lock);
    struct member *m = member_of(family_of(s, name, COUNTER, help), labels);
    pthread_mutex_unlock(&s->lock);
    return &m->counter;
}

static struct stats_histogram *histogram(
    struct stats *s, const char *name, const char *labels, const char *help, const struct scale *scale)
{
    pthread_mutex_lock(&s->lock);
    struct stats_histogram *h = &member_of(family_of(s, name, HISTOGRAM, help), labels)->histogram;
    if (!h->scale) /* set only once, because other threads may observe */
        h->scale = scale;
    pthread_mutex_unlock(&s->lock);
    return h;
}

struct stats_histogram *stats_histogram(
    struct stats *s, const char *name, const char *labels, const char *help)
{
    return histogram(s, name, labels, help, &latencies);
}

struct stats_histogram *stats_delay_histogram(
    struct stats *s, const char *name, const char *labels, const char *help)
{
    return histogram(s, name, labels, help, &delays);
}

void stats_gauge(
    struct stats *s, const char *name, const char *labels, const char *help, stats_gauge_fn *read, void *ctx)
{
    enum kind kind = ends_with(name, "_total") ? COUNTER : GAUGE;
    pthread_mutex_lock(&s->lock);
    struct member *m = member_of(family_of(s, name, kind, help), labels);
    m->read = read;
    m->ctx = ctx;
    pthread_mutex_unlock(&s->lock);
}

void stats_gauges(struct stats *s, const struct stats_row *rows, const char *labels, void *ctx)
{
    for (const struct stats_row *r = rows; r->name; r++)
        stats_gauge(s, r->name, labels, r->help, r->read, ctx);
}

void stats_remove_gauges(struct stats *s, const void *ctx)
{
    pthread_mutex_lock(&s->lock);
    for (struct family *f = s->first; f; f = f->next) {
        struct member **at = &f->first;
        while (*at) {
            struct member *m = *at;
            if (m->read && m->ctx == ctx) {
                *at = m->next;
                free_member(m);
            } else {
                at = &m->next;
            }
        }
        f->last = at;
    }
    pthread_mutex_unlock(&s->lock);
}

void stats_observe(struct stats_histogram *h, usec_t took)
{
    const struct scale *scale = h->scale;
    size_t bucket = LOWER_BOUND(i, 0, scale->n, scale->bounds[i] < took);
    atomic_fetch_add_explicit(&h->buckets[bucket], 1, memory_order_relaxed);
    atomic_fetch_add_explicit(
        &h->sum, took > 0 ? (uint64_t)took / (uint64_t)scale->sum_unit : 0, memory_order_relaxed);
}

uint64_t stats_observations(const struct stats_histogram *h)
{
    uint64_t n = 0;
    for (size_t i = 0; i <= h->scale->n; i++)
        n += atomic_load_explicit(&h->buckets[i], memory_order_relaxed);
    return n;
}

usec_t stats_mean(const struct stats_histogram *h)
{
    uint64_t n = stats_observations(h);
    uint64_t sum = atomic_load_explicit(&h->sum, memory_order_relaxed);
    return n > 0 ? (usec_t)(sum / n) * h->scale->sum_unit : 0;
}

usec_t stats_quantile(const struct stats_histogram *h, double q)
{
    uint64_t all = stats_observations(h), n = 0;
    for (size_t i = 0; i < h->scale->n; i++) {
        n += atomic_load_explicit(&h->buckets[i], memory_order_relaxed);
        if (all > 0 && (double)n >= q * (double)all)
            return h->scale->bounds[i];
    }
    return all > 0 ? h->scale->bounds[h->scale->n - 1] : 0;
}

static void metric_line(const struct stats *s, const char *name, const char *suffix, const char *labels,
    const char *more, struct buf *out)
{
    bool both = *labels != '\0' && *more != '\0', any = *labels != '\0' || *more != '\0';
    buf_printf(out, "millrace_%s_%s%s", s->daemon, name, suffix);
    if (any)
        buf_printf(out, "{%s%s%s}", labels, both ? "," : "", more);
    buf_append_char(out, ' ');
}

static void print_histogram(
    const struct stats *s, const struct family *f, const struct member *m, struct buf *out)
{
    unsigned long long n = 0;
    char le[40];
    const struct scale *scale = m->histogram.scale;
    for (size_t i = 0; i <= scale->n; i++) {
        n += atomic_load_explicit(&m->histogram.buckets[i], memory_order_relaxed);
        if (i < scale->n)
            snprintf(le, sizeof le, "le=\"%.9g\"", (double)scale->bounds[i] / 1e6);
        metric_line(s, f->name, "_bucket", m->labels, i < scale->n ? le : "le=\"+Inf\"", out);
        buf_printf(out, "%llu\n", n);
    }
    metric_line(s, f->name, "_sum", m->labels, "", out);
    double sum = (double)atomic_load_explicit(&m->histogram.sum, memory_order_relaxed);
    buf_printf(out, "%.6f\n", sum * (double)scale->sum_unit / 1e6);
    metric_line(s, f->name, "_count", m->labels, "", out);
    buf_printf(out, "%llu\n", n);
}

/* Appends the value of a metric; the value of a histogram is its count and its quantiles. */
static void append_value(const struct family *f, const struct member *m, struct buf *out)
{
    static const double quantiles[] = {0.5, 0.9, 0.99};
    static const char *const names[] = {"p50_ms", "p90_ms", "p99_ms"};
    if (m->read) {
        double x = m->read(m->ctx);
        if (!isfinite(x))
            x = 0;
        buf_printf(out, x == floor(x) && fabs(x) < 9e15 ? "%.0f" : "%.9g", x);
    } else if (f->kind != HISTOGRAM) {
        buf_append_u64(out, stats_read(&m->counter));
    } else {
        buf_printf(out, "{\"count\":%llu", (unsigned long long)stats_observations(&m->histogram));
        for (int i = 0; i < 3; i++)
            buf_printf(
                out, ",\"%s\":%g", names[i], (double)stats_quantile(&m->histogram, quantiles[i]) / 1e3);
        buf_append_char(out, '}');
    }
}

void stats_print_metrics(struct stats *s, struct buf *out)
{
    pthread_mutex_lock(&s->lock);
    for (const struct family *f = s->first; f; f = f->next) {
        if (f->first)
            buf_printf(out, "# HELP millrace_%s_%s %s\n# TYPE millrace_%s_%s %s\n", s->daemon, f->name,
                f->help, s->daemon, f->name, kind_names[f->kind]);
        for (const struct member *m = f->first; m; m = m->next) {
            if (f->kind == HISTOGRAM) {
                if (stats_observations(&m->histogram) > 0)
                    print_histogram(s, f, m, out);
                continue;
            }
            metric_line(s, f->name, "", m->labels, "", out);
            append_value(f, m, out);
            buf_append_char(out, '\n');
        }
    }
    buf_printf(out,
        "# HELP millrace_%s_build_info Version of the program\n# TYPE millrace_%s_build_info gauge\n"
        "millrace_%s_build_info{version=\"%s\"} 1\n",
        s->daemon, s->daemon, s->daemon, MILLRACE_VERSION);
    pthread_mutex_unlock(&s->lock);
}

void stats_print_text(struct stats *s, struct buf *out)
{
    pthread_mutex_lock(&s->lock);
    for (const struct family *f = s->first; f; f = f->next)
        for (const struct member *m = f->first; m; m = m->next) {
            buf_append_str(out, f->name);
            if (*m->labels != '\0')
                buf_printf(out, "{%s}", m->labels);
            buf_append_str(out, ": ");
            append_value(f, m, out);
            buf_append_char(out, '\n');
        }
    buf_printf(out, "version: %s\n", MILLRACE_VERSION);
    pthread_mutex_unlock(&s->lock);
}

void stats_print_json_members(struct stats *s, struct buf *out)
{
    pthread_mutex_lock(&s->lock);
    for (const struct family *f = s->first; f; f = f->next) {
        if (!f->first)
            continue;
        bool is_plain = *f->first->labels == '\0' && !f->first->next;
        buf_printf(out, "\"%s\":%s", f->name, is_plain ? "" : "{");
        for (const struct member *m = f->first; m; m = m->next) {
            if (!is_plain) {
                buf_append_json(out, bytes_str(m->labels));
                buf_append_char(out, ':');
            }
            append_value(f, m, out);
            if (m->next)
                buf_append_char(out, ',');
        }
        buf_append_str(out, is_plain ? "," : "},");
    }
    buf_printf(out, "\"version\":\"%s\"", MILLRACE_VERSION);
    pthread_mutex_unlock(&s->lock);
}
