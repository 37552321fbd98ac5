#include "support/promql_world.h"

#include "counts/text_pattern.h"
#include "promql/promql_json.h"
#include "metrics/metric_duration.h"
#include "promql/promql_lexer.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

struct sample {
    int64_t time;
    double value;
};

struct world_series {
    char *text; /* the series as it was written */
    struct metric_label *labels;
    size_t n_labels;
    struct sample *samples;
    size_t n, cap;
};

static int compare_labels(const void *a, const void *b)
{
    const struct metric_label *x = a, *y = b;
    return bytes_compare(x->name, y->name);
}

/* Reads name{a="b"} as labels, whose texts the caller frees with free_labels. */
static bool read_labels(const char *text, struct metric_label **labels, size_t *n)
{
    const struct label_matcher *matchers;
    size_t count = 0;
    struct error error;
    *n = 0;
    *labels = mem_zalloc(sizeof **labels);
    if (strcmp(text, "{}") == 0)
        return true;
    struct promql *query = promql_parse_selector(bytes_str(text), &matchers, &count, &error);
    if (!query)
        return false;
    *labels = mem_realloc(*labels, (count + 1) * sizeof **labels);
    for (size_t i = 0; i < count; i++)
        if (matchers[i].value.len > 0)
            (*labels)[(*n)++] =
                (struct metric_label){bytes_of(bytes_dup(matchers[i].name), matchers[i].name.len),
                    bytes_of(bytes_dup(matchers[i].value), matchers[i].value.len)};
    promql_free(&query);
    qsort(*labels, *n, sizeof **labels, compare_labels);
    return true;
}

static void free_labels(struct metric_label *labels, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        free((void *)(uintptr_t)labels[i].name.ptr);
        free((void *)(uintptr_t)labels[i].value.ptr);
    }
    free(labels);
}

static bool same_labels(const struct metric_label *a, size_t n, const struct metric_label *b, size_t m)
{
    bool same = n == m;
    for (size_t i = 0; i < n && same; i++)
        same = bytes_equal(a[i].name, b[i].name) && bytes_equal(a[i].value, b[i].value);
    return same;
}

static struct world_series *find_series(struct promql_world *w, const char *text)
{
    struct world_series s = {0};
    for (size_t i = 0; i < w->n; i++)
        if (strcmp(w->series[i].text, text) == 0)
            return &w->series[i];
    bool is_new = read_labels(text, &s.labels, &s.n_labels);
    for (size_t i = 0; i < w->n && is_new; i++)
        if (same_labels(w->series[i].labels, w->series[i].n_labels, s.labels, s.n_labels)) {
            free_labels(s.labels, s.n_labels);
            return &w->series[i];
        }
    if (!is_new) {
        free(s.labels);
        return NULL;
    }
    s.text = mem_strdup(text);
    *ARRAY_ADD(w->series, w->n, w->cap) = s;
    return &w->series[w->n - 1];
}

void world_add(struct promql_world *w, const char *series, int64_t time, double value)
{
    struct world_series *s = find_series(w, series);
    assert(s && (s->n == 0 || s->samples[s->n - 1].time < time));
    *ARRAY_ADD(s->samples, s->n, s->cap) = (struct sample){time, value};
}

void world_free(struct promql_world *w)
{
    for (size_t i = 0; i < w->n; i++) {
        free(w->series[i].text);
        free_labels(w->series[i].labels, w->series[i].n_labels);
        free(w->series[i].samples);
    }
    free(w->series);
    *w = (struct promql_world){.width = w->width};
}

/* Reads a number at *text, and moves behind it. */
static bool read_number(const char **text, double *number)
{
    char *end = (char *)(uintptr_t)*text + strspn(*text, "+-") + 1;
    if (strncmp(end - 1, "0x", 2) == 0) /* 0 some times, and never a hexadecimal number */
        *number = 0;
    else
        *number = strtod(*text, &end);
    bool is_read = end != *text;
    *text = end;
    return is_read;
}

bool world_load(struct promql_world *w, const char *series, const char *values, int64_t step)
{
    int64_t time = 0;
    struct world_series *s = find_series(w, series);
    if (s && s->n > 0) /* as in Prometheus, the later line counts */
        s->n = 0;
    for (const char *at = values; s && *at;) {
        double value = 0, more = 0;
        long times = 0;
        bool is_gap = *at == '_', is_stale = strncmp(at, "stale", 5) == 0;
        if (*at == ' ' || *at == '\t') {
            at++;
            continue;
        }
        if (is_gap || is_stale)
            at += is_gap ? 1 : 5;
        else if (!read_number(&at, &value))
            return false;
        if ((*at == '+' || *at == '-') && !read_number(&at, &more))
            return false;
        if (*at == 'x') {
            char *end;
            times = strtol(at + 1, &end, 10) - is_gap;
            at = end;
        }
        for (long i = 0; i <= times; i++, time += step, value += more)
            if (!is_gap)
                world_add(w, s->text, time, is_stale ? WORLD_STALE : value);
        s = find_series(w, series);
    }
    return s != NULL;
}

static bool matches(const struct world_series *s, const struct label_matcher *m, struct text_pattern *pattern)
{
    struct bytes value = BYTES_LITERAL("");
    for (size_t i = 0; i < s->n_labels; i++)
        if (bytes_equal(s->labels[i].name, m->name))
            value = s->labels[i].value;
    bool found =
        pattern ? text_pattern_find(pattern, value) == TEXT_PATTERN_FOUND : bytes_equal(value, m->value);
    return found == (m->type == MATCH_EQUAL || m->type == MATCH_REGEX);
}

static void add_sample(struct sample_bucket *b, const struct sample *x, double before, bool has_before)
{
    if (x->value == WORLD_STALE) {
        b->stale_at = x->time;
        return;
    }
    b->first = b->count + b->n_nan == 0 ? x->time : b->first;
    b->last_at = x->time;
    b->last = x->value;
    b->stale_at = 0;
    if (isnan(x->value)) {
        b->n_nan++;
        return;
    }
    b->min = b->count == 0 || x->value < b->min ? x->value : b->min;
    b->max = b->count == 0 || x->value > b->max ? x->value : b->max;
    b->sum += x->value;
    b->count++;
    if (has_before)
        b->rise += x->value < before ? x->value : x->value - before;
}

static size_t make_buckets(
    const struct world_series *s, int64_t width, int64_t from, int64_t to, struct sample_bucket *out)
{
    size_t n = 0;
    double before = 0;
    bool has_before = false;
    for (size_t i = 0; i < s->n; i++) {
        const struct sample *x = &s->samples[i];
        int64_t start = x->time - ((x->time % width) + width) % width;
        if (n == 0 || out[n - 1].start != start)
            out[n++] = (struct sample_bucket){.start = start, .width = (uint32_t)width};
        add_sample(&out[n - 1], x, before, has_before);
        if (x->value != WORLD_STALE && !isnan(x->value)) {
            before = x->value;
            has_before = true;
        }
        if (out[n - 1].start + width <= from || start > to)
            n--;
    }
    return n;
}

static void free_selection(struct metric_selection *selection)
{
    free(selection->series);
    free(selection->memory);
}

static enum metric_result world_select(void *context, const struct metric_request *request,
    struct metric_selection *selection, struct error *error)
{
    struct promql_world *w = context;
    size_t room = 1, n_buckets = 0;
    struct text_pattern **patterns = mem_zalloc((request->n_matchers + 1) * sizeof(struct text_pattern *));
    w->n_selects++;
    w->last = *request;
    if (w->refuses) {
        free(patterns);
        return (enum metric_result)error_set(error, METRIC_FAILED, "the world is refused");
    }
    for (size_t i = 0; i < request->n_matchers; i++)
        if (request->matchers[i].type >= MATCH_REGEX) {
            char *text = mem_printf(
                "^(?:%.*s)\\z", (int)request->matchers[i].value.len, request->matchers[i].value.ptr);
            patterns[i] = text_pattern_new(text, error);
            free(text);
        }
    for (size_t i = 0; i < w->n; i++)
        room += w->series[i].n;
    struct sample_bucket *buckets = mem_zalloc(room * sizeof *buckets);
    *selection = (struct metric_selection){.series = mem_zalloc((w->n + 1) * sizeof *selection->series),
        .memory = buckets,
        .free = free_selection};
    for (size_t i = 0; i < w->n; i++) {
        bool all = true;
        for (size_t k = 0; k < request->n_matchers && all; k++)
            all = matches(&w->series[i], &request->matchers[k], patterns[k]);
        size_t n = all ? make_buckets(&w->series[i], w->width ? w->width : 1, request->from, request->to,
                             buckets + n_buckets)
                       : 0;
        if (n == 0)
            continue;
        selection->series[selection->n_series++] =
            (struct metric_series){w->series[i].labels, w->series[i].n_labels, buckets + n_buckets, n};
        n_buckets += n;
    }
    for (size_t i = 0; i < request->n_matchers; i++)
        text_pattern_free(&patterns[i]);
    free(patterns);
    return selection->n_series > request->max_series || n_buckets > request->max_buckets ? METRIC_TOO_MANY
                                                                                         : METRIC_OK;
}

struct metric_source world_source(struct promql_world *w)
{
    return (struct metric_source){.context = w, .select = world_select};
}

void world_describe(const struct promql_result *result, struct buf *out)
{
    for (size_t i = 0; i < result->n_series; i++) {
        const struct promql_series *s = &result->series[i];
        promql_json_labels(out, s->labels, s->n_labels);
        for (size_t k = 0; k < s->n_points; k++) {
            struct buf value = {0};
            promql_json_value(&value, s->points[k].value);
            buf_printf(out, " %.*s@%g", (int)value.len - 2, value.ptr + 1, (double)s->points[k].time / 1000);
            buf_free(&value);
        }
        buf_append_char(out, '\n');
    }
    if (result->type == PROMQL_STRING)
        buf_append_json(out, result->text);
    for (size_t i = 0; i < result->n_warnings; i++)
        buf_printf(out, "warning: %s\n", result->warnings[i]);
}

/* The answer that a file expects: a line of it. */
struct expected {
    struct metric_label *labels;
    size_t n_labels;
    double values[100];
    bool gaps[100];
    size_t n;
    bool is_seen;
};

struct command {
    struct promql_world *world;
    struct world_report *report;
    const char *file;
    size_t line;
    bool fails, ordered, is_range, is_scalar;
    int64_t start, end, step;
    struct bytes expression;
    struct expected *expected;
    size_t n_expected;
};

static bool is_near(double a, double b)
{
    if ((isnan(a) && isnan(b)) || a == b)
        return true;
    double size = fabs(a) + fabs(b), difference = fabs(a - b);
    return a == 0 || b == 0 || size < 2.3e-308 ? difference < 1e-6 * 2.3e-308 : difference / size < 1e-6;
}

static void report(
    const struct command *c, const char *mode, const char *what, const struct promql_result *result)
{
    struct buf got = {0};
    if (result)
        world_describe(result, &got);
    buf_printf(&c->report->failures, "%s:%zu: %s: %.*s: %s\n%.*s", c->file, c->line, mode,
        (int)c->expression.len, c->expression.ptr, what, (int)got.len, got.len ? got.ptr : "");
    buf_free(&got);
}

static struct expected *find_expected(const struct command *c, const struct promql_series *s)
{
    for (size_t i = 0; i < c->n_expected; i++) {
        struct expected *x = &c->expected[i];
        if (same_labels(x->labels, x->n_labels, s->labels, s->n_labels))
            return x;
    }
    return NULL;
}

/* Compares the points of a series at the command's times. A point at any other time is ignored. */
static bool has_values(const struct command *c, const struct expected *x, const struct promql_series *s)
{
    for (size_t i = 0; i < x->n; i++) {
        int64_t time = c->start + (int64_t)i * c->step;
        const struct promql_point *point = NULL;
        for (size_t k = 0; k < s->n_points; k++)
            if (s->points[k].time == time)
                point = &s->points[k];
        if ((point == NULL) != x->gaps[i] || (point && !is_near(point->value, x->values[i])))
            return false;
    }
    return true;
}

static bool compare(const struct command *c, const char *mode, const struct promql_result *result)
{
    size_t n_seen = 0;
    for (size_t i = 0; i < c->n_expected; i++)
        c->expected[i].is_seen = false;
    for (size_t i = 0; i < result->n_series; i++) {
        const struct promql_series *s = &result->series[i];
        struct expected *x = find_expected(c, s);
        bool has_time = c->is_range;
        for (size_t k = 0; k < s->n_points; k++)
            has_time |= s->points[k].time == c->start;
        if (!has_time)
            continue;
        if (!x || x->is_seen || !has_values(c, x, s)) {
            report(c, mode, x ? "a series has other values" : "unexpected series", result);
            return false;
        }
        if (c->ordered && (size_t)(x - c->expected) != i) {
            report(c, mode, "another order", result);
            return false;
        }
        x->is_seen = true;
        n_seen++;
    }
    if (n_seen != c->n_expected)
        report(c, mode, "a series is absent", result);
    return n_seen == c->n_expected;
}

/* Evaluates the command's query from start to end. */
static bool run_query(const struct command *c, const struct promql *query, int64_t start, int64_t end,
    int64_t step, const char *mode)
{
    struct metric_source source = world_source(c->world);
    struct promql_result result;
    struct error error;
    struct promql_request request = {.start = start, .end = end, .step = step};
    enum promql_result_code code = promql_evaluate(query, &source, &request, &result, &error);
    bool good = c->fails == (code != PROMQL_OK);
    if (!good)
        report(c, mode, code == PROMQL_OK ? "no error" : error.text, code == PROMQL_OK ? &result : NULL);
    else if (code == PROMQL_OK)
        good = compare(c, mode, &result);
    promql_result_free(&result);
    return good;
}

static void run_command(struct command *c)
{
    struct error error;
    struct promql *query = promql_parse(c->expression, &error);
    bool good = query ? true : c->fails;
    if (!query && strstr(error.text, "not supported")) {
        buf_printf(&c->report->skipped, "%s\n", strstr(error.text, "the "));
        c->report->n_skipped++;
        return;
    }
    if (!query && !c->fails)
        report(c, "parse", error.text, NULL);
    if (query && c->is_range)
        good = run_query(c, query, c->start, c->end, c->step, "range");
    else if (query)
        good = run_query(c, query, c->start, c->start, 0, "instant") &&
               (c->ordered || c->fails || promql_type(query) > PROMQL_VECTOR ||
                   run_query(c, query, c->start - 60000, c->start + 60000, 60000, "three steps"));
    promql_free(&query);
    *(good ? &c->report->passed : &c->report->failed) += 1;
}

/* Divides `up{a="b c"} 1 2` into series and values. */
static const char *split_series(char *line)
{
    bool in_quotes = false, in_braces = false;
    for (char *at = line; *at; at++) {
        if (*at == '\\' && at[1])
            at++;
        else if (*at == '"')
            in_quotes = !in_quotes;
        else if (!in_quotes && (*at == '{' || *at == '}'))
            in_braces = *at == '{';
        else if (!in_quotes && !in_braces && (*at == ' ' || *at == '\t')) {
            *at = '\0';
            return at + 1;
        }
    }
    return "";
}

static void expect_line(struct command *c, char *line)
{
    struct expected x = {0};
    struct promql_world values = {0};
    char *end;
    double number = strtod(line, &end);
    c->expected = mem_realloc(c->expected, (c->n_expected + 1) * sizeof *c->expected);
    if (*end == '\0') {
        x.labels = mem_zalloc(sizeof *x.labels);
        x.values[0] = number;
        x.n = 1;
    } else {
        const char *list = split_series(line);
        if (!read_labels(line, &x.labels, &x.n_labels) || !world_load(&values, "a", list, 1))
            report(c, "file", "the line cannot be read", NULL);
        for (size_t i = 0; i < 100; i++)
            x.gaps[i] = true;
        for (size_t i = 0; values.n > 0 && i < values.series[0].n; i++) {
            size_t at = (size_t)values.series[0].samples[i].time;
            x.values[at] = values.series[0].samples[i].value;
            x.gaps[at] = false;
            x.n = at + 1;
        }
        if (c->is_range)
            x.n = (size_t)((c->end - c->start) / c->step) + 1;
        world_free(&values);
    }
    c->expected[c->n_expected++] = x;
}

static int64_t read_time(struct bytes text)
{
    int64_t time = 0;
    uint64_t seconds;
    if (bytes_to_u64(text, &seconds))
        return (int64_t)seconds * 1000;
    if (metric_duration_read(text, &time))
        fprintf(stderr, "cannot read the time %.*s\n", (int)text.len, text.ptr);
    return time;
}

static void read_head(struct command *c, struct bytes line)
{
    struct bytes word = bytes_take_word(&line);
    c->fails = bytes_equal_str(word, "eval_fail");
    c->ordered = bytes_equal_str(word, "eval_ordered");
    c->is_range = bytes_equal_str(bytes_take_word(&line), "range");
    c->step = 1;
    while (line.len > 0) {
        struct bytes rest = line, key = bytes_take_word(&rest), value = bytes_take_word(&rest);
        if (bytes_equal_str(key, "at") || (c->is_range && bytes_equal_str(key, "from")))
            c->start = read_time(value);
        else if (c->is_range && bytes_equal_str(key, "to"))
            c->end = read_time(value);
        else if (c->is_range && bytes_equal_str(key, "step"))
            c->step = read_time(value);
        else
            break;
        line = bytes_trim(rest);
    }
    c->expression = bytes_trim(line);
}

/* The next line without space and comments at its ends; an empty line at the end of the text. */
static char *next_line(struct bytes *text, size_t *number)
{
    const char *lf = memchr(text->ptr, '\n', text->len);
    struct bytes line = bytes_of(text->ptr, lf ? (size_t)(lf - text->ptr) : text->len);
    *text = bytes_of(text->ptr + line.len + (lf != NULL), text->len - line.len - (lf != NULL));
    ++*number;
    line = bytes_trim(line);
    return bytes_dup(line.len > 0 && *line.ptr == '#' ? BYTES_NONE : line);
}

static void run_eval(struct promql_world *w, const char *file, char *head, struct bytes *text, size_t *number,
    struct world_report *r)
{
    struct command c = {.world = w, .report = r, .file = file, .line = *number};
    read_head(&c, bytes_str(head));
    for (;;) {
        struct bytes rest = *text;
        size_t next = *number;
        char *line = next_line(&rest, &next);
        bool is_expected = *line && strncmp(line, "eval", 4) != 0 && strcmp(line, "clear") != 0 &&
                           strncmp(line, "load ", 5) != 0;
        if (is_expected) {
            expect_line(&c, line);
            *text = rest;
            *number = next;
        }
        free(line);
        if (!is_expected)
            break;
    }
    run_command(&c);
    for (size_t i = 0; i < c.n_expected; i++)
        free_labels(c.expected[i].labels, c.expected[i].n_labels);
    free(c.expected);
}

static void run_load(struct promql_world *w, const char *file, const char *head, struct bytes *text,
    size_t *number, struct world_report *r)
{
    int64_t step = read_time(bytes_trim(bytes_str(head + 5)));
    for (;;) {
        char *line = next_line(text, number);
        bool is_end = *line == '\0';
        const char *values = is_end ? "" : split_series(line);
        if (!is_end && !world_load(w, line, values, step)) {
            buf_printf(&r->failures, "%s:%zu: the series cannot be read\n", file, *number);
            r->failed++;
        }
        free(line);
        if (is_end)
            return;
    }
}

void world_run(struct promql_world *w, const char *file, struct bytes text, struct world_report *r)
{
    size_t number = 0;
    while (text.len > 0) {
        char *line = next_line(&text, &number);
        if (strncmp(line, "load ", 5) == 0)
            run_load(w, file, line, &text, &number, r);
        else if (strncmp(line, "eval", 4) == 0)
            run_eval(w, file, line, &text, &number, r);
        else if (strcmp(line, "clear") == 0)
            world_free(w);
        else if (*line)
            buf_printf(&r->failures, "%s:%zu: unknown command %s\n", file, number, line), r->failed++;
        free(line);
    }
}
