#include "aggregator/reads.h"

#include <stdio.h>
#include <stdlib.h>

void reads_answer_free(struct reads_answer *a)
{
    buf_free(&a->lines);
    buf_free(&a->next);
}

struct sources {
    struct count_source **list;
    size_t n;
};

/* Returns 0, or -1 if the last renewal of a slice's reader failed. */
static int open_sources(
    const struct reads_layers *l, const struct count_range *range, struct sources *s, char *error)
{
    size_t most = BATCH_SOURCES * l->n_batches;
    for (size_t i = 0; i < l->n_readers; i++) {
        const char *failure = slice_reader_failure(l->readers[i]);
        if (failure) {
            snprintf(error, SLICE_ERROR_TEXT, "%s", failure);
            return -1;
        }
        most += slice_reader_runs(l->readers[i]);
    }
    s->list = mem_alloc((most + 1) * sizeof(*s->list));
    for (size_t i = 0; i < l->n_readers; i++)
        for (size_t k = 0; k < slice_reader_runs(l->readers[i]); k++)
            s->list[s->n++] = slice_reader_source(l->readers[i], k, range->from);
    for (size_t i = 0; i < l->n_batches; i++)
        s->n += batch_sources(l->batches[i], l->counters, range, &s->list[s->n]);
    return 0;
}

static bool is_full(const struct reads_bounds *b, const struct reads_answer *a)
{
    if (a->records == 0)
        return false;
    return (b->max_records && a->records >= b->max_records) || (b->max_bytes && a->lines.len >= b->max_bytes);
}

/* Skips records before the range and stops at the first one behind it. */
static enum count_next copy_records(struct count_merge *m, const struct count_range *range,
    const struct reads_bounds *bounds, struct reads_answer *a)
{
    enum count_next r;
    while ((r = count_merge_next_record(m)) == COUNT_FOUND) {
        struct bytes key = count_merge_key(m);
        if (bytes_compare(key, range->from) < 0)
            continue;
        if (!count_range_has(range, key))
            return COUNT_END;
        if (is_full(bounds, a)) {
            a->more = true;
            buf_append(&a->next, key.ptr, key.len - 1);
            return COUNT_END;
        }
        if (count_merge_print(m, &a->lines) == COUNT_FAILED)
            return COUNT_FAILED;
        a->records++;
    }
    return r;
}

static int answer_range(const struct reads_layers *l, const struct count_range *range,
    const struct reads_bounds *bounds, struct reads_answer *a)
{
    struct sources s = {0};
    if (open_sources(l, range, &s, a->error) != 0)
        return -1;
    struct count_merge *m = count_merge_new(s.list, s.n);
    enum count_next r = copy_records(m, range, bounds, a);
    if (r == COUNT_FAILED)
        snprintf(a->error, sizeof(a->error), "%s", count_merge_error(m));
    count_merge_free(&m);
    for (size_t i = 0; i < s.n; i++)
        count_source_close(&s.list[i]);
    free(s.list);
    return r == COUNT_FAILED ? -1 : 0;
}

static void append_bound(struct buf *out, struct bytes key)
{
    buf_append_bytes(out, key);
    buf_append_char(out, RECORD_SEPARATOR);
}

int reads_get(const struct reads_layers *l, struct bytes key, struct reads_answer *answer)
{
    return reads_range(l, key, key, (struct reads_bounds){0}, answer);
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
    int result = answer_range(l, &range, &bounds, answer);
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
    int result = answer_range(l, &range, &bounds, answer);
    buf_free(&from);
    buf_free(&last);
    return result;
}
