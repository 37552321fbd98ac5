/* The store against a model that keeps every line: random samples, cuts, kills, merges and queries. */
#include "support/cm.h"
#include "support/test_dir.h"

#include "metricdb/store/sample_store.h"

#include <linux/limits.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define RESOLUTION 10000
#define SERIES 12
#define DAY INT64_C(86400000)
#define BEGIN INT64_C(1700000000000)

struct line {
    int series;
    int64_t at;
    double value;
    bool is_stale;
};

/* The stream: line i has the offset i. */
static struct line *lines;
static size_t n_lines, lines_cap;
static char names[SERIES][32], jobs[SERIES][32];
static unsigned rounds = 60;

static unsigned rnd(unsigned below)
{
    return (unsigned)random() % below;
}

static const char *new_dir(void)
{
    static char dir[PATH_MAX];
    make_test_dir(dir, sizeof dir);
    return dir;
}

static struct sample_store_config config_of(const char *dir)
{
    return (struct sample_store_config){.dir = dir,
        .resolution = RESOLUTION,
        .block_every = 600 * USEC_PER_SEC,
        .open_bytes = 1 << 30,
        .series_max = 1000,
        .fan_in = 2};
}

static struct sample_store *open_store(const struct sample_store_config *config)
{
    struct error error = {0};
    struct sample_store *s = sample_store_open(config, &error);
    if (!s)
        fail_msg("%s", error.text);
    return s;
}

static size_t labels_of(int series, struct metric_label labels[3])
{
    labels[0] = (struct metric_label){BYTES_LITERAL("__name__"), bytes_str(names[series])};
    labels[1] = (struct metric_label){BYTES_LITERAL("job"), bytes_str(jobs[series])};
    labels[2] = (struct metric_label){BYTES_LITERAL("x"), BYTES_LITERAL("same")};
    return series % 3 == 0 ? 2 : 3;
}

static void name_series(void)
{
    for (int i = 0; i < SERIES; i++) {
        snprintf(names[i], sizeof names[i], "metric_%d", i / 4);
        snprintf(jobs[i], sizeof jobs[i], "job-%d", i);
    }
}

static struct stream_cursor cursor_at(size_t offset)
{
    return (struct stream_cursor){"0123456789abcdef0123456789abcdef", "0123456789abcdef01234567", offset};
}

/* Adds the lines up to `to` that the store does not have. */
static void follow(struct sample_store *s, size_t to)
{
    size_t at = sample_store_cursor(s)->offset;
    struct stream_cursor cursor = cursor_at(to);
    assert_true(at <= to);
    sample_store_begin(s);
    for (; at < to; at++) {
        struct metric_label labels[3];
        size_t n = labels_of(lines[at].series, labels);
        enum sample_result r = sample_store_add(
            s, &(struct sample){labels, n, lines[at].at, lines[at].value, lines[at].is_stale});
        assert_true(r == SAMPLE_STORED || r == SAMPLE_NOT_LATER);
    }
    sample_store_end(s, &cursor);
}

static void cut(struct sample_store *s)
{
    struct error error;
    if (sample_store_cut(s, 1, 0, &error) != 0)
        fail_msg("%s", error.text);
}

/* The buckets that the first `n` lines give for a series. */
static size_t expect(int series, size_t n, int64_t width, struct sample_bucket *out)
{
    int64_t last = 0;
    double number = 0;
    bool has_number = false;
    size_t n_out = 0;
    for (size_t i = 0; i < n; i++) {
        const struct line *l = &lines[i];
        if (l->series != series || l->at <= last)
            continue;
        last = l->at;
        int64_t start = l->at / width * width;
        if (n_out == 0 || out[n_out - 1].start != start)
            out[n_out++] = (struct sample_bucket){.start = start, .width = (uint32_t)width};
        struct sample_bucket *b = &out[n_out - 1];
        b->stale_at = l->is_stale ? l->at : 0;
        if (l->is_stale)
            continue;
        if (b->count == 0 && b->n_nan == 0)
            b->first = l->at;
        b->last_at = l->at;
        b->last = l->value;
        if (isnan(l->value)) {
            b->n_nan++;
            continue;
        }
        b->min = b->count == 0 ? l->value : fmin(b->min, l->value);
        b->max = b->count == 0 ? l->value : fmax(b->max, l->value);
        b->sum += l->value;
        b->count++;
        if (has_number)
            b->rise += l->value >= number ? l->value - number : l->value;
        number = l->value;
        has_number = true;
    }
    return n_out;
}

static bool is_same(double a, double b)
{
    return a == b || (isnan(a) && isnan(b));
}

static void check_bucket(const struct sample_bucket *a, const struct sample_bucket *b)
{
    assert_int_equal(a->start, b->start);
    assert_int_equal(a->width, b->width);
    assert_int_equal(a->count, b->count);
    assert_int_equal(a->n_nan, b->n_nan);
    assert_int_equal(a->first, b->first);
    assert_int_equal(a->last_at, b->last_at);
    assert_int_equal(a->stale_at, b->stale_at);
    assert_true(is_same(a->last, b->last));
    assert_true(is_same(a->sum, b->sum) && is_same(a->min, b->min) && is_same(a->max, b->max) &&
                is_same(a->rise, b->rise));
}

static const struct metric_series *find(const struct metric_selection *selection, int series)
{
    struct metric_label labels[3];
    size_t n = labels_of(series, labels);
    for (size_t i = 0; i < selection->n_series; i++) {
        const struct metric_series *m = &selection->series[i];
        bool same = m->n_labels == n;
        for (size_t k = 0; same && k < n; k++)
            same = bytes_equal(m->labels[k].name, labels[k].name) &&
                   bytes_equal(m->labels[k].value, labels[k].value);
        if (same)
            return m;
    }
    return NULL;
}

static void check_series(const struct metric_selection *selection, int series, bool matches, size_t n,
    const struct metric_request *r, int64_t width)
{
    struct sample_bucket *all = mem_alloc((n + 1) * sizeof *all);
    size_t n_all = matches ? expect(series, n, width, all) : 0, given = 0, wanted = 0;
    const struct metric_series *m = find(selection, series);
    for (size_t i = 0; i < n_all; i++) {
        if (all[i].start + width <= r->from || all[i].start > r->to)
            continue;
        wanted++;
        if (r->labels_only)
            continue;
        assert_non_null(m);
        assert_true(given < m->n_buckets);
        check_bucket(&m->buckets[given++], &all[i]);
    }
    if (r->labels_only)
        assert_true(wanted == 0 || m);
    else
        assert_true(m ? m->n_buckets == given && given > 0 : wanted == 0);
    free(all);
}

/* The widths of the store, in the order in which a random query takes them. */
static const int64_t widths[] = {RESOLUTION, 60000, 600000, 3600000, DAY};

static void check(struct sample_store *s, size_t n)
{
    static const char *const patterns[] = {
        "job-.*", "job-1", "job-[13579]", "job-1|job-3|", "", ".*", "ob-1"};
    int64_t width = widths[rnd(5)];
    int64_t end = n > 0 ? lines[n - 1].at : BEGIN;
    unsigned which = rnd(7);
    struct label_matcher matchers[2] = {
        {MATCH_REGEX, BYTES_LITERAL("job"), bytes_str(patterns[which])},
        {MATCH_EQUAL, BYTES_LITERAL("__name__"), bytes_str(names[rnd(SERIES)])},
    };
    matchers[0].type = rnd(2) ? MATCH_REGEX : MATCH_NOT_REGEX;
    matchers[1].type = rnd(2) ? MATCH_EQUAL : MATCH_NOT_EQUAL;
    struct metric_request request = {.matchers = matchers,
        .n_matchers = rnd(3),
        .max_width = width + rnd(2) * 1000,
        .labels_only = rnd(8) == 0,
        .max_series = SERIES,
        .max_buckets = n + 1};
    request.from = rnd(3) ? 0 : BEGIN + (int64_t)rnd((unsigned)((end - BEGIN) / 1000 + 1)) * 1000;
    request.to = rnd(3) ? end : request.from + (int64_t)rnd(100000) * 1000;
    struct metric_selection selection;
    struct error error = {0};
    struct metric_source source = sample_store_source(s);
    if (source.select(source.context, &request, &selection, &error) != METRIC_OK)
        fail_msg("%s", error.text);
    for (int i = 0; i < SERIES; i++) {
        static const unsigned odd = 2;
        bool job = which == 0 || which == 5 || (which == 1 && i == 1) ||
                   (which == 2 && i % odd == 1 && i < 10) || (which == 3 && (i == 1 || i == 3));
        bool name = strcmp(names[i], matchers[1].value.ptr) == 0;
        bool matches = (request.n_matchers < 1 || job == (matchers[0].type == MATCH_REGEX)) &&
                       (request.n_matchers < 2 || name == (matchers[1].type == MATCH_EQUAL));
        check_series(&selection, i, matches, n, &request, width);
    }
    metric_selection_free(&selection);
}

static void add_lines(unsigned n, int64_t *now, int64_t step)
{
    static double values[SERIES];
    for (unsigned i = 0; i < n; i++) {
        int series = (int)rnd(SERIES);
        *now += rnd((unsigned)step);
        struct line *l = ARRAY_ADD(lines, n_lines, lines_cap);
        values[series] = rnd(20) == 0 ? rnd(5) : values[series] + rnd(10) - (double)(series % 2) * 3;
        *l = (struct line){series, *now - (rnd(10) == 0 ? rnd(20000) : 0), values[series], rnd(30) == 0};
        if (rnd(30) == 0)
            l->value = NAN;
        if (rnd(300) == 0)
            l->value = rnd(2) ? -INFINITY : 1e300;
    }
}

static void test_model(void **state)
{
    (void)state;
    n_lines = 0;
    unsigned seed = seeded();
    const char *dir = new_dir();
    struct sample_store_config config = config_of(dir);
    struct sample_store *s = open_store(&config);
    int64_t now = BEGIN, step = 1 + (seed % 3 == 0 ? 2000 : seed % 3 == 1 ? 30000 : 400000);
    for (unsigned i = 0; i < rounds; i++) {
        add_lines(1 + rnd(300), &now, step);
        follow(s,
            sample_store_cursor(s)->offset + rnd((unsigned)(n_lines - sample_store_cursor(s)->offset) + 1));
        if (rnd(3) > 0)
            cut(s);
        if (rnd(2))
            sample_store_settle(s);
        if (rnd(5) == 0) {
            sample_store_close(&s);
            s = open_store(&config);
        }
        for (int k = 0; k < 4; k++)
            check(s, sample_store_cursor(s)->offset);
    }
    follow(s, n_lines);
    struct sample_store_stats stats;
    sample_store_settle(s);
    sample_store_stats(s, &stats);
    struct error error;
    if (sample_store_trouble(s, &error))
        fail_msg("%s", error.text);
    assert_true(rounds < 60 || (stats.widths[0].blocks > 0 && stats.widths[4].blocks > 0));
    sample_store_close(&s);
}

/* Every bucket has all samples of its span, however wide it is, and no bucket is missing. Buckets after
 * `fine_from` are not wider than the query wants. */
static void check_kept(struct sample_store *s, size_t n, int64_t max_width, int64_t fine_from)
{
    struct metric_request request = {
        .to = INT64_MAX, .max_width = max_width, .max_series = SERIES, .max_buckets = n};
    struct metric_selection selection;
    struct metric_source source = sample_store_source(s);
    struct error error;
    struct sample_bucket *all = mem_alloc((n + 1) * sizeof *all);
    if (source.select(source.context, &request, &selection, &error) != METRIC_OK)
        fail_msg("%s", error.text);
    for (int series = 0; series < SERIES; series++) {
        const struct metric_series *m = find(&selection, series);
        uint64_t wanted = 0, given = 0;
        size_t n_all = expect(series, n, RESOLUTION, all);
        for (size_t i = 0; i < n_all; i++)
            wanted += all[i].count;
        for (size_t i = 0; m && i < m->n_buckets; i++) {
            const struct sample_bucket *b = &m->buckets[i];
            n_all = expect(series, n, b->width, all);
            size_t k = 0;
            while (k < n_all && all[k].start != b->start)
                k++;
            assert_true(k < n_all);
            check_bucket(b, &all[k]);
            assert_true(b->width <= max_width || b->start < fine_from || b->start > BEGIN + 300 * DAY);
            assert_true(i == 0 || b[-1].start + b[-1].width <= b->start);
            given += b->count;
        }
        assert_int_equal(given, wanted);
    }
    metric_selection_free(&selection);
    free(all);
}

static void test_retention(void **state)
{
    (void)state;
    struct sample_store_config config = config_of(new_dir());
    config.keep = DAY / 4;
    config.keep_minutes = DAY / 2;
    struct sample_store *s = open_store(&config);
    struct sample_store_stats stats, before;
    struct error error;
    int64_t now = BEGIN;
    n_lines = 0;
    for (int i = 0; i < 150; i++) {
        add_lines(40, &now, 60000);
        if (i == 3) /* series 0 has a sample of the future, and no other sample from then on */
            *ARRAY_ADD(lines, n_lines, lines_cap) = (struct line){0, BEGIN + 400 * DAY, 1, false};
        follow(s, n_lines);
        assert_int_equal(sample_store_cut(s, 1, now * 1000, &error), 0);
        sample_store_settle(s);
        if (rnd(4) == 0)
            check_kept(s, n_lines, widths[rnd(5)], now - config.keep);
    }
    if (sample_store_trouble(s, &error))
        fail_msg("%s", error.text);
    sample_store_stats(s, &stats);
    assert_true(stats.deleted > 0);
    assert_true(stats.widths[0].buckets < stats.widths[1].buckets);
    sample_store_close(&s);
    s = open_store(&config);
    sample_store_stats(s, &before);
    assert_memory_equal(before.widths, stats.widths, sizeof stats.widths);
    for (int w = 0; w < 5; w++)
        check_kept(s, n_lines, widths[w], now - config.keep);
    /* Of all that is old, only the newest block stays. */
    config.keep_wide = DAY / 2;
    sample_store_close(&s);
    s = open_store(&config);
    add_lines(1, &now, 10);
    follow(s, n_lines);
    assert_int_equal(sample_store_cut(s, 1, (now + 10 * DAY) * 1000, &error), 0);
    sample_store_settle(s);
    sample_store_stats(s, &stats);
    assert_int_equal(stats.widths[0].blocks, 1);
    assert_int_equal(stats.widths[1].blocks + stats.widths[4].blocks, 0);
    sample_store_close(&s);
}

/* The block of a cut without samples, which may be a cut of dropped samples, is as old as its cut. */
static void test_retention_of_empty_blocks(void **state)
{
    (void)state;
    struct sample_store_config config = config_of(new_dir());
    config.keep = config.keep_minutes = DAY;
    config.keep_wide = 400 * DAY;
    struct sample_store *s = open_store(&config);
    struct error error;
    int64_t now = BEGIN;
    n_lines = 0;
    for (int i = 0; i < 30; i++) {
        if (i < 4 || i > 7)
            add_lines(40, &now, 10000);
        now += i == 4 ? 3 * DAY : 1000;
        follow(s, n_lines);
        assert_int_equal(sample_store_cut(s, 1, now * 1000, &error), 0);
        sample_store_settle(s);
    }
    sample_store_close(&s);
    s = open_store(&config);
    check_kept(s, n_lines, DAY, now);
    sample_store_close(&s);
}

static enum sample_result add_one(
    struct sample_store *s, const struct metric_label *labels, size_t n, int64_t at, double value)
{
    struct stream_cursor cursor = cursor_at(sample_store_cursor(s)->offset + 1);
    sample_store_begin(s);
    enum sample_result r = sample_store_add(s, &(struct sample){labels, n, at, value, false});
    sample_store_end(s, &cursor);
    return r;
}

static enum metric_result query(struct sample_store *s, const struct metric_request *request,
    struct metric_selection *selection, struct error *error)
{
    struct metric_source source = sample_store_source(s);
    return source.select(source.context, request, selection, error);
}

/* The rise of the only series' bucket, from the last: 0. */
static double rise_of(struct sample_store *s, size_t from_last)
{
    struct metric_request request = {.to = INT64_MAX, .max_series = 10, .max_buckets = 1000};
    struct metric_selection selection;
    struct error error;
    assert_int_equal(query(s, &request, &selection, &error), METRIC_OK);
    assert_int_equal(selection.n_series, 1);
    double rise = selection.series[0].buckets[selection.series[0].n_buckets - 1 - from_last].rise;
    metric_selection_free(&selection);
    return rise;
}

static void test_idle_series_are_forgotten(void **state)
{
    (void)state;
    struct sample_store_config config = config_of(new_dir());
    struct sample_store *s = open_store(&config);
    struct metric_label label = {BYTES_LITERAL("__name__"), BYTES_LITERAL("a")},
                        other = {label.name, BYTES_LITERAL("b")};
    struct error error;
    struct sample_store_stats stats;
    int64_t at = BEGIN;
    assert_int_equal(add_one(s, &label, 1, at, 5), SAMPLE_STORED);
    cut(s);
    for (int round = 0; round < 2; round++) {
        for (int i = round; i < SAMPLE_STORE_IDLE_CUTS; i++) {
            assert_int_equal(sample_store_cut(s, 1, (at + DAY) * 1000, &error), 0);
            sample_store_close(&s);
            s = open_store(&config);
            sample_store_stats(s, &stats);
            assert_int_equal(stats.series, round == 1 || i < SAMPLE_STORE_IDLE_CUTS - 1);
        }
        if (round == 0) {
            assert_int_equal(add_one(s, &label, 1, at, 5), SAMPLE_NOT_LATER);
            assert_int_equal(add_one(s, &other, 1, at, 5), SAMPLE_NOT_LATER);
        }
        assert_int_equal(add_one(s, &label, 1, at += 20000, 7), SAMPLE_STORED);
        assert_true(rise_of(s, 0) == (round == 0 ? 0 : 7));
        cut(s);
        assert_int_equal(add_one(s, &label, 1, at, 7), SAMPLE_NOT_LATER);
        assert_int_equal(add_one(s, &label, 1, at += 20000, 9), SAMPLE_STORED);
        assert_true(rise_of(s, 0) == 2);
        cut(s);
    }
    cut(s);
    sample_store_settle(s);
    assert_true(rise_of(s, 0) == 2 && rise_of(s, 1) == 7 && rise_of(s, 2) == 2 && rise_of(s, 3) == 0 &&
                rise_of(s, 4) == 0);
    sample_store_close(&s);
}

/* A sample now and then, with a cut after each second. */
static void test_frequent_cuts_forget_no_series(void **state)
{
    (void)state;
    struct sample_store_config config = config_of(new_dir());
    struct sample_store *s = open_store(&config);
    struct metric_label label = {BYTES_LITERAL("__name__"), BYTES_LITERAL("a")};
    struct error error;
    int64_t at = BEGIN;
    for (int i = 0; i < 3; i++, at += 60000) {
        assert_int_equal(add_one(s, &label, 1, at, 5 + i), SAMPLE_STORED);
        for (int second = 0; second < 60; second++)
            assert_int_equal(sample_store_cut(s, 1, (at + second * 1000) * 1000, &error), 0);
        assert_true(rise_of(s, 0) == (i > 0));
    }
    sample_store_close(&s);
}

static void test_samples_are_refused(void **state)
{
    (void)state;
    struct sample_store_config config = config_of(new_dir());
    config.series_max = 2;
    struct sample_store *s = open_store(&config);
    struct metric_label many[SAMPLE_LABELS_MAX + 1];
    char name[SAMPLE_LABELS_MAX + 1][8], *large = mem_zalloc(SAMPLE_LABEL_BYTES_MAX);
    for (int i = 0; i <= SAMPLE_LABELS_MAX; i++) {
        snprintf(name[i], sizeof name[i], "n%03d", SAMPLE_LABELS_MAX - i);
        many[i] = (struct metric_label){bytes_str(name[i]), BYTES_LITERAL("v")};
    }
    struct metric_label pair[] = {{BYTES_LITERAL("b"), BYTES_LITERAL("1")},
        {BYTES_LITERAL("a"), BYTES_LITERAL("2")}, {BYTES_LITERAL("c"), BYTES_NONE}};
    struct metric_label sorted[] = {pair[1], pair[0]}, twice[] = {pair[0], pair[1], pair[0]};
    struct metric_label unnamed = {BYTES_NONE, BYTES_LITERAL("1")},
                        wide = {BYTES_LITERAL("a"), {large, SAMPLE_LABEL_BYTES_MAX}};
    assert_int_equal(add_one(s, many, SAMPLE_LABELS_MAX + 1, BEGIN, 1), SAMPLE_BAD_LABELS);
    assert_int_equal(add_one(s, twice, 3, BEGIN, 1), SAMPLE_BAD_LABELS);
    assert_int_equal(add_one(s, &unnamed, 1, BEGIN, 1), SAMPLE_BAD_LABELS);
    assert_int_equal(add_one(s, &wide, 1, BEGIN, 1), SAMPLE_BAD_LABELS);
    assert_int_equal(add_one(s, pair + 2, 1, BEGIN, 1), SAMPLE_BAD_LABELS);
    assert_int_equal(add_one(s, pair, 3, 0, 1), SAMPLE_BAD_TIME);
    assert_int_equal(add_one(s, pair, 3, INT64_C(253402300800000), 1), SAMPLE_BAD_TIME);
    assert_int_equal(add_one(s, pair, 3, BEGIN, 1), SAMPLE_STORED);
    assert_int_equal(add_one(s, sorted, 2, BEGIN, 1), SAMPLE_NOT_LATER);
    assert_int_equal(add_one(s, many, SAMPLE_LABELS_MAX, BEGIN, 1), SAMPLE_STORED);
    assert_int_equal(add_one(s, sorted, 1, BEGIN, 1), SAMPLE_TOO_MANY);
    cut(s);
    sample_store_close(&s);
    s = open_store(&config);
    assert_int_equal(add_one(s, sorted, 2, BEGIN, 1), SAMPLE_NOT_LATER);
    assert_int_equal(add_one(s, many, SAMPLE_LABELS_MAX, BEGIN + 1, 1), SAMPLE_STORED);
    sample_store_close(&s);
    free(large);
}

static void test_queries_are_refused(void **state)
{
    (void)state;
    struct sample_store_config config = config_of(new_dir());
    struct sample_store *s = open_store(&config);
    struct metric_selection selection;
    struct error error;
    struct label_matcher matcher = {MATCH_REGEX, BYTES_LITERAL("job"), BYTES_NONE};
    struct metric_request request = {
        .matchers = &matcher, .to = INT64_MAX, .max_series = SERIES, .max_buckets = 100000};
    int64_t now = BEGIN;
    n_lines = 0;
    add_lines(500, &now, 10000);
    for (int i = 0; i < 2; i++) {
        follow(s, n_lines);
        request.n_matchers = 0;
        assert_int_equal(query(s, &request, &selection, &error), METRIC_OK);
        metric_selection_free(&selection);
        request.max_series = SERIES - 1;
        assert_int_equal(query(s, &request, &selection, &error), METRIC_TOO_MANY);
        request.max_series = SERIES;
        request.max_buckets = 20;
        assert_int_equal(query(s, &request, &selection, &error), METRIC_TOO_MANY);
        request.max_buckets = 100000;
        request.n_matchers = 1;
        const char *const bad[] = {"(", "a)|(?:b", "(*NO_JIT)a", "\xff"};
        for (int k = 0; k < 4; k++) {
            matcher.value = bytes_str(bad[k]);
            assert_int_equal(query(s, &request, &selection, &error), METRIC_BAD_PATTERN);
        }
        cut(s);
    }
    sample_store_close(&s);
}

static bool stops_at_third(void *arg)
{
    return ++*(int *)arg == 3;
}

static void test_a_query_that_is_stopped(void **state)
{
    (void)state;
    struct sample_store_config config = config_of(new_dir());
    struct sample_store *s = open_store(&config);
    struct metric_selection selection;
    struct error error;
    int64_t now = BEGIN;
    n_lines = 0;
    add_lines(500, &now, 10000);
    follow(s, n_lines);
    cut(s);
    int polls = 0;
    struct metric_request request = {.to = INT64_MAX,
        .max_series = SERIES,
        .max_buckets = 100000,
        .stop = stops_at_third,
        .stop_context = &polls};
    assert_int_equal(query(s, &request, &selection, &error), METRIC_STOPPED);
    assert_int_equal(polls, 3);
    sample_store_close(&s);
}

/* The steps of a pattern are limited for all values together. */
static void test_slow_patterns_are_refused(void **state)
{
    (void)state;
    struct sample_store_config config = config_of(new_dir());
    config.series_max = 10000;
    struct sample_store *s = open_store(&config);
    struct label_matcher matcher = {MATCH_REGEX, BYTES_LITERAL("x"), BYTES_LITERAL("(a+)+[0-9]*")};
    struct metric_request request = {
        .matchers = &matcher, .n_matchers = 1, .to = INT64_MAX, .max_series = 10000, .max_buckets = 10000};
    struct metric_selection selection;
    struct error error;
    char text[32];
    for (int i = 0; i < 4000; i++) {
        snprintf(text, sizeof text, "aaaaaaaaaaaa%dx", i);
        struct metric_label label = {BYTES_LITERAL("x"), bytes_str(text)};
        assert_int_equal(add_one(s, &label, 1, BEGIN, 5), SAMPLE_STORED);
        if (i == 9) {
            assert_int_equal(query(s, &request, &selection, &error), METRIC_OK);
            metric_selection_free(&selection);
        }
    }
    assert_int_equal(query(s, &request, &selection, &error), METRIC_BAD_PATTERN);
    cut(s);
    assert_int_equal(query(s, &request, &selection, &error), METRIC_BAD_PATTERN);
    sample_store_close(&s);
}

/* Opening is refused with a text. */
static void refuse(const struct sample_store_config *config, const char *text)
{
    struct error error;
    struct sample_store *s = sample_store_open(config, &error);
    assert_null(s);
    if (!strstr(error.text, text))
        fail_msg("%s", error.text);
}

static void test_directories_are_refused(void **state)
{
    (void)state;
    const char *dir = new_dir();
    struct sample_store_config config = config_of(dir), other = config;
    char path[PATH_MAX + 64];
    int64_t now = BEGIN;
    n_lines = 0;
    struct sample_store *s = open_store(&config);
    refuse(&config, "another process");
    for (int i = 0; i < 4; i++) {
        add_lines(50, &now, 10000);
        follow(s, n_lines);
        cut(s);
        sample_store_settle(s);
    }
    sample_store_close(&s);
    other.resolution = 5000;
    refuse(&other, "the resolution is 5000 ms");
    other.resolution = 7000;
    refuse(&other, "must divide a day");
    other = config;
    other.keep = 2;
    other.keep_minutes = 1;
    refuse(&other, "at least as long");
    /* Without the newest block, the one before has no state. */
    snprintf(path, sizeof path, "%s/10000-0000000003-0000000004.block", dir);
    assert_int_equal(unlink(path), 0);
    snprintf(path, sizeof path, "%s/10000-0000000002-0000000003.block", dir);
    assert_int_equal(unlink(path), 0);
    refuse(&config, "is missing");
    config.accepts_loss = true;
    s = open_store(&config);
    assert_true(sample_store_cursor(s)->offset == 100);
    sample_store_close(&s);
}

static void damage(const char *dir, const char *name)
{
    char path[PATH_MAX + 64];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "r+");
    assert_non_null(f);
    assert_int_equal(fseek(f, 224, SEEK_SET), 0); /* the first piece */
    assert_int_equal(fputc(0xff, f), 0xff);
    assert_int_equal(fclose(f), 0);
}

/* Without the damaged hours, blocks of other widths are merged. */
static void test_a_damaged_block_stops_only_its_merges(void **state)
{
    (void)state;
    const char *dir = new_dir();
    struct sample_store_config config = config_of(dir);
    struct sample_store *s = open_store(&config);
    struct sample_store_stats stats;
    struct error error;
    int64_t now = BEGIN;
    n_lines = 0;
    for (int i = 0; i < 42; i++) {
        add_lines(40, &now, 10000);
        follow(s, n_lines);
        cut(s);
        sample_store_settle(s);
        if (i == 4)
            damage(dir, "3600000-0000000000-0000000004.block");
    }
    assert_true(sample_store_trouble(s, &error));
    assert_non_null(strstr(error.text, "3600000-0000000000-0000000004.block: damaged"));
    sample_store_stats(s, &stats);
    assert_int_equal(stats.widths[0].blocks, 12);
    assert_int_equal(stats.widths[3].blocks, 10);
    assert_int_equal(stats.widths[4].blocks, 2);
    check_kept(s, n_lines, RESOLUTION, 0);
    sample_store_close(&s);
}

static uint64_t count_samples(struct sample_store *s, int64_t max_width)
{
    struct metric_request request = {
        .to = INT64_MAX, .max_width = max_width, .max_series = SERIES, .max_buckets = 100000};
    struct metric_selection selection;
    struct error error;
    uint64_t count = 0;
    assert_int_equal(query(s, &request, &selection, &error), METRIC_OK);
    for (size_t i = 0; i < selection.n_series; i++)
        for (size_t k = 0; k < selection.series[i].n_buckets; k++)
            count += selection.series[i].buckets[k].count;
    metric_selection_free(&selection);
    return count;
}

/* After a loss all series are forgotten, and the store drops samples that are not later than those of other series. */
static void add_ascending_lines(unsigned n, int64_t *now)
{
    add_lines(n, now, 10000);
    for (size_t i = n_lines - n; i < n_lines; i++)
        if (i > 0 && lines[i].at <= lines[i - 1].at)
            lines[i].at = lines[i - 1].at + 1;
    *now = lines[n_lines - 1].at;
}

/* The operator accepts the loss of blocks once. */
static void test_an_accepted_loss(void **state)
{
    (void)state;
    const char *dir = new_dir();
    struct sample_store_config config = config_of(dir), accepting = config;
    struct sample_store *s = open_store(&config);
    char path[PATH_MAX + 64];
    int64_t now = BEGIN;
    accepting.accepts_loss = true;
    n_lines = 0;
    for (int i = 0; i < 40; i++) {
        add_ascending_lines(40, &now);
        follow(s, n_lines);
        cut(s);
        sample_store_settle(s);
        if (i != 6) /* blocks 0 to 3, 4 to 5 and 6 */
            continue;
        sample_store_close(&s);
        snprintf(path, sizeof path, "%s/10000-0000000004-0000000006.block", dir);
        assert_int_equal(unlink(path), 0);
        refuse(&config, "4 to 6 are missing");
        s = open_store(&accepting);
        sample_store_close(&s);
        s = open_store(&config);
    }
    sample_store_close(&s);
    s = open_store(&config);
    struct sample_store_stats stats;
    sample_store_stats(s, &stats);
    assert_int_equal(stats.widths[0].blocks, 12);
    assert_int_equal(stats.widths[4].blocks, 2);
    uint64_t count = count_samples(s, 0);
    assert_int_equal(count_samples(s, DAY), count);
    sample_store_close(&s);
    /* All but the first of the finest blocks are lost. Wider blocks have the samples, and the cursor after them. */
    for (int from = 4; from < 40; from++)
        for (int to = from + 1; to <= 40; to++) {
            snprintf(path, sizeof path, "%s/10000-%010d-%010d.block", dir, from, to);
            unlink(path);
        }
    refuse(&config, "blocks after");
    s = open_store(&accepting);
    for (int i = 0; i < 2; i++) {
        follow(s, n_lines);
        assert_int_equal(count_samples(s, DAY), count);
        cut(s);
        sample_store_close(&s);
        s = open_store(&config);
    }
    sample_store_close(&s);
}

#define BATCH 7

struct reader {
    pthread_t thread;
    struct sample_store *s;
    atomic_bool *stop;
    uint64_t queries;
};

/* Each query sees whole batches, and never fewer than the query before. */
static void *read_counts(void *arg)
{
    struct reader *r = arg;
    struct metric_request request = {.to = INT64_MAX, .max_series = SERIES, .max_buckets = 1 << 20};
    for (uint64_t before = 0; !atomic_load(r->stop); r->queries++) {
        struct metric_selection selection;
        struct error error;
        uint64_t count = 0;
        request.max_width = widths[r->queries % 5];
        if (query(r->s, &request, &selection, &error) != METRIC_OK)
            fail_msg("%s", error.text);
        for (size_t i = 0; i < selection.n_series; i++)
            for (size_t k = 0; k < selection.series[i].n_buckets; k++)
                count += selection.series[i].buckets[k].count;
        metric_selection_free(&selection);
        assert_true(count >= before && count % BATCH == 0);
        before = count;
    }
    return NULL;
}

static void test_queries_beside_cuts_and_merges(void **state)
{
    (void)state;
    struct sample_store_config config = config_of(new_dir());
    struct sample_store *s = open_store(&config);
    atomic_bool stop = false;
    struct reader readers[2];
    n_lines = 0;
    for (int i = 0; i < 2; i++) {
        readers[i] = (struct reader){.s = s, .stop = &stop};
        assert_int_equal(pthread_create(&readers[i].thread, NULL, read_counts, &readers[i]), 0);
    }
    for (int i = 0; i < 300; i++) {
        for (int k = 0; k < BATCH; k++)
            *ARRAY_ADD(lines, n_lines, lines_cap) =
                (struct line){k, BEGIN + (int64_t)n_lines * 30000, i, false};
        follow(s, n_lines);
        if (i % 4 == 3)
            cut(s);
        if (i % 40 == 39)
            sample_store_settle(s);
    }
    check_kept(s, n_lines, RESOLUTION, 0);
    atomic_store(&stop, true);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pthread_join(readers[i].thread, NULL), 0);
        assert_true(readers[i].queries > 0);
    }
    sample_store_close(&s);
}

static void test_cuts_are_due(void **state)
{
    (void)state;
    struct sample_store_config config = config_of(new_dir());
    config.open_bytes = 2000;
    struct sample_store *s = open_store(&config);
    struct metric_label label = {BYTES_LITERAL("__name__"), BYTES_LITERAL("a")};
    struct error error;
    usec_t now = 5 * USEC_PER_SEC;
    assert_false(sample_store_is_cut_due(s, now));
    assert_false(sample_store_is_cut_due(s, now + config.block_every)); /* no lines */
    assert_int_equal(add_one(s, &label, 1, BEGIN, 1), SAMPLE_STORED);
    assert_false(sample_store_is_cut_due(s, now + config.block_every - 1));
    assert_true(sample_store_is_cut_due(s, now + config.block_every));
    assert_int_equal(sample_store_cut(s, now, 0, &error), 0);
    assert_false(sample_store_is_cut_due(s, now + 2 * config.block_every));
    int64_t at = BEGIN;
    while (at < BEGIN + 10000 * INT64_C(100000) && !sample_store_is_cut_due(s, now)) {
        at += 10000;
        assert_int_equal(add_one(s, &label, 1, at, (double)at * 1.1), SAMPLE_STORED);
    }
    assert_in_range((at - BEGIN) / 10000, 50, 1000); /* some 10 bytes for each of these samples */
    /* A cut that failed is due again soon, but not at once. */
    char away[PATH_MAX + 8];
    snprintf(away, sizeof away, "%s.away", config.dir);
    for (int i = 0; i < 2; i++, now += config.block_every) {
        assert_int_equal(rename(config.dir, away), 0);
        assert_int_equal(sample_store_cut(s, now, 0, &error), -1);
        assert_false(sample_store_is_cut_due(s, now + USEC_PER_SEC));
        assert_true(sample_store_is_cut_due(s, now + 10 * USEC_PER_SEC));
        assert_int_equal(rename(away, config.dir), 0);
        assert_int_equal(sample_store_cut(s, now, 0, &error), 0);
        assert_int_equal(add_one(s, &label, 1, at += 10000, 1), SAMPLE_STORED);
        assert_false(sample_store_is_cut_due(s, now + 10 * USEC_PER_SEC));
    }
    sample_store_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_model),
        cmocka_unit_test(test_retention),
        cmocka_unit_test(test_retention_of_empty_blocks),
        cmocka_unit_test(test_idle_series_are_forgotten),
        cmocka_unit_test(test_frequent_cuts_forget_no_series),
        cmocka_unit_test(test_samples_are_refused),
        cmocka_unit_test(test_queries_are_refused),
        cmocka_unit_test(test_a_query_that_is_stopped),
        cmocka_unit_test(test_slow_patterns_are_refused),
        cmocka_unit_test(test_directories_are_refused),
        cmocka_unit_test(test_a_damaged_block_stops_only_its_merges),
        cmocka_unit_test(test_an_accepted_loss),
        cmocka_unit_test(test_queries_beside_cuts_and_merges),
        cmocka_unit_test(test_cuts_are_due),
    };
    name_series();
    if (getenv("MILLRACE_STEPS"))
        rounds = (unsigned)atoi(getenv("MILLRACE_STEPS"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
