#include "aggregator/reads.h"

#include <stdio.h>
#include <stdlib.h>

#define BLOCK_COUNTS 500 /* in a block of a run, about */

struct reads {
    struct reads_layers layers; /* with arrays of its own */
    struct slice_reader **readers;
    struct batch copies[READS_BATCHES]; /* no table: the layer's own batch is read */
    struct count_range *ranges;
    size_t n_ranges;
    struct reads_bounds bounds;
    struct bytes *names;     /* of the bounds */
    struct buf texts;        /* of the names */
    struct buf keys;         /* the ranges' texts */
    struct bytes prefix_end; /* of a range with a prefix: after nearly all keys with this prefix */
};

void reads_answer_free(struct reads_answer *a)
{
    buf_free(&a->lines);
    buf_free(&a->next);
}

/* Appends the counts of the names in the bounds as a record, unless the merge's record has none of them. */
static enum count_next print_names(
    struct count_merge *m, const struct reads_bounds *bounds, struct reads_answer *a)
{
    struct count_value value;
    enum count_next r;
    bool is_first = true;
    while ((r = count_merge_next_value(m, &value)) == COUNT_FOUND) {
        bool is_wanted = false;
        for (size_t i = 0; i < bounds->n_names; i++)
            is_wanted = is_wanted || bytes_equal(value.name, bounds->names[i]);
        if (!is_wanted)
            continue;
        if (is_first)
            buf_append_bytes(&a->lines, count_merge_key(m));
        else
            buf_append_char(&a->lines, ' ');
        buf_append_bytes(&a->lines, value.name);
        buf_append_char(&a->lines, ':');
        buf_append_u64(&a->lines, value.count);
        is_first = false;
    }
    if (!is_first)
        buf_append_char(&a->lines, '\n');
    a->records += !is_first;
    return r;
}

static int answer_range(const struct reads_layers *l, const struct count_range *range,
    const struct reads_bounds *bounds, struct reads_answer *a)
{
    size_t n = BATCH_SOURCES * l->n_batches;
    for (size_t i = 0; i < l->n_readers; i++) {
        const char *failure = slice_reader_failure(l->readers[i]);
        if (failure) {
            snprintf(a->error, sizeof(a->error), "%s", failure);
            return -1;
        }
        n += slice_reader_runs(l->readers[i]);
    }
    struct count_source **sources = mem_alloc((n + 1) * sizeof(struct count_source *));
    n = 0;
    for (size_t i = 0; i < l->n_readers; i++)
        for (size_t k = 0; k < slice_reader_runs(l->readers[i]); k++)
            sources[n++] = slice_reader_source(l->readers[i], k, range->from);
    for (size_t i = 0; i < l->n_batches; i++)
        n += batch_sources(l->batches[i], l->counters, range, &sources[n]);
    struct count_merge *m = count_merge_new(sources, n);
    enum count_next r;
    while ((r = count_merge_next_record(m)) == COUNT_FOUND) {
        struct bytes key = count_merge_key(m);
        if (bytes_compare(key, range->from) < 0)
            continue;
        if (!count_range_has(range, key))
            break;
        a->more = a->records > 0 && ((bounds->max_records && a->records >= bounds->max_records) ||
                                        (bounds->max_bytes && a->lines.len >= bounds->max_bytes));
        if (a->more) {
            buf_append(&a->next, key.ptr, key.len - 1);
            break;
        }
        if (bounds->n_names > 0)
            r = print_names(m, bounds, a);
        else
            r = count_merge_print(m, &a->lines);
        if (r == COUNT_FAILED)
            break;
        a->records += bounds->n_names == 0;
    }
    if (r == COUNT_FAILED)
        snprintf(a->error, sizeof(a->error), "%s", count_merge_error(m));
    count_merge_free(&m);
    for (size_t i = 0; i < n; i++)
        count_source_close(&sources[i]);
    free(sources);
    return r == COUNT_FAILED ? -1 : 0;
}

/* Finds the component after the first '|' of a key. False if the key ends before the component does. */
static bool find_component(struct bytes key, struct bytes *out)
{
    const char *end = key.ptr + key.len, *bar = key.len > 0 ? memchr(key.ptr, '|', key.len) : NULL;
    for (const char *c = bar; c && c < end; c++)
        if (*c == '.' || *c == RECORD_SEPARATOR) {
            *out = bytes_of(bar + 1, (size_t)(c - bar) - 1);
            return true;
        }
    return false;
}

/* Finds the component that all keys of the range have. Most ranges have one: they are one key, or one key's hours. */
static bool find_common_component(const struct count_range *range, struct bytes *out)
{
    size_t n = 0;
    if (range->prefix.len > 0)
        return find_component(range->prefix, out);
    while (n < range->from.len && n < range->last.len && range->from.ptr[n] == range->last.ptr[n])
        n++;
    return find_component(bytes_of(range->from.ptr, n), out);
}

static bool is_single(const struct count_range *range)
{
    return range->from.len > 0 && bytes_equal(range->from, range->last);
}

/* Copies what the read needs of the batches: counts with the components of its ranges, or everything. */
static void copy_batches(struct reads *r, const struct reads_layers *l)
{
    size_t n_counters = l->counters->n_totals + l->counters->n_subtotals, n = 0;
    bool *wanted = mem_zalloc(n_counters + 1), all = false;
    struct bytes *components = mem_alloc((r->n_ranges + 1) * sizeof(*components));
    for (size_t i = 0; i < r->n_ranges; i++) {
        count_range_note_counters(&r->ranges[i], l->counters, wanted);
        if (find_common_component(&r->ranges[i], &components[n]))
            n++;
        else if (!is_single(&r->ranges[i])) /* a single key without a component matches no count */
            all = true;
    }
    for (size_t i = 0; i < l->n_batches; i++) {
        if (!all)
            r->copies[i] = batch_pick(l->batches[i], wanted, components, n);
        else if (i + 1 == l->n_batches)
            r->copies[i] = batch_copy(l->batches[i], wanted, n_counters);
        r->layers.batches[i] = r->copies[i].table ? &r->copies[i] : l->batches[i];
    }
    free(components);
    free(wanted);
}

/* Appends the bound with its separator. */
static size_t append_bound(struct buf *out, struct bytes key)
{
    size_t start = out->len;
    buf_append_bytes(out, key);
    buf_append_char(out, RECORD_SEPARATOR);
    return out->len - start;
}

static void set_keys(struct reads *r, const struct bytes *keys, size_t n)
{
    size_t at = 0;
    r->ranges = mem_zalloc(n * sizeof(*r->ranges));
    r->n_ranges = n;
    for (size_t i = 0; i < n; i++)
        r->ranges[i].from.len = append_bound(&r->keys, keys[i]);
    for (size_t i = 0; i < n; at += r->ranges[i++].from.len)
        r->ranges[i].from = r->ranges[i].last = bytes_of(r->keys.ptr + at, r->ranges[i].from.len);
}

static void set_range(struct reads *r, const struct reads_query *q)
{
    struct count_range *range = r->ranges = mem_zalloc(sizeof(*r->ranges));
    r->n_ranges = 1;
    buf_append_bytes(&r->keys, q->prefix);
    buf_append_char(&r->keys, '\xff');
    size_t from = q->start.len > 0 ? append_bound(&r->keys, q->start) : 0;
    size_t last = q->end.len > 0 ? append_bound(&r->keys, q->end) : 0;
    range->prefix = bytes_of(r->keys.ptr, q->prefix.len);
    range->from = bytes_of(r->keys.ptr + q->prefix.len + 1, from);
    range->last = bytes_of(range->from.ptr + from, last);
    if (q->prefix.len > 0)
        r->prefix_end = bytes_of(r->keys.ptr, q->prefix.len + 1);
    if (bytes_compare(range->from, range->prefix) < 0)
        range->from = range->prefix;
}

static void copy_names(struct reads *r, const struct reads_bounds *bounds)
{
    r->names = mem_zalloc((bounds->n_names + 1) * sizeof(*r->names));
    for (size_t i = 0; i < bounds->n_names; i++)
        buf_append_bytes(&r->texts, bounds->names[i]);
    const char *at = r->texts.ptr;
    for (size_t i = 0; i < bounds->n_names; at += bounds->names[i++].len)
        r->names[i] = bytes_of(at, bounds->names[i].len);
    r->bounds.names = r->names;
}

struct reads *reads_new(const struct reads_query *q)
{
    struct reads *r = mem_zalloc(sizeof(*r));
    r->bounds = q->bounds;
    copy_names(r, &q->bounds);
    if (q->keys)
        set_keys(r, q->keys, q->n_keys);
    else
        set_range(r, q);
    return r;
}

void reads_end(struct reads *r)
{
    for (size_t i = 0; i < READS_BATCHES; i++)
        batch_free(&r->copies[i]);
    free(r->readers);
    r->readers = NULL;
}

void reads_begin(struct reads *r, const struct reads_layers *l)
{
    reads_end(r);
    r->layers = *l;
    r->readers = mem_alloc((l->n_readers + 1) * sizeof(struct slice_reader *));
    if (l->n_readers > 0)
        memcpy(r->readers, l->readers, l->n_readers * sizeof(struct slice_reader *));
    r->layers.readers = r->readers;
    copy_batches(r, l);
}

static struct bytes upper_bound(const struct reads *r, size_t i)
{
    return r->ranges[i].last.len > 0 ? r->ranges[i].last : r->prefix_end;
}

size_t reads_work(const struct reads *r)
{
    size_t work = 0;
    for (size_t i = 0; i < r->layers.n_batches; i++)
        work += r->n_ranges * count_table_counts(r->layers.batches[i]->table);
    for (size_t i = 0; i < r->layers.n_readers; i++)
        for (size_t k = 0; k < r->n_ranges; k++)
            work += BLOCK_COUNTS *
                    slice_reader_blocks(r->layers.readers[i], r->ranges[k].from, upper_bound(r, k));
    return work;
}

int reads_run(const struct reads *r, struct reads_answer *answer)
{
    int result = 0;
    for (size_t i = 0; i < r->n_ranges && result == 0 && !answer->more; i++)
        result = answer_range(&r->layers, &r->ranges[i], &r->bounds, answer);
    return result;
}

void reads_free(struct reads **rp)
{
    struct reads *r = *rp;
    if (!r)
        return;
    reads_end(r);
    free(r->ranges);
    free(r->names);
    buf_free(&r->texts);
    buf_free(&r->keys);
    free(r);
    *rp = NULL;
}
