/* count_lines CONFIG <LINES: what the counters' library makes of them, as the archive's text; `events N skipped N
 * rejected N` on standard error. count_lines CONFIG verdicts <LINES: instead one line a line, `event`, `skipped` or
 * `rejected: WHY`. A test's stand-in for aggregator and compactor: no files, no streams, every count in one list
 * that is sorted at the end. */
#include "counts/counters.h"
#include "counts/records.h"
#include <stdio.h>
#include <stdlib.h>

struct item {
    char *text; /* a record's key, then NUL, then the counted name */
    size_t len, key_len;
};

static struct item *items;
static size_t n_items, cap_items;

static void add(const struct buf *key, struct bytes name)
{
    if (n_items == cap_items) {
        cap_items = cap_items ? cap_items * 2 : 1024;
        items = mem_realloc(items, cap_items * sizeof *items);
    }
    struct item *it = &items[n_items++];
    it->key_len = key->len;
    it->len = key->len + 1 + name.len;
    it->text = mem_alloc(it->len);
    memcpy(it->text, key->ptr, key->len);
    it->text[key->len] = RECORD_SEPARATOR;
    memcpy(it->text + key->len + 1, name.ptr, name.len);
}

static int by_record(const void *a, const void *b)
{
    const struct item *x = a, *y = b;
    return bytes_compare(bytes_of(x->text, x->len), bytes_of(y->text, y->len));
}

static struct bytes store(struct bytes text, char space[COMPONENT_HASH + 1])
{
    struct bytes stored = component_store(text, space);
    if (component_is_hash(stored)) {
        struct buf key = {0}, value = {0};
        buf_append_str(&key, "lookup|");
        buf_append_bytes(&key, stored);
        lookup_escape(text, &value);
        add(&key, buf_bytes(&value));
        buf_free(&key);
        buf_free(&value);
    }
    return stored;
}

static void count(const struct counters *c, const struct counters_event *e)
{
    char hour[HOUR_TEXT_MAX + 1], total_space[COMPONENT_HASH + 1], sub_space[COMPONENT_HASH + 1];
    struct buf key = {0};
    hour_encode(e->hour, hour);
    for (size_t i = 0; i < c->n_totals + c->n_subtotals; i++) {
        const struct counter *sub = i < c->n_totals ? NULL : &c->subtotals[i - c->n_totals];
        struct bytes total = store(e->texts[e->text_of[sub ? sub->total : i]], total_space);
        buf_clear(&key);
        buf_append_str(&key, sub ? sub->ns : c->totals[i].ns);
        buf_append_char(&key, '|');
        buf_append_bytes(&key, total);
        if (sub)
            buf_printf(&key, ".%s", hour);
        add(&key, sub ? store(e->texts[e->text_of[i]], sub_space) : bytes_str(hour));
    }
    buf_free(&key);
}

/* Equal items are neighbours: how many from `i` on. */
static size_t run_of(size_t i)
{
    size_t n = 1;
    while (i + n < n_items && by_record(&items[i], &items[i + n]) == 0)
        n++;
    return n;
}

static void print_records(void)
{
    if (n_items)
        qsort(items, n_items, sizeof *items, by_record);
    for (size_t i = 0, n; i < n_items; i += n) {
        const struct item *it = &items[i], *before = i ? &items[i - 1] : NULL;
        bool same =
            before && bytes_equal(bytes_of(it->text, it->key_len), bytes_of(before->text, before->key_len));
        n = run_of(i);
        if (same)
            putchar(' ');
        else if (before)
            putchar('\n');
        fwrite(same ? it->text + it->key_len + 1 : it->text, 1, same ? it->len - it->key_len - 1 : it->len,
            stdout);
        if (strncmp(it->text, "lookup|", 7) != 0)
            printf(":%zu", n);
    }
    if (n_items)
        putchar('\n');
}

static size_t verdicts[3];

static void judge(const struct counters *c, struct counters_reader *r, struct bytes line, bool say)
{
    static const char *const words[] = {"event", "skipped", "rejected"};
    struct counters_event e;
    enum counters_verdict v = counters_extract(r, line, &e);
    verdicts[v]++;
    if (say)
        printf(
            "%s%s%s\n", words[v], v == COUNTERS_REJECTED ? ": " : "", v == COUNTERS_REJECTED ? e.reason : "");
    else if (v == COUNTERS_EVENT)
        count(c, &e);
}

static void judge_input(const struct counters *c, bool say)
{
    struct counters_reader *r = counters_reader_new(c);
    size_t cap = 0;
    char *line = NULL;
    for (ssize_t n; (n = getline(&line, &cap, stdin)) > 0;) {
        n -= line[n - 1] == '\n';
        n -= n > 0 && line[n - 1] == '\r';
        if (n > 0)
            judge(c, r, bytes_of(line, (size_t)n), say);
    }
    free(line);
    counters_reader_free(&r);
}

int main(int argc, char **argv)
{
    struct config *config;
    struct error error = {.text = "usage: count_lines CONFIG [verdicts] <LINES"};
    struct counters *c;
    if (argc < 2 || config_read(argv[1], &config, &error) != 0 || counters_read(config, &c, &error) != 0) {
        fprintf(stderr, "%s\n", error.text);
        return 78;
    }
    judge_input(c, argc > 2);
    print_records();
    fprintf(stderr, "events %zu skipped %zu rejected %zu\n", verdicts[COUNTERS_EVENT],
        verdicts[COUNTERS_SKIPPED], verdicts[COUNTERS_REJECTED]);
    for (size_t i = 0; i < n_items; i++)
        free(items[i].text);
    free(items);
    counters_free(&c);
    config_free(&config);
    return 0;
}
