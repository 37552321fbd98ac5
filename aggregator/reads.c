#include "aggregator/reads.h"

#include <stdio.h>
#include <stdlib.h>

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

/* Replaces the batches of *l by copies that contain only counts with these components. The caller frees the copies. */
static void pick(
    struct reads_layers *l, const struct bytes *components, size_t n, struct batch out[READS_BATCHES])
{
    for (size_t i = 0; i < l->n_batches; i++) {
        out[i] = batch_pick(l->batches[i], components, n);
        l->batches[i] = &out[i];
    }
}

/* Most ranges lie within one component, such as one key, or one key's hours. Then only the counts with that component
 * are searched. */
static int answer_picked(const struct reads_layers *l, const struct count_range *range,
    const struct reads_bounds *bounds, struct reads_answer *a)
{
    struct reads_layers picked = *l;
    struct batch batches[READS_BATCHES] = {0};
    struct bytes common = range->prefix, component;
    if (common.len == 0) {
        size_t n = 0;
        while (n < range->from.len && n < range->last.len && range->from.ptr[n] == range->last.ptr[n])
            n++;
        common = bytes_of(range->from.ptr, n);
    }
    if (find_component(common, &component))
        pick(&picked, &component, 1, batches);
    int result = answer_range(&picked, range, bounds, a);
    for (size_t i = 0; i < READS_BATCHES; i++)
        batch_free(&batches[i]);
    return result;
}

static void append_bound(struct buf *out, struct bytes key)
{
    buf_append_bytes(out, key);
    buf_append_char(out, RECORD_SEPARATOR);
}

int reads_get(const struct reads_layers *l, const struct bytes *keys, size_t n, struct reads_bounds bounds,
    struct reads_answer *answer)
{
    struct reads_layers picked = *l;
    struct batch batches[READS_BATCHES] = {0};
    struct bytes *components = mem_zalloc((n + 1) * sizeof(*components));
    struct buf key = {0};
    size_t n_components = 0;
    int result = 0;
    for (size_t i = 0; i < n; i++) {
        buf_clear(&key);
        append_bound(&key, keys[i]);
        /* The component ends before the separator, so it lies within keys[i]. */
        if (find_component(buf_bytes(&key), &components[n_components])) {
            components[n_components].ptr += keys[i].ptr - key.ptr;
            n_components++;
        }
    }
    pick(&picked, components, n_components, batches);
    for (size_t i = 0; i < n && result == 0 && !answer->more; i++) {
        buf_clear(&key);
        append_bound(&key, keys[i]);
        struct count_range range = {.from = buf_bytes(&key), .last = buf_bytes(&key)};
        result = answer_range(&picked, &range, &bounds, answer);
    }
    for (size_t i = 0; i < READS_BATCHES; i++)
        batch_free(&batches[i]);
    free(components);
    buf_free(&key);
    return result;
}

int reads_prefix(const struct reads_layers *l, struct bytes prefix, struct bytes start,
    struct reads_bounds bounds, struct reads_answer *answer)
{
    struct buf from = {0};
    if (start.len > 0)
        append_bound(&from, start);
    if (bytes_compare(buf_bytes(&from), prefix) < 0) {
        buf_clear(&from);
        buf_append_bytes(&from, prefix);
    }
    struct count_range range = {.from = buf_bytes(&from), .prefix = prefix};
    int result = answer_picked(l, &range, &bounds, answer);
    buf_free(&from);
    return result;
}

int reads_range(const struct reads_layers *l, struct bytes start, struct bytes end,
    struct reads_bounds bounds, struct reads_answer *answer)
{
    struct buf from = {0}, last = {0};
    append_bound(&from, start);
    append_bound(&last, end);
    struct count_range range = {.from = buf_bytes(&from), .last = buf_bytes(&last)};
    int result = answer_picked(l, &range, &bounds, answer);
    buf_free(&from);
    buf_free(&last);
    return result;
}
