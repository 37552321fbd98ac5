#include "compactor/merge.h"

#include "counts/records.h"
#include <stdio.h>
#include <stdlib.h>

#define PROGRESS_EVERY 16384 /* records */
#define KEY_SHOWN 80
static const struct bytes LOOKUP = {"lookup|", 7};

/* A source with its current record. */
struct head {
    uint64_t prefix; /* first 8 bytes of the key as a number: decides most comparisons */
    struct record_line line;
    struct record_source *source;
};

struct merge {
    const struct merge_spec *spec;
    struct merge_report *report;
    struct head *heap; /* least first; ended sources are removed */
    size_t n;
    struct buf line, sum; /* the record being added up, and its next sum */
    char *error;
};

static struct bytes key_of(const struct record_line *l)
{
    return bytes_of(l->text.ptr, l->key_len);
}

static struct bytes value_of(const struct record_line *l)
{
    return bytes_of(l->text.ptr + l->key_len, l->text.len - l->key_len);
}

static uint64_t prefix_of(struct bytes key)
{
    uint64_t first = 0;
    memcpy(&first, key.ptr, key.len < sizeof(first) ? key.len : sizeof(first));
    return __builtin_bswap64(first);
}

static bool is_less(const struct head *a, const struct head *b)
{
    if (a->prefix != b->prefix)
        return a->prefix < b->prefix;
    return bytes_compare(key_of(&a->line), key_of(&b->line)) < 0;
}

static void sift_down(struct merge *m, size_t i)
{
    struct head moving = m->heap[i];
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= m->n)
            break;
        if (child + 1 < m->n && is_less(&m->heap[child + 1], &m->heap[child]))
            child++;
        if (!is_less(&m->heap[child], &moving))
            break;
        m->heap[i] = m->heap[child];
        i = child;
    }
    m->heap[i] = moving;
}

static enum compact_result read_head(struct merge *m, struct head *h)
{
    enum compact_result r = record_source_next(h->source, &h->line, m->error);
    if (r == COMPACT_OK && h->line.text.ptr)
        h->prefix = prefix_of(key_of(&h->line));
    return r;
}

/* Advances the first source to its next record, or removes it. */
static enum compact_result advance_first(struct merge *m)
{
    m->report->bytes += m->heap[0].line.text.len + 1;
    enum compact_result r = read_head(m, &m->heap[0]);
    if (r != COMPACT_OK)
        return r;
    if (!m->heap[0].line.text.ptr)
        m->heap[0] = m->heap[--m->n];
    if (m->n)
        sift_down(m, 0);
    return COMPACT_OK;
}

struct pairs {
    struct bytes rest, name;
    uint64_t count;
    bool has, bad;
};

static void next_pair(struct pairs *p)
{
    bool bad;
    p->has = record_next_count(&p->rest, &p->name, &p->count, &bad);
    p->bad = p->bad || bad;
}

static void append_pair(struct buf *out, size_t start, struct bytes name, uint64_t count)
{
    if (out->len > start)
        buf_append_char(out, ' ');
    buf_append_bytes(out, name);
    buf_append_char(out, ':');
    buf_append_u64(out, count);
}

bool merge_counts(struct bytes a, struct bytes b, struct buf *out)
{
    struct pairs left = {.rest = a}, right = {.rest = b};
    size_t start = out->len;
    next_pair(&left);
    next_pair(&right);
    while (left.has || right.has) {
        int order = !left.has ? 1 : !right.has ? -1 : bytes_compare(left.name, right.name);
        uint64_t sum = order <= 0 ? left.count : 0;
        if (order >= 0 && __builtin_add_overflow(sum, right.count, &sum))
            return false;
        append_pair(out, start, order <= 0 ? left.name : right.name, sum);
        if (order <= 0)
            next_pair(&left);
        if (order >= 0)
            next_pair(&right);
    }
    return !left.bad && !right.bad;
}

/* The smaller of two texts, compared unescaped. */
static bool merge_texts(struct merge *m, struct bytes key, struct bytes a, struct bytes b)
{
    struct buf left = {0}, right = {0};
    bool good = lookup_unescape(a, &left) == 0 && lookup_unescape(b, &right) == 0;
    bool keep_left = bytes_compare(buf_bytes(&left), buf_bytes(&right)) <= 0;
    buf_append_bytes(&m->sum, keep_left ? a : b);
    buf_free(&left);
    buf_free(&right);
    m->report->collisions++;
    snprintf(m->report->collision, sizeof(m->report->collision), "%.*s", (int)key.len - 1, key.ptr);
    return good;
}

/* Adds the first source's record to m->line, which has the same key. */
static enum compact_result add_first(struct merge *m, size_t key_len)
{
    struct bytes key = bytes_of(m->line.ptr, key_len);
    struct bytes a = bytes_of(m->line.ptr + key_len, m->line.len - key_len);
    struct bytes b = value_of(&m->heap[0].line);
    buf_clear(&m->sum);
    buf_append_bytes(&m->sum, key);
    bool good = true;
    if (!bytes_starts_with(key, LOOKUP))
        good = merge_counts(a, b, &m->sum);
    else if (bytes_equal(a, b))
        buf_append_bytes(&m->sum, a);
    else
        good = merge_texts(m, key, a, b);
    if (!good)
        return compact_fail(m->error, COMPACT_DAMAGED,
            "%.300s, or an older file: a malformed record at \"%.*s\"", record_source_path(m->heap[0].source),
            (int)(key.len < KEY_SHOWN ? key.len : KEY_SHOWN), key.ptr);
    struct buf swapped = m->line;
    m->line = m->sum;
    m->sum = swapped;
    return COMPACT_OK;
}

static enum compact_result write_record(struct merge *m, struct bytes text, size_t key_len)
{
    struct record_key key;
    if (!record_key_parse(bytes_of(text.ptr, key_len - 1), &key))
        return compact_fail(m->error, COMPACT_DAMAGED, "invalid key: \"%.*s\"",
            (int)(key_len - 1 < KEY_SHOWN ? key_len - 1 : KEY_SHOWN), text.ptr);
    m->report->records++;
    if (m->spec->on_progress && m->report->records % PROGRESS_EVERY == 0)
        m->spec->on_progress(m->report, m->spec->arg);
    return shard_writer_add(m->spec->writers[record_shard(&key, m->spec->shards)], text, m->error);
}

static bool is_first_key(const struct merge *m, struct bytes key)
{
    return m->n && bytes_equal(key, key_of(&m->heap[0].line));
}

/* In a heap an equal of the first is a child of it. */
static bool first_is_alone(const struct merge *m)
{
    for (size_t child = 1; child <= 2 && child < m->n; child++)
        if (m->heap[child].prefix == m->heap[0].prefix && !is_less(&m->heap[0], &m->heap[child]))
            return false;
    return true;
}

static enum compact_result add_up_first(struct merge *m)
{
    size_t key_len = m->heap[0].line.key_len;
    buf_clear(&m->line);
    buf_append_bytes(&m->line, m->heap[0].line.text);
    enum compact_result r = advance_first(m);
    while (r == COMPACT_OK && is_first_key(m, bytes_of(m->line.ptr, key_len))) {
        r = add_first(m, key_len);
        if (r == COMPACT_OK)
            r = advance_first(m);
    }
    return r == COMPACT_OK ? write_record(m, buf_bytes(&m->line), key_len) : r;
}

static enum compact_result merge_first(struct merge *m)
{
    if (!first_is_alone(m))
        return add_up_first(m);
    enum compact_result r = write_record(m, m->heap[0].line.text, m->heap[0].line.key_len);
    return r == COMPACT_OK ? advance_first(m) : r;
}

static enum compact_result fill_heap(struct merge *m)
{
    for (size_t i = 0; i < m->spec->n_sources; i++) {
        struct head h = {.source = m->spec->sources[i]};
        enum compact_result r = read_head(m, &h);
        if (r != COMPACT_OK)
            return r;
        if (h.line.text.ptr)
            m->heap[m->n++] = h;
    }
    for (size_t i = m->n / 2; i-- > 0;)
        sift_down(m, i);
    return COMPACT_OK;
}

enum compact_result merge_run(
    const struct merge_spec *spec, struct merge_report *report, char error[COMPACT_ERROR_TEXT])
{
    struct merge m = {.spec = spec, .report = report, .error = error};
    *report = (struct merge_report){0};
    m.heap = mem_zalloc((spec->n_sources + 1) * sizeof(*m.heap));
    enum compact_result r = fill_heap(&m);
    while (r == COMPACT_OK && m.n)
        r = merge_first(&m);
    if (spec->on_progress)
        spec->on_progress(report, spec->arg);
    buf_free(&m.line);
    buf_free(&m.sum);
    free(m.heap);
    return r;
}
