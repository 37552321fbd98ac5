/* millrace top: the most frequent values of a field over the last minute of a stream; or with --counter the largest keys
 * of a counter over the last minutes, from the API. */
#include "tools/stream_view.h"
#include "tools/tool.h"

#include "base/amount.h"
#include "base/text_hash.h"
#include "counts/interner.h"
#include "json/json_path.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sysexits.h>
#include <unistd.h>

#define BUCKETS 60
#define KEYS_MAX                                                                                             \
    200000 /* maximum number of values; further values count as OTHER until the next part of the window */
#define KEYS_KEPT (KEYS_MAX / 4)
#define KEY_SHOWN 512 /* maximum number of printed bytes of a value */
#define OTHER "(other)"
#define CLEAR "\033[H\033[2J"

static const struct option_row rows[] = {
    STREAM_VIEW_SETTINGS,
    SETTING_STRING("by", "field whose values are counted: l, user.id; without --by, only the rate is shown"),
    SETTING_DURATION("window", "60s", 1000, 3600 * 1000, "s", "time over which values are counted"),
    SETTING_STRING("counter",
        "label of a counter: show the counter's largest keys, from the API, instead of values in the stream"),
    SETTING_STRING("period", "minutes over which the counter's keys are counted: 1m to 120m",
        .fallback = "5m", .needs = "counter"),
    SETTING_INT("rows", "20", 1, KEYS_KEPT, "number of values to show", .needs = "by|counter"),
    SETTING_BOOL("once", "print one table after the window or at the end of the stream, and exit (without a "
                         "terminal: always)"),
    {.name = NULL},
};

/* Numbers of events with one value, per part of the window. */
struct key {
    uint64_t sum;
    uint32_t in[BUCKETS];
};

struct top {
    const struct options *o;
    bool by_field, once, is_drawn, is_pruned;
    size_t shown;
    usec_t bucket, began, bucket_began;
    unsigned now; /* index of the current bucket */
    uint64_t lines[BUCKETS];
    struct interner *texts;
    struct key *keys; /* array of KEYS_MAX keys, indexed by id of the interner */
};

static void count(struct top *t, struct bytes text)
{
    if (text.len > KEY_SHOWN)
        text.len = KEY_SHOWN;
    if (interner_count(t->texts) >= KEYS_MAX - 1)
        text = BYTES_LITERAL(OTHER);
    uint32_t id = interner_add(t->texts, text);
    t->keys[id].in[t->now]++;
    t->keys[id].sum++;
}

static void on_line(struct stream_view *v, struct bytes line, const struct json_value *values, void *arg)
{
    struct top *t = arg;
    char space[STREAM_VIEW_VALUE_TEXT];
    (void)v, (void)line;
    t->lines[t->now]++;
    if (t->by_field)
        count(t, stream_view_text(&values[0], space));
}

struct row {
    uint64_t n;
    struct bytes text;
    uint32_t id;
};

static int by_count(const void *a, const void *b)
{
    const struct row *x = a, *y = b;
    return x->n != y->n ? (x->n < y->n ? 1 : -1) : bytes_compare(x->text, y->text);
}

/* Returns the values with events in the window, most frequent first. The caller frees the list. */
static struct row *ranking(const struct top *t, size_t *n)
{
    struct row *list = mem_alloc((interner_count(t->texts) + 1) * sizeof *list);
    *n = 0;
    for (uint32_t id = 0; id < interner_count(t->texts); id++) {
        const struct interned *text = interner_get(t->texts, id);
        if (t->keys[id].sum > 0)
            list[(*n)++] = (struct row){t->keys[id].sum, bytes_of(text->text, text->text_len), id};
    }
    qsort(list, *n, sizeof *list, by_count);
    return list;
}

/* Discards values with few events, and keeps the most frequent values. */
static void prune(struct top *t)
{
    size_t n;
    struct row *list = ranking(t, &n);
    struct interner *texts = interner_new(text_hash_seed());
    struct key *keys = mem_zalloc(KEYS_MAX * sizeof *keys);
    for (size_t i = 0; i < n && i < KEYS_KEPT; i++)
        keys[interner_add(texts, list[i].text)] = t->keys[list[i].id];
    t->is_pruned = t->is_pruned || n > KEYS_KEPT;
    free(list);
    interner_free(&t->texts);
    free(t->keys);
    t->texts = texts;
    t->keys = keys;
}

/* Begins the next part of the window, and removes the oldest one. */
static void advance(struct top *t)
{
    t->now = (t->now + 1) % BUCKETS;
    t->lines[t->now] = 0;
    for (uint32_t id = 0; id < interner_count(t->texts); id++) {
        t->keys[id].sum -= t->keys[id].in[t->now];
        t->keys[id].in[t->now] = 0;
    }
    if (interner_count(t->texts) > KEYS_MAX / 2)
        prune(t);
}

static void draw(struct top *t, usec_t now)
{
    usec_t window = t->bucket * BUCKETS, age = now - t->began;
    double seconds = (double)(age < window ? (age > 0 ? age : 1) : window) / USEC_PER_SEC;
    uint64_t lines = 0;
    size_t n;
    struct row *list = ranking(t, &n);
    for (unsigned i = 0; i < BUCKETS; i++)
        lines += t->lines[i];
    if (!t->once)
        fputs(CLEAR, stdout);
    printf("%s: %" PRIu64 " %s in %.0f s, %.1f/s", options_string(t->o, "stream"), lines,
        plural(lines, "line", "lines"), seconds, (double)lines / seconds);
    if (t->by_field)
        printf(", %s%zu %s of %s", t->is_pruned ? "over " : "", n, plural(n, "value", "values"),
            options_string(t->o, "by"));
    putchar('\n');
    for (size_t i = 0; i < n && i < t->shown; i++) {
        printf("%12" PRIu64 " %10.1f/s %6.2f %%  ", list[i].n, (double)list[i].n / seconds,
            100 * (double)list[i].n / (double)lines);
        stream_view_print(list[i].text.len ? list[i].text : BYTES_LITERAL("None"));
        putchar('\n');
    }
    free(list);
    t->is_drawn = true;
}

static void on_tick(struct stream_view *v, void *arg)
{
    struct top *t = arg;
    usec_t now = clock_monotonic();
    if (t->once && now - t->began >= t->bucket * BUCKETS) {
        draw(t, now);
        stream_view_end(v);
        return;
    }
    if (!t->once)
        draw(t, now);
    for (unsigned i = 0; i < BUCKETS && now - t->bucket_began >= t->bucket; i++) {
        advance(t);
        t->bucket_began += t->bucket;
    }
    if (now - t->bucket_began >= t->bucket)
        t->bucket_began = now; /* the process was stopped for more than a window */
}

/* Shows the largest keys of a counter once a second, until the API refuses or the process is ended. */
static int top_of_counter(const struct options *o, bool once)
{
    char *rows_text = mem_printf("%lld", (long long)options_int(o, "rows"));
    const char *const pairs[][2] = {{"--config", options_config(o) ? options_config(o)->path : NULL},
        {"--data-dir", options_text(o, "data_dir")}, {"--counter", options_text(o, "counter")},
        {"--period", options_text(o, "period")}, {"--limit", rows_text}};
    const char *words[2 + 2 * sizeof pairs / sizeof *pairs] = {"query", "top"};
    int n = 2, status;
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        for (int k = 0; k < 2 && pairs[i][1]; k++)
            words[n++] = pairs[i][k];
    do {
        fputs(once ? "" : CLEAR, stdout);
        status = tool_query(n, (char **)(void *)words);
        fflush(stdout);
    } while (!once && status == EX_OK && sleep(1) == 0);
    free(rows_text);
    return status;
}

static int top_with(const struct options *o)
{
    const char *by = options_text(o, "by"), *counter = options_text(o, "counter");
    struct top t = {.o = o,
        .by_field = by != NULL,
        .once = options_bool(o, "once") || !isatty(STDOUT_FILENO),
        .shown = (size_t)options_int(o, "rows"),
        .bucket = options_int(o, "window") * USEC_PER_MSEC / BUCKETS,
        .began = clock_monotonic(),
        .texts = interner_new(text_hash_seed()),
        .keys = mem_zalloc(KEYS_MAX * sizeof(struct key))};
    int status;
    t.bucket_began = t.began;
    if (counter)
        status = top_of_counter(o, t.once);
    else if (by && !json_path_is_valid(bytes_str(by)))
        status = tool_fail(EX_USAGE, "--by: \"%s\" is not a field", by);
    else
        status = stream_view_run(o, &(struct stream_view_config){.fields = &by,
                                        .n_fields = t.by_field,
                                        .is_once = t.once,
                                        .on_line = on_line,
                                        .tick = t.once && t.bucket < USEC_PER_SEC ? t.bucket : USEC_PER_SEC,
                                        .on_tick = on_tick,
                                        .arg = &t});
    if (status == EX_OK && t.once && !t.is_drawn && !counter)
        draw(&t, clock_monotonic());
    interner_free(&t.texts);
    free(t.keys);
    return status;
}

int tool_top(int argc, char **argv)
{
    static const struct options_spec spec = {.program = "top",
        .summary =
            "shows the most frequent values of a field over the last minute of a stream, or of a counter",
        .more = "docs/guide/counting.md (Conditions) has the rules of --if.\n",
        .rows = {rows, NULL}};
    return tool_run_on_stream(&spec, argc, argv, top_with);
}
